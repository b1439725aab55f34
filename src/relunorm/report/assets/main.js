// Reads the document of the page and puts the page together.
"use strict";
((R) => {
  const report = JSON.parse(document.getElementById("report").textContent);
  const from = {
    given: "",
    data: " (the box around the data)",
    default: " (assumed: none was given)",
  };

  const explorer = () => {
    const place = R.el("div", { class: "explorer" });
    let mounted = false;
    return { place, shown: () => {
      if (mounted) return;
      mounted = true;
      window.relunormExplorer.mount(place);
    } };
  };

  const entries = [
    { id: "overview", title: "Overview", content: R.overview(report) },
    { id: "removal", title: "Removal", content: R.removal(report) },
    { id: "regions", title: "Regions", content: R.regions(report) },
    { id: "lipschitz", title: "Lipschitz", content: R.lipschitz(report) },
    { id: "units", title: "Units", content: R.units(report) },
    { id: "geometry", title: "Geometry", content: R.geometry(report) },
    { id: "program", title: "On a board", content: R.program(report) },
    { id: "next", title: "What to do", content: R.advice(report) },
  ];
  const { place, shown } = explorer();
  entries.push({ id: "explorer", title: "Explorer", content: place, shown });

  const data = report.data;
  const { list, panels, start } = R.tabs(entries);
  document.title = `${report.model.name} · relunorm report`;
  document.getElementById("page").replaceChildren(
    R.el("header", {},
      R.el("div", { class: "top" }, R.el("span", { class: "brand" }, "relunorm report"), R.themeButton()),
      R.el("h1", {}, R.short(report.model.name)),
      R.el("p", { class: "words" }, report.sections.network.body?.words ?? ""),
      R.el("dl", { class: "about" },
        R.el("div", {}, R.el("dt", {}, "Domain"), R.el("dd", {}, report.domain.words, from[report.domain.from])),
        R.el("div", {}, R.el("dt", {}, "Data"), R.el("dd", {}, data
          ? `${R.plural(data.rows, "row")}${data.used < data.rows ? `, ${R.number(data.used)} used` : ""}`
          : "none given")),
        data?.classes && R.el("div", {}, R.el("dt", {}, "Classes"), R.el("dd", {}, R.classesInWords(data))),
        R.el("div", {}, R.el("dt", {}, "Made"), R.el("dd", {},
          `${report.created.slice(0, 10)} in ${R.number(report.time.seconds, 3)} s`,
          report.time.interrupted ? ", interrupted" : "")))),
    list, R.el("main", {}, panels),
    R.el("footer", {}, R.el("p", {}, "Every number says what it is worth: ", R.kind("exact"), " up to ",
      "rounding, ", R.kind("bound"), " proved, ", R.kind("estimate"), " from the points looked at."),
    R.el("p", { class: "on-paper" }, "Not on paper: the Explorer, which is for playing with on a screen."),
    R.el("p", {}, `relunorm ${report.relunorm}. This page is one file and asks the network for nothing.`)));
  start();
})((window.relunormReport ??= {}));
