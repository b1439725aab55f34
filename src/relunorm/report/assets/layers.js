// What the network is made of, layer by layer.
"use strict";
((R) => {
  R.layers = (report) => R.section(report.sections.network, (body) => {
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
      R.el("p", {}, R.el("code", {}, body.words)),
      R.table(["layer", "from", ">shape", "activation", "reads", ">entries"], rows,
        "Layers of the network"),
      body.layers.of > last && R.note(`The first ${last} of ${body.layers.of} layers.`),
      R.el("h3", {}, "Range of the outputs ", R.kind(range.kind)),
      R.note(`On ${range.on}. The network has ${R.plural(body.outputs.value, "output")}.`),
      range.note && R.note(range.note),
      R.table(["output", ">smallest", ">mean", ">largest"],
        range.rows.map((r) => [R.outputName(report, r.output).replace(/^output /, ""),
          ...[r.min, r.mean, r.max].map((v) => R.number(v))]),
        "Range of the outputs"),
      R.note("Fingerprint of the weights (sha256): ", R.el("code", {}, body.digest)),
    ];
  });
})((window.relunormReport ??= {}));
