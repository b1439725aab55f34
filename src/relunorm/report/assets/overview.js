// The first tab: the answer, what to do about it, and the other findings in one line each.
"use strict";
((R) => {
  R.overview = (report) => [
    R.answer(report),
    R.quality(report),
    R.el("h3", { id: "todo" }, "What to do"),
    R.advice(report),
    R.el("h3", {}, "Also found"),
    R.el("div", { class: "facts" }, facts(report.sections)),
    about(report),
  ];

  const facts = ({ network, quality, robustness, removal, regions, lipschitz, units }) => {
    const found = [];
    if (network.body && quality.body) {
      found.push(["layers", R.fact("Size", R.quantity(network.body.units),
        `${R.unitWords(network.body)}; ${R.plural(network.body.parameters.value, "parameter")}`)]);
    }
    if (robustness.body?.median.value) {
      found.push(["robustness", R.fact("Half of the rows safe up to", R.quantity(robustness.body.median, 3),
        `how far all inputs may move${robustness.body.scales_differ ? ", of their spread" : ""}; ` +
        `on ${R.number(robustness.body.rows.value)} of ${R.plural(robustness.body.rows.of, "row")}`)]);
    }
    if (units.body) {
      found.push(["units", R.fact("Dead units", R.quantity(units.body.dead), `on ${units.body.on}`)]);
    }
    if (removal.body) {
      const kind = removal.status === "partial" ? "lower" : "exact";
      const gone = { value: removal.body.removed.total, kind };
      found.push(["removal", R.fact("Removable units", R.quantity(gone), "without changing the function")]);
    }
    if (lipschitz.body) {
      const { exact, lower, upper } = lipschitz.body;
      found.push(["lipschitz", R.fact("Lipschitz constant",
        exact ? R.quantity(upper) : R.el("span", { class: "quantity" },
          R.el("span", { class: "figure" }, `${R.number(lower.value, 3, "lower")} … ${R.number(upper.value, 3, "upper")}`),
          " ", R.kind("bound")),
        `l${lipschitz.body.norm} norm, over the domain`)]);
    }
    if (regions.body) {
      const where = regions.body.type === "slice" ? "on the plane drawn" : "on the domain";
      found.push(["regions", R.fact("Linear regions", R.quantity(regions.body.count), where)]);
    }
    return found.map(([id, node]) => R.el("a", { href: `#${id}`, class: "to-part" }, node));
  };

  const about = (report) => {
    const { data } = report;
    const line = (name, ...text) => R.el("div", {}, R.el("dt", {}, name), R.el("dd", {}, ...text));
    return [
      R.el("h3", {}, "What this page is about"),
      R.el("dl", { class: "about" },
        line("Domain", report.domain.from === "data" ? "the box around the data"
          : `${report.domain.words}${report.domain.from === "default" ? " (assumed: none was given)" : ""}`),
        line("Data", data ? `${R.plural(data.rows, "row")}${data.used < data.rows
          ? `, ${R.number(data.used)} used` : ""}` : "none given"),
        data?.classes && line("Classes", R.classesInWords(data)),
        line("Made", `${report.created.slice(0, 10)} in ${R.number(report.time.seconds, 3)} s`,
          report.time.interrupted ? ", interrupted" : "")),
    ];
  };
})((window.relunormReport ??= {}));
