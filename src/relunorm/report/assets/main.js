// Reads the document of the page and puts the page together.
"use strict";
((R) => {
  const report = JSON.parse(document.getElementById("report").textContent);
  const { sections } = report;

  const entries = [
    { id: "overview", title: "Overview", content: R.overview(report) },
    { id: "robustness", title: "Robustness", of: sections.robustness, draw: R.robustness },
    { id: "sensitivity", title: "Inputs", of: sections.sensitivity, draw: R.sensitivity },
    { id: "regions", title: "Map", of: sections.regions, draw: R.regions },
    { id: "removal", title: "Removal", of: sections.removal, draw: R.removal },
    { id: "units", title: "Units", of: sections.units, draw: R.units },
    { id: "lipschitz", title: "Lipschitz", of: sections.lipschitz, draw: R.lipschitz },
    { id: "geometry", title: "Geometry", of: sections.geometry, draw: R.geometry },
    { id: "program", title: "On a board", of: sections.program, draw: R.program },
    { id: "layers", title: "Layers", of: sections.network, draw: R.layers },
  ].filter(({ of }) => of?.status !== "not asked")
    .map(({ draw, ...entry }) => ({ content: draw?.(report), ...entry }));

  const size = () => {
    const body = sections.network.body;
    return body ? `${R.plural(body.inputs.value, "input")} → ${R.plural(body.units.value, "unit")} → ` +
      R.plural(body.outputs.value, "output") : "";
  };
  const { list, panels, start } = R.tabs(entries);
  document.title = `${report.model.name} · relunorm report`;
  document.getElementById("page").replaceChildren(
    R.el("header", {},
      R.el("div", { class: "top" }, R.el("h1", {}, R.short(report.model.name)), R.themeButton()),
      R.el("p", { class: "words" }, size(), report.data ? `, ${R.plural(report.data.rows, "row")} of data` : "")),
    list, R.el("main", {}, panels),
    R.el("footer", {}, R.el("p", {}, "Every number says what it is worth: ", R.kind("exact"), " up to ",
      "rounding, ", R.kind("bound"), " proved, ", R.kind("estimate"), " from the points looked at."),
    R.el("p", {}, `relunorm ${report.relunorm}. This page is one file and asks the network for nothing.`)));
  start();
})((window.relunormReport ??= {}));
