// Scales, ticks and axes.
"use strict";
((R) => {
  // About `count` round numbers from lo to hi.
  R.ticks = (lo, hi, count = 5) => {
    if (!(hi > lo)) return [lo];
    const rough = (hi - lo) / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough) ?? 10 * power;
    const found = [];
    for (let k = Math.ceil(lo / step - 1e-9); k * step <= hi + 1e-9 * step; k++) {
      found.push(Math.abs(k) < 1e-12 ? 0 : Number((k * step).toPrecision(12)));
    }
    return found;
  };

  R.logTicks = (lo, hi, count = 6) => {
    const first = Math.ceil(Math.log10(lo) - 1e-9);
    const last = Math.floor(Math.log10(hi) + 1e-9);
    const step = Math.max(1, Math.ceil((last - first + 1) / count));
    const found = [];
    for (let k = first; k <= last; k += step) found.push(10 ** k);
    return found;
  };

  R.linear = (lo, hi, from, to) => {
    const span = hi - lo || 1;
    const map = (v) => from + ((v - lo) / span) * (to - from);
    map.invert = (p) => lo + ((p - from) / (to - from)) * span;
    return map;
  };
  R.log = (lo, hi, from, to) => {
    const inner = R.linear(Math.log10(lo), Math.log10(hi), from, to);
    return (v) => inner(Math.log10(v));
  };

  // A frame for a plot: horizontal grid lines with labels, and labels below.
  R.axes = (box, x, y, { xTicks, yTicks, xLabel, yLabel, xText = R.number, yText = R.number }) => {
    const { left, right, top, bottom } = box;
    return R.svg("g", { class: "axes" },
      yTicks.map((v) => [
        R.svg("line", { x1: left, x2: right, y1: y(v), y2: y(v), class: "grid" }),
        R.svg("text", { x: left - 8, y: y(v), "text-anchor": "end", dy: "0.32em" }, yText(v)),
      ]),
      xTicks.map((v) => [
        R.svg("line", { x1: x(v), x2: x(v), y1: bottom, y2: bottom + 5, class: "tick" }),
        R.svg("text", { x: x(v), y: bottom + 18, "text-anchor": "middle" }, xText(v)),
      ]),
      R.svg("line", { x1: left, x2: right, y1: bottom, y2: bottom, class: "tick" }),
      R.svg("text", { x: (left + right) / 2, y: bottom + 36, "text-anchor": "middle",
        class: "label" }, xLabel),
      R.svg("text", { x: left, y: top - 12, class: "label" }, yLabel));
  };

  // Marks that differ in shape as well as in colour, for layers and outputs.
  R.markPath = (kind, x, y, s) => {
    const paths = [
      `M${x - s},${y}a${s},${s} 0 1,0 ${2 * s},0a${s},${s} 0 1,0 ${-2 * s},0`,
      `M${x - s},${y - s}h${2 * s}v${2 * s}h${-2 * s}z`,
      `M${x},${y - 1.3 * s}l${1.2 * s},${2.2 * s}h${-2.4 * s}z`,
      `M${x},${y - 1.4 * s}l${1.4 * s},${1.4 * s}l${-1.4 * s},${1.4 * s}l${-1.4 * s},${-1.4 * s}z`,
      `M${x},${y + 1.3 * s}l${1.2 * s},${-2.2 * s}h${-2.4 * s}z`,
    ];
    return paths[kind % paths.length];
  };
  R.mark = (kind, x, y, size, attributes) =>
    R.svg("path", { d: R.markPath(kind, x, y, size), ...attributes });
})((window.relunormReport ??= {}));
