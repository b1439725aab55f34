// How far inputs can move before the class changes.
"use strict";
((R) => {
  R.robustness = (report) => R.section(report.sections.robustness, (body) => {
    const names = report.data.classes.names;
    return [
      R.el("p", { class: "lead" }, lead(body)),
      body.scales_differ && R.note("The inputs have very different scales, so distances are in units of each input's ",
        "own spread: its standard deviation in the data."),
      R.el("h3", {}, "Accuracy against how far inputs move ", R.kind(body.curve.kind)),
      R.figure("robustness", (width) => curve(body, Math.min(width, 720))),
      R.el("ul", { class: "keys" },
        R.el("li", {}, R.svg("svg", { width: 26, height: 14, "aria-hidden": "true" },
          R.svg("line", { x1: 1, x2: 25, y1: 7, y2: 7, class: "curve curve-0" })), "certainly right (proved)"),
        R.el("li", {}, R.svg("svg", { width: 26, height: 14, "aria-hidden": "true" },
          R.svg("line", { x1: 1, x2: 25, y1: 7, y2: 7, class: "curve curve-1", "stroke-dasharray": "7 4" })),
        "possibly right (not attacked)")),
      body.rows.value < body.rows.of &&
        R.note(`On ${R.number(body.rows.value)} of ${R.plural(body.rows.of, "row")}, chosen at random: ` +
          "a sample, so at 0 it need not show the accuracy on all rows.",
          body.nearest.value ? ` The weakest were looked for among ${R.number(body.nearest.value)} more, ` +
            "whose class changes nearest by." : ""),
      R.el("h3", {}, "The weakest rows ", R.kind("bound")),
      R.table([">row", "class", "answered right", ">safe up to", ">attacked at"], body.weakest.rows.map((r) => [
        R.number(r.row), R.short(names[r.label] ?? String(r.label)), r.correct ? "yes" : "no",
        R.number(r.safe, 3, "lower"), r.attacked === null ? "not found" : R.number(r.attacked, 3, "upper")]),
      "Rows with the smallest radii"),
      R.note("Safe: no input within that distance (the largest change of any input) has another class, proved. ",
        "Attacked: one with another class was found there."),
    ];
  });

  const lead = ({ rows, nearest, certified, median, scales_differ: scaled }) => {
    if (!certified.value) return `No row could be certified in the time given (${R.plural(rows.value + nearest.value, "row")} tried).`;
    if (!median.value) {
      return `${R.number(certified.value)} of the ${R.plural(rows.value, "row")} looked at ` +
        "could be certified: answered right, and the same for every input nearby.";
    }
    const few = rows.value < Math.min(10, rows.of) ?
      `Only ${R.number(rows.value)} of ${R.plural(rows.of, "row")} ${rows.value === 1 ? "was" : "were"} looked at. ` : "";
    const half = rows.value === 1 ? "The one row looked at is answered right and stays so " :
      `Half of the ${R.plural(rows.value, "row")} looked at are answered right and stay so `;
    return [few + half +
      `if every input moves by up to ${R.number(median.value, 3, "lower")}${scaled ? " of its spread" : ""}. `,
    R.kind(median.kind)];
  };

  const curve = ({ curve: { rows }, scales_differ: scaled }, width) => {
    const height = 260;
    const box = { left: 48, right: width - 14, top: 20, bottom: height - 46 };
    const top = rows[rows.length - 1][0] || 1;
    const x = R.linear(0, top, box.left, box.right);
    const y = R.linear(0, 100, box.bottom, box.top);
    // Steps: what is proved at a radius holds for smaller ones, what is possible at it for larger ones.
    const across = (r) => `H${x(r[0]).toFixed(1)}`;
    const down = (r, k) => `V${y(100 * r[k]).toFixed(1)}`;
    const path = (k) => `M${x(0).toFixed(1)},${y(100 * rows[0][k]).toFixed(1)}` +
      rows.slice(1).map((r) => (k === 1 ? down(r, k) + across(r) : across(r) + down(r, k))).join("");
    return R.svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, class: "plot", role: "img",
      "aria-label": "Certified and possible accuracy against the radius" },
    R.axes(box, x, y, { xTicks: R.ticks(0, top, width < 480 ? 4 : 6), yTicks: [0, 25, 50, 75, 100],
      xLabel: `every input moves by up to${scaled ? " (in spreads)" : ""}`, yLabel: "", yText: (v) => `${v} %` }),
    R.svg("path", { d: path(2), class: "curve curve-1", fill: "none", "stroke-dasharray": "7 4" }),
    R.svg("path", { d: path(1), class: "curve curve-0", fill: "none" }));
  };
})((window.relunormReport ??= {}));
