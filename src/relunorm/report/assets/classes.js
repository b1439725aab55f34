// Classes of the target: what the outputs are called, and the marks of the data on the map.
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

  const ORDER = {
    given: "in the order given",
    model: "in the order the classifier keeps",
    columns: "in the order of the target's columns",
    numbers: "numbered as the outputs",
    data: "in the order in which most rows come out right (a guess: none was given)",
    sorted: "in sorted order (a guess: none was given)",
  };

  const mismatch = (report, classes) => {
    const outputs = report.sections.network.body.outputs.value;
    const count = classes.of === 1 ? "1 class" : `${R.number(classes.of)} classes`;
    return R.el("p", {}, `The target has ${count} and the network ${R.plural(outputs, "output")}, so ` +
      "how many rows it puts into the right class is not counted: that takes several classes with one " +
      "output for each, or two classes and one output.");
  };

  // How often the outputs name the right class, and what that rests on.
  R.classified = (report, found) => {
    const classes = report.data?.classes;
    if (!found) return classes ? mismatch(report, classes) : null;
    const rule = found.rule === "largest" ? "The largest output names"
      : `The sign of the output (above 0: ${R.short(classes.names[1])}) names`;
    return R.el("p", {}, `${rule} the right class on ${R.number(found.right)} of ` +
      `${R.plural(found.rows, "row")}, with the classes ${ORDER[classes.from]}. `, R.kind(found.kind));
  };

  // Fill and edge; an edge stands out on every colour of the map.
  const PAINTS = [["#14181c", "#ffffff"], ["#ffffff", "#14181c"], ["#e69f00", "#14181c"],
    ["#56b4e9", "#14181c"], ["#cc79a7", "#ffffff"]];
  // A class's mark: shape and colour go round together, and no two of the first 25 are alike.
  R.classMark = (kind, x, y, size) => {
    const [fill, stroke] = PAINTS[(kind + Math.floor(kind / PAINTS.length)) % PAINTS.length];
    return { d: R.markPath(kind, x, y, size), fill, stroke };
  };

  R.classLegend = (classes, most = 12) => R.el("ul", { class: "keys" },
    classes.names.slice(0, most).map((name, k) => R.el("li", {},
      R.svg("svg", { width: 14, height: 14, "aria-hidden": "true" },
        R.svg("path", R.classMark(k, 7, 7, 4))), R.short(name))),
    classes.of > most && R.el("li", {}, `… ${R.number(classes.of)} in all`));
})((window.relunormReport ??= {}));
