// Classes of the target: what the outputs are called, and the colours and marks on the map.
"use strict";
((R) => {
  // The class an output speaks for; "" where outputs and classes do not match one to one.
  const classOf = (report, k) => {
    const classes = report.data?.classes;
    const outputs = report.sections.network.body?.outputs.value;
    return classes && classes.of === outputs && outputs > 1 ? classes.names[k] ?? "" : "";
  };

  R.outputName = (report, k) => {
    const name = classOf(report, k);
    return name ? `output ${k} · ${R.short(name)}` : `output ${k}`;
  };

  // "species: setosa 50, versicolor 50", for the head of the page.
  R.classesInWords = ({ target, classes }, most = 6) => {
    const listed = classes.names.slice(0, most)
      .map((name, k) => `${R.short(name)} ${R.number(classes.counts[k])}`);
    const more = classes.of > listed.length ? `, … ${R.number(classes.of)} classes in all` : "";
    return `${target ? `${R.short(target)}: ` : ""}${listed.join(", ")}${more}`;
  };

  // Fill and edge; an edge stands out on every colour of the map.
  const PAINTS = [["#14181c", "#ffffff"], ["#ffffff", "#14181c"], ["#e69f00", "#14181c"],
    ["#56b4e9", "#14181c"], ["#cc79a7", "#ffffff"]];
  // A class's mark: shape and colour go round together, and no two of the first 25 are alike.
  R.classMark = (kind, x, y, size) => {
    const [fill, stroke] = PAINTS[(kind + Math.floor(kind / PAINTS.length)) % PAINTS.length];
    return { d: R.markPath(kind, x, y, size), fill, stroke };
  };

  // Territories of classes: pale, so that marks and lines stand out on them.
  const TERRITORIES = ["#a9c7e8", "#f3c08f", "#a8d5b0", "#d9b3e0", "#e8dc8a", "#9fd6d6", "#efb0ae",
    "#c3c7cc", "#c9dd94", "#c8a98e"];
  R.territory = (k) => TERRITORIES[k % TERRITORIES.length];

  R.territoryLegend = (classes, most = 12) => R.el("ul", { class: "keys" },
    classes.names.slice(0, most).map((name, k) => R.el("li", {},
      R.svg("svg", { width: 14, height: 14, "aria-hidden": "true" },
        R.svg("rect", { x: 1, y: 1, width: 12, height: 12, rx: 2, fill: R.territory(k) })), R.short(name))),
    classes.of > most && R.el("li", {}, `… ${R.number(classes.of)} in all`));

  R.classLegend = (classes, most = 12) => R.el("ul", { class: "keys" },
    classes.names.slice(0, most).map((name, k) => R.el("li", {},
      R.svg("svg", { width: 14, height: 14, "aria-hidden": "true" },
        R.svg("path", R.classMark(k, 7, 7, 4))), R.short(name))),
    classes.of > most && R.el("li", {}, `… ${R.number(classes.of)} in all`));
})((window.relunormReport ??= {}));
