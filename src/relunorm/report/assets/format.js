// Numbers as people read them, each with the word that says what it is worth.
"use strict";
((R) => {
  const MEANING = {
    exact: "exact, up to the rounding of float64",
    bound: "a proved bound: the truth lies on one side of it",
    estimate: "an estimate, from the points that were looked at",
  };
  const SIGN = { exact: "= ", lower: "≥ ", upper: "≤ ", estimate: "≈ " };

  // A number with so many significant digits; null stands for what float64 cannot hold.
  // A bound of a side is rounded outward, so that what is shown still holds.
  R.number = (given, digits = 5, side = "") => {
    if (given === null || given === undefined) return "∞";
    if (Number.isInteger(given) && Math.abs(given) < 1e9) return tidy(given.toLocaleString("en-US"));
    const value = side ? outward(given, digits, side) : given, size = Math.abs(value);
    if (size >= 1e6 || size < 1e-4) return tidy(value.toExponential(digits - 1));
    const short = Number(value.toPrecision(digits));
    return tidy(short.toLocaleString("en-US", { maximumFractionDigits: 20 }));
  };
  const outward = (value, digits, side) => {
    const short = Number(value.toPrecision(digits));
    if (!value || (side === "upper" ? short >= value : short <= value)) return short;
    const step = 10 ** (Math.floor(Math.log10(Math.abs(short))) + 1 - digits);
    return Number((short + (side === "upper" ? step : -step)).toPrecision(digits));
  };
  const tidy = (text) => text.replaceAll("-", "−").replace(/\.?0*e\+?/, "e");

  // A vector or a matrix row, shortened in the middle.
  R.vector = (values, digits = 5, most = 8) => {
    if (values === null) return "(not printed: too many inputs)";
    const shown = values.slice(0, most).map((v) => R.number(v, digits)).join(", ");
    return `(${shown}${values.length > most ? `, … ${values.length} in all` : ""})`;
  };

  // The badge: exact, bound or estimate, in words.
  R.kind = (kind, side) =>
    R.el("span", { class: `kind ${kind}`, title: MEANING[kind] },
      R.el("span", { "aria-hidden": "true" }, SIGN[side ?? kind] ?? ""),
      side ? `${side} bound` : kind);

  // A quantity of the document: {value, kind, note}.
  R.quantity = (q, digits) =>
    R.el("span", { class: "quantity" },
      R.el("span", { class: "figure" }, R.number(q.value, digits, q.side)), " ", R.kind(q.kind, q.side));

  R.percent = (share) => `${R.number(100 * share, 3)} %`;
  R.plural = (count, word) => `${R.number(count)} ${word}${count === 1 ? "" : "s"}`;
  // The number of units; of a convolutional network also with every channel counted once.
  R.unitWords = ({ units, channels }) => `${units.value === 1 ? "unit" : "units"}` +
    (channels.value === units.value ? "" : ` (${R.number(channels.value)} with a channel counted once)`);
  // A name from the model file, no longer than a line.
  R.short = (name) => (name.length > 60 ? `${name.slice(0, 40)}…${name.slice(-16)}` : name);
})((window.relunormReport ??= {}));
