// Colour scales that keep their order in grey and for colour-blind readers.
"use strict";
((R) => {
  const SEQUENTIAL = ["#f4efe4", "#d9dcc0", "#a5c8b1", "#62aca9", "#2f879b", "#1e5f86", "#203a66"];
  const DIVERGING = ["#1f4e8c", "#5b8dc4", "#a9c7e3", "#f4f1ea", "#f0bf91", "#d98343", "#99491a"];
  const parse = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));

  const ramp = (stops) => {
    const colors = stops.map(parse);
    return (t) => {
      const at = Math.max(0, Math.min(1, Number.isFinite(t) ? t : 0.5)) * (colors.length - 1);
      const k = Math.min(Math.floor(at), colors.length - 2);
      const mix = colors[k].map((v, c) => Math.round(v + (at - k) * (colors[k + 1][c] - v)));
      return `rgb(${mix.join(",")})`;
    };
  };
  R.sequential = ramp(SEQUENTIAL);
  R.diverging = ramp(DIVERGING);

  // A colour for numbers from lo to hi: around zero where they have both signs.
  R.ramp = (lo, hi) => {
    if (lo < 0 && hi > 0) {
      const reach = Math.max(-lo, hi);
      const color = (v) => R.diverging(0.5 + v / (2 * reach));
      return Object.assign(color, { lo: -reach, hi: reach, at: R.diverging });
    }
    const color = (v) => R.sequential((v - lo) / (hi - lo || 1));
    return Object.assign(color, { lo, hi, at: R.sequential });
  };

  // A pale colour from a text, the same text always the same.
  R.hashed = (text) => {
    let h = 2166136261;
    for (let k = 0; k < text.length; k++) h = Math.imul(h ^ text.charCodeAt(k), 16777619);
    h ^= h >>> 15;
    return `hsl(${(h >>> 0) % 360} ${38 + ((h >>> 9) % 24)}% ${62 + ((h >>> 14) % 24)}%)`;
  };

  // A bar that explains a scale.
  R.legend = (color, label) => {
    const stops = Array.from({ length: 13 }, (_, k) => k / 12);
    const id = `ramp-${Math.random().toString(36).slice(2)}`;
    return R.el("div", { class: "legend" },
      R.el("span", {}, R.number(color.lo, 3)),
      R.svg("svg", { width: 120, height: 12, role: "img", "aria-label": `colours of ${label}` },
        R.svg("linearGradient", { id },
          stops.map((t) => R.svg("stop", { offset: t, "stop-color": color.at(t) }))),
        R.svg("rect", { width: 120, height: 12, rx: 3, fill: `url(#${id})` })),
      R.el("span", {}, R.number(color.hi, 3)), R.el("span", { class: "quiet" }, label));
  };
})((window.relunormReport ??= {}));
