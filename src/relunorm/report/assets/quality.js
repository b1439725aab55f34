// How well the network does: the answer first, then where it is wrong and where it is unsure.
"use strict";
((R) => {
  // The headline of the page.
  R.answer = (report) => {
    const { body } = report.sections.quality;
    if (!body) return noAnswer(report);
    return { classes: classAnswer, labels: labelAnswer, numbers: numberAnswer }[body.type](report, body);
  };

  const headline = (figure, text, ...notes) => R.el("div", { class: "answer card" },
    R.el("p", { class: "huge" }, figure), R.el("p", {}, text), notes);

  const classAnswer = (report, body) => {
    const { right, rows, kind } = body.accuracy;
    const { classes } = report.data;
    const sure = !["data", "sorted"].includes(classes.from); // else the order is a guess
    const rule = body.rule === "largest" ? "the largest output names the class"
      : `an output above 0 means ${R.short(classes.names[1])}`;
    return headline(R.percent(right / rows),
      [`of the rows get the right class: ${R.number(right)} of ${R.plural(rows, "row")}. `,
        R.kind(sure ? kind : "estimate")],
      !sure && R.note(`This assumes that the outputs stand for the classes in this order: ` +
        `${classes.names.slice(0, 6).map(R.short).join(", ")}${classes.of > 6 ? ", …" : ""} (${rule}). ` +
        "Say the order with --classes to be sure."),
      fairness(body, classes.names), toDo(report));
  };

  // Beside the accuracy, where it flatters: what always answering one class gives, and who is missed.
  const fairness = ({ accuracy: { right, rows }, baseline, recall }, names) => {
    const [worst] = recall.rows;
    const close = rows > right && 4 * (right - baseline.right) < rows - baseline.right;
    const missed = 2 * worst.right < worst.rows;
    if (!close && !missed) return null;
    const always = `always answering ${name(names, baseline.label)}`, share = R.percent(baseline.right / rows);
    return R.el("p", { class: "baseline" }, right > baseline.right
      ? `${always.replace("a", "A")} would be right on ${share}. ` : `No better than ${always}: ${share}. `,
    `Of class ${name(names, worst.label)}, ${R.number(worst.right)} of ${R.plural(worst.rows, "row")} ` +
      `${worst.right === 1 ? "is" : "are"} found (${R.percent(worst.right / worst.rows)}); the mean of this share ` +
      `over the classes (balanced accuracy) is ${R.percent(recall.balanced)}.`);
  };

  const labelAnswer = (report, { accuracy }) => headline(R.percent(accuracy.right / accuracy.rows),
    [`of the rows get all their labels right: ${R.number(accuracy.right)} of ` +
      `${R.plural(accuracy.rows, "row")}. `, R.kind(accuracy.kind)], toDo(report));

  const toDo = (report) => {
    const count = report.advice.filter((item) => item.topic !== "fine").length;
    return count > 0 && R.el("p", {}, R.el("a", { href: "#todo" }, `What to do: ${R.plural(count, "suggestion")}`));
  };

  const numberAnswer = (report, body) => {
    const { rows, of, worst, kind } = body.errors;
    const one = rows.find((r) => r.output === worst);
    if (of > 1) return numbersAnswer(report, body, one);
    const target = report.data.target ? ` of ${R.short(report.data.target)}` : "";
    return headline(`± ${R.number(one.rms, 3)}`,
      [`is the root mean square error${target} on ${body.on}; `,
        `the target itself varies by ${R.number(one.spread, 3)}`,
        one.r2 === null ? ". " : ` (R² = ${R.number(one.r2, 3)}). `, R.kind(kind)],
      one.r2 < 0 && R.el("p", { class: "baseline" }, "Always answering the mean of the target would be better."),
      toDo(report));
  };

  // Of several outputs each has its own error, in its own units: the worst is told, and all are listed.
  const numbersAnswer = (report, body, one) => {
    const { rows, of, kind } = body.errors;
    const figure = one.r2 === null ? `± ${R.number(one.rms, 3)}` : `R² ${R.number(one.r2, 3)}`;
    return headline(figure, [
      one.r2 === null ? `is the root mean square error of ${target(one)}, on ${body.on}. `
        : `is that of ${target(one)}, the worst of ${R.number(of)} outputs, on ${body.on}. `, R.kind(kind)],
    R.table(["output", ">RMSE", ">target varies by", ">R²"], rows.map((r) =>
      [target(r), R.number(r.rms, 3), R.number(r.spread, 3), r.r2 === null ? "–" : R.number(r.r2, 3)]),
    "Errors by output"),
    rows.length < of && R.note(`The ${rows.length} worst of ${R.number(of)} outputs.`),
    rows.some((r) => r.r2 < 0) && R.el("p", { class: "baseline" },
      "Where R² is below 0, always answering the mean of the target would be better."),
    toDo(report));
  };
  const target = (row) => (row.name ? R.short(row.name) : `output ${row.output}`);

  const noAnswer = (report) => {
    const { network } = report.sections;
    if (!network.body) return null;
    const { units, depth, parameters } = network.body;
    return headline(R.number(units.value), [`${R.unitWords(network.body)} in ` +
      `${R.plural(depth.value, "hidden layer")}, ${R.plural(parameters.value, "parameter")}. `,
    R.kind("exact")], toDo(report));
  };

  // The rest of the section: confusion and margins, or errors.
  R.quality = (report) => {
    const entry = report.sections.quality;
    if (entry.status === "not asked") return null;
    return R.section(entry, (body) => ({ classes, labels, numbers }[body.type](report, body)));
  };

  const labels = (report, { accuracy, labels: { rows } }) => [
    R.el("h3", {}, "Right and wrong, label by label"),
    R.table([">output", ">right", ">rows that have it", ">rows said to have it", ">both"],
      rows.map((r, k) => [String(k), R.percent(r.right / accuracy.rows), R.number(r.have),
        R.number(r.said), R.number(r.both)]), "Right and wrong by label"),
    R.note("An output above 0, before the sigmoid, says that a row has the label."),
  ];

  const classes = (report, body) => {
    const names = report.data.classes.names;
    const table = body.confusion.rows;
    return [
      R.el("div", { class: "columns" },
        R.el("figure", {}, R.el("h3", {}, "Right and wrong, class by class"),
          table && R.figure("confusion", (width) => matrix(table, names, Math.min(width, 560))),
          mistakes(body, names), found(body.recall, names)),
        R.el("figure", {}, R.el("h3", {}, "How sure it is"),
          R.figure("margins", (width) => histogram(body.margins, width)),
          R.el("ul", { class: "keys" }, key("bar right", "right"), key("bar wrong", "wrong")),
          R.note(body.rule === "largest" ? "The margin is the largest output minus the next one."
            : "The margin is the size of the output."))),
      R.el("h3", {}, "Where it is least sure"),
      R.table([">row", "class", "answer", "next", ">margin"], body.unsure.rows.map((r) => [
        R.number(r.row), name(names, r.label), R.el("span", {}, name(names, r.answer), r.answer === r.label ? ""
          : R.el("span", { class: "wrong-mark" }, " ✗")), name(names, r.next),
        R.number(r.margin, 3)]), "Rows with the smallest margins"),
      R.note("✗ marks wrong answers; rows are counted from 0."),
    ];
  };
  const name = (names, k) => R.short(names[k] ?? `class ${k}`);
  const key = (style, text) => R.el("li", {}, R.svg("svg", { width: 14, height: 14, "aria-hidden": "true" },
    R.svg("rect", { x: 1, y: 1, width: 12, height: 12, rx: 2, class: style })), text);

  const found = ({ rows, balanced, kind }, names) => [
    R.el("h3", {}, "Found, class by class ", R.kind(kind)),
    R.table(["class", ">rows", ">found", ">recall", ">precision"], rows.map((r) =>
      [name(names, r.label), R.number(r.rows), R.number(r.right), R.percent(r.right / r.rows),
        r.said ? R.percent(r.right / r.said) : "–"]), "Which share of each class is found"),
    R.note("Recall: the share of the class that is found. Precision: the share of its answers that is right. ",
      `Balanced accuracy, the mean recall: ${R.percent(balanced)}.`),
  ];

  const mistakes = (body, names) => (body.confusion.mistakes.length
    ? R.table(["class", "taken for", ">rows"], body.confusion.mistakes.map((m) =>
      [name(names, m.label), name(names, m.answer), R.number(m.count)]), "The most frequent mistakes")
    : R.note("No row is wrong."));

  // A row for each class, a column for each answer; the diagonal is right. Colours by the share of the row.
  const matrix = (table, names, width) => {
    const count = table.length;
    const left = Math.min(128, width * 0.32), top = 30;
    const cell = Math.min(64, (width - left) / count);
    if (cell < 21) return R.note("Too many classes to draw here; the mistakes are listed below.");
    const label = (k, room) => {
      const text = names[k] ?? String(k);
      const most = Math.max(2, Math.floor(room / 7));
      return text.length > most ? `${text.slice(0, most - 1)}…` : text;
    };
    const height = top + cell * count + 24;
    const sums = table.map((row) => row.reduce((a, b) => a + b, 0));
    return R.svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, class: "plot", role: "img",
      "aria-label": `Confusion: ${table.map((row, i) => `${names[i]}: ${row.join(" ")}`).join("; ")}` },
    R.svg("text", { x: left + (cell * count) / 2, y: height - 6, "text-anchor": "middle" }, "answer"),
    R.svg("text", { transform: `translate(12 ${top + (cell * count) / 2}) rotate(-90)`, "text-anchor": "middle" },
      "true class"),
    table.map((row, i) => [
      R.svg("text", { x: left - 8, y: top + (i + 0.5) * cell, dy: "0.32em", "text-anchor": "end",
        class: "name" }, R.svg("title", {}, names[i]), label(i, left - 28)),
      R.svg("text", { x: left + (i + 0.5) * cell, y: top - 10, "text-anchor": "middle" },
        R.svg("title", {}, names[i]), label(i, cell)),
      row.map((n, j) => R.svg("g", {},
        R.svg("rect", { x: left + j * cell + 1, y: top + i * cell + 1, width: cell - 2, height: cell - 2,
          rx: 3, class: !n ? "cell" : i === j ? "cell right" : "cell wrong",
          "fill-opacity": n ? (0.15 + (0.85 * n) / sums[i]).toFixed(2) : null }),
        (n > 0 || i === j) && R.svg("text", { x: left + (j + 0.5) * cell, y: top + (i + 0.5) * cell, dy: "0.35em",
          "text-anchor": "middle", class: n > 0.62 * sums[i] ? "in-cell on-dark" : "in-cell" }, String(n)))),
    ]));
  };

  const histogram = ({ edges, right, wrong }, width) => {
    const height = 230;
    const box = { left: 44, right: width - 10, top: 26, bottom: height - 44 };
    const most = Math.max(...right.map((n, k) => n + wrong[k]), 1);
    const x = R.linear(edges[0], edges[edges.length - 1], box.left, box.right);
    const y = R.linear(0, most * 1.05, box.bottom, box.top);
    const bar = (k, from, to, style) => to > from && R.svg("rect", { x: x(edges[k]) + 0.5,
      width: Math.max(1, x(edges[k + 1]) - x(edges[k]) - 1), y: y(to), height: y(from) - y(to), class: style });
    return R.svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, class: "plot", role: "img",
      "aria-label": "Histogram of the margins of right and wrong answers" },
    R.axes(box, x, y, { xTicks: R.ticks(edges[0], edges[edges.length - 1], width < 480 ? 4 : 6),
      yTicks: R.ticks(0, most * 1.05, 4).filter(Number.isInteger), xLabel: "margin", yLabel: "rows" }),
    right.map((n, k) => [bar(k, 0, wrong[k], "bar wrong"), bar(k, wrong[k], wrong[k] + n, "bar right")]));
  };

  const numbers = (report, body) => {
    const { rows, of, worst } = body.errors;
    const state = { at: rows.findIndex((r) => r.output === worst) };
    const named = (k) => rows.find((r) => r.output === k) ?? { output: k };
    const axis = () => R.short(rows[state.at].name || (of > 1 ? `target ${rows[state.at].output}` : report.data.target || "target"));
    const picture = R.figure("scatter", (width) => scatter(body.scatter.rows[state.at], axis(), Math.min(width, 520)));
    return [
      R.el("div", { class: "columns" },
        R.el("figure", {}, R.el("h3", {}, "Prediction against target"),
          of > 1 && R.el("div", { class: "controls" }, R.el("label", {}, "Output",
            R.el("select", { id: "scatter-output", onchange: (event) => {
              state.at = Number(event.target.value);
              picture.redraw();
            } }, rows.map((r, k) => R.el("option", { value: k, selected: k === state.at }, target(r).replace(/^output /, "")))))),
          picture, R.note("On the line the prediction is right.")),
        R.el("div", {}, R.el("h3", {}, "Errors"), errors(rows, of))),
      R.el("h3", {}, of > 1 ? "The largest errors, each against what its target varies by" : "The largest errors"),
      R.table([">row", "output", ">target", ">prediction", ">error"], body.worst.rows.map((r) => [
        R.number(r.row), of > 1 ? target(named(r.output)) : "", R.number(r.actual),
        R.number(r.predicted), R.number(r.predicted - r.actual, 4)]), "Rows with the largest errors"),
      R.note("Rows are counted from 0."),
    ];
  };

  const MEASURES = [["root mean square", "rms"], ["mean absolute", "mean_abs"], ["largest", "largest"],
    ["mean (bias)", "bias"], ["R²", "r2"]];
  const errors = (rows, of) => {
    const value = (e, key) => (e[key] === null ? "–" : R.number(e[key], 4));
    return of === 1 ? R.table(["error", ">value"], MEASURES.map(([text, key]) => [text, value(rows[0], key)]), "Errors")
      : R.table(["output", ...MEASURES.slice(1, 4).map(([text]) => `>${text}`)],
        rows.map((e) => [target(e), ...MEASURES.slice(1, 4).map(([, key]) => value(e, key))]), "Other errors by output");
  };

  const scatter = ({ actual, predicted }, name, width) => {
    const all = [...actual, ...predicted].filter((v) => v !== null);
    let lo = Math.min(...all), hi = Math.max(...all);
    if (!(hi > lo)) { lo -= 1; hi += 1; }
    const pad = 0.04 * (hi - lo);
    const height = Math.min(width, 420);
    const box = { left: 58, right: width - 12, top: 26, bottom: height - 46 };
    const x = R.linear(lo - pad, hi + pad, box.left, box.right);
    const y = R.linear(lo - pad, hi + pad, box.bottom, box.top);
    const ticks = R.ticks(lo - pad, hi + pad, width < 420 ? 4 : 6);
    return R.svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, class: "plot", role: "img",
      "aria-label": "Scatter plot of predictions against targets" },
    R.axes(box, x, y, { xTicks: ticks, yTicks: ticks, xLabel: name,
      yLabel: "prediction" }),
    R.svg("line", { x1: x(lo), y1: y(lo), x2: x(hi), y2: y(hi), class: "tick" }),
    actual.map((v, k) => v !== null && predicted[k] !== null &&
      R.svg("circle", { cx: x(v), cy: y(predicted[k]), r: 3, class: "dot" })));
  };
})((window.relunormReport ??= {}));
