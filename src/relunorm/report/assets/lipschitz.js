// The interval around the Lipschitz constant, and every bound as a bar.
"use strict";
((R) => {
  R.lipschitz = (report) => R.section(report.sections.lipschitz, (body) => [
    R.el("p", { class: "lead" }, body.upper.value === null
      ? `The network changes somewhere by ${R.number(body.lower.value, 6, "lower")} times the change of its ` +
        "input, and no bound within float64 was found."
      : body.exact
      ? `The network changes by at most ${R.number(body.upper.value, 8)} times the change of its input.`
      : `The network changes by at most ${R.number(body.upper.value, 6, "upper")} times the change of its ` +
        `input, and somewhere by ${R.number(body.lower.value, 6, "lower")} times.`),
    R.el("p", {}, `l${body.norm} norm, over ${body.domain}: `,
      body.exact ? [R.quantity(body.upper, 10), ` by ${body.method}.`]
        : [R.quantity(body.lower, 8), " to ", R.quantity(body.upper, 8), ", upper end by ",
          `${body.method}.`]),
    body.witness.values && R.note(`The gradient is that steep at ${R.vector(body.witness.values, 8)}.`),
    R.el("h3", {}, "Every bound ", R.kind("bound")),
    R.note("On a logarithmic scale; the shaded band is the interval that is left."),
    R.figure("lipschitz", (width) => bars(body, width)),
    R.table(["method", "side", ">value", ">seconds", "note"],
      body.bounds.rows.map((r) => [r.method, r.side, r.value === null ? "–" : R.number(r.value, 9, r.side),
        R.number(r.seconds, 2), r.note]), "Bounds on the Lipschitz constant"),
  ]);

  // The best bound of every method and side.
  const best = (rows) => {
    const found = new Map();
    for (const row of rows) {
      const key = `${row.method} ${row.side}`, known = found.get(key);
      const better = !known || (row.side === "upper" ? row.value < known.value : row.value > known.value);
      if (better) found.set(key, row);
    }
    return [...found.values()];
  };

  const bars = (body, width) => {
    const rows = best(body.bounds.rows.filter((r) => r.value !== null && r.value > 0));
    if (!rows.length) return R.note("No finite bound above zero was found.");
    const values = rows.map((r) => r.value);
    const lo = Math.max(Math.min(...values) / 2, Number.MIN_VALUE);
    const hi = Math.min(Math.max(...values) * 1.15, Number.MAX_VALUE);
    const step = 40, top = 26, right = width - 12, left = 8;
    const height = top + rows.length * step + 34;
    const bottom = top + rows.length * step;
    const x = R.log(lo, hi, left, right);
    const ticks = R.logTicks(lo, hi, width < 480 ? 4 : 8);
    return R.svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, class: "plot",
      role: "img", "aria-label": "Bounds on the Lipschitz constant as bars on a logarithmic scale" },
    ticks.map((v) => [
      R.svg("line", { x1: x(v), x2: x(v), y1: top - 6, y2: bottom, class: "grid" }),
      R.svg("text", { x: x(v), y: bottom + 18, "text-anchor": "middle" }, R.number(v))]),
    interval(body, x, top, bottom),
    rows.map((r, k) => {
      const y = top + k * step;
      return R.svg("g", {},
        R.svg("text", { x: left, y: y + 12, class: "name" }, r.method,
          R.svg("tspan", { class: "number" }, `   ${r.side === "upper" ? "≤" : "≥"} ${R.number(r.value, 6, r.side)}`)),
        R.svg("rect", { x: left, y: y + 18, width: Math.max(2, x(r.value) - left), height: 11, rx: 2,
          class: `bar ${r.side}` }),
        R.svg("line", { x1: x(r.value), x2: x(r.value), y1: y + 15, y2: y + 32, class: `end ${r.side}` }));
    }));
  };

  const interval = ({ lower, upper }, x, top, bottom) => {
    if (!(lower.value > 0) || upper.value === null) return null;
    const from = x(lower.value), to = x(upper.value);
    return R.svg("rect", { x: from - 1, y: top - 6, width: Math.max(2, to - from + 2),
      height: bottom - top + 6, class: "band" });
  };
})((window.relunormReport ??= {}));
