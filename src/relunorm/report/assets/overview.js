// What the network is, and the findings in one line each.
"use strict";
((R) => {
  R.overview = (report) => {
    const { network, removal, regions, lipschitz, units } = report.sections;
    return [
      R.el("div", { class: "facts" }, facts(network, removal, regions, lipschitz, units)),
      R.section(network, (body) => structure(body, report)),
    ];
  };

  const facts = (network, removal, regions, lipschitz, units) => {
    const found = [];
    const body = network.body;
    if (body) {
      found.push(R.fact("Units", R.quantity(body.units),
        `in ${R.plural(body.depth.value, "hidden layer")}`));
      found.push(R.fact("Parameters", R.quantity(body.parameters),
        body.skips ? "with skip connections" : "a plain chain of layers"));
    }
    if (removal.body) {
      const gone = { value: removal.body.removed.total, kind: "exact" };
      found.push(R.fact("Removable units", R.quantity(gone), "without changing the function"));
    }
    if (regions.body) {
      const where = { plane: "linear pieces on the domain", interval: "linear pieces on the domain",
        slice: "linear pieces on the slice" }[regions.body.type];
      found.push(R.fact("Regions", R.quantity(regions.body.count), where));
    }
    if (lipschitz.body) {
      const { exact, lower, upper } = lipschitz.body;
      found.push(R.fact("Lipschitz constant",
        exact ? R.quantity(upper) : R.el("span", { class: "quantity" },
          R.el("span", { class: "figure" }, `${R.number(lower.value, 4)} … ${R.number(upper.value, 4)}`),
          " ", R.kind("bound")),
        `l${lipschitz.body.norm} norm, over the domain`));
    }
    if (units.body) {
      found.push(R.fact("Dead units", R.quantity(units.body.dead), `on ${units.body.on}`));
    }
    return found;
  };

  const structure = (body, report) => {
    const size = (shape) => shape.join(" × ");
    const last = body.layers.rows.length - 1;
    const rows = body.layers.rows.map((row, k) => [
      k === last ? "output" : String(k + 1), row.name === "output" ? "" : R.short(row.name),
      size(row.shape), row.activation === "none" ? "" : row.activation,
      row.reads.map((s) => (s === 0 ? "input" : `layer ${s}`)).join(", ") || "nothing",
      R.number(row.parameters),
    ]);
    const range = body.output_range;
    return [
      R.el("h3", {}, "Layers ", R.kind("exact")),
      R.table(["layer", "from", ">shape", "activation", "reads", ">parameters"], rows,
        "Layers of the network"),
      body.layers.of > last && R.note(`The first ${last} of ${body.layers.of} layers.`),
      R.el("h3", {}, "Outputs ", R.kind(range.kind)),
      R.note(`On ${range.on}. The network has ${R.plural(body.outputs.value, "output")}.`),
      range.note && R.note(range.note),
      R.classified(report, body.classified),
      R.table(["output", ">smallest", ">mean", ">largest"],
        range.rows.map((r) => [R.outputName(report, r.output).replace(/^output /, ""),
          ...[r.min, r.mean, r.max].map((v) => R.number(v))]),
        "Range of the outputs"),
      R.note("Fingerprint of the weights (sha256): ", R.el("code", {}, body.digest)),
    ];
  };
})((window.relunormReport ??= {}));
