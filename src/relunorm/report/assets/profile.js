// Outputs along a line: exact pieces, knots by layer, and the slope under the pointer.
"use strict";
((R) => {
  const DASHES = ["", "7 4", "2 4", "9 3 2 3"];

  R.profile = (body, report) => {
    const { at, values, layer, every } = body.knots;
    const state = { piece: -1 };
    const readout = R.el("p", { class: "readout-line", role: "status" },
      R.el("span", { class: "hint" }, "Point at the line, or use the arrow keys, to read a piece."));
    const tell = () => {
      const k = state.piece;
      if (k < 0) return;
      const slopes = values[k].map((v, o) => (values[k + 1][o] - v) / (at[k + 1] - at[k]));
      readout.replaceChildren(`Piece ${k + 1} of ${R.number(at.length - 1)}, from ` +
        `${R.number(at[k])} to ${R.number(at[k + 1])}: slope ${slopes.map((s) => R.number(s)).join(", ")} `,
      R.kind("exact"));
    };
    const picture = R.figure("profile", (width) => draw(body, report.inputs?.[0] ?? "x0", state, width, (piece) => {
      state.piece = piece;
      tell();
      picture.redraw();
    }));
    return [
      R.el("p", {}, body.one_input ? "On the domain: " : `The line runs ${body.words}: `,
        R.quantity(body.pieces), body.pieces.value === 1 ? " piece, " : " pieces, ",
        R.quantity(body.distinct), body.distinct.value === 1 ? " pattern. " : " different patterns. ",
        body.start.values && !body.one_input && R.el("span", { class: "quiet" },
          `From ${R.vector(body.start.values, 4)} to ${R.vector(body.end.values, 4)}.`)),
      every > 1 && R.note(`Drawn through every ${every}th knot.`),
      picture, readout, legend(body),
    ];
    function legend() {
      const depths = [...new Set(layer)].filter((k) => k > 0).sort((a, b) => a - b).slice(0, 5);
      return R.el("ul", { class: "keys" },
        depths.map((k) => R.el("li", {},
          R.svg("svg", { width: 14, height: 14, "aria-hidden": "true" },
            R.mark(k - 1, 7, 7, 3.6, { class: `layer-${(k - 1) % 5}` })), `knots of layer ${k}`)),
        values[0].length > 1 && values[0].map((_, o) => R.el("li", {},
          R.svg("svg", { width: 26, height: 14, "aria-hidden": "true" },
            R.svg("line", { x1: 1, x2: 25, y1: 7, y2: 7, class: `curve curve-${o}`,
              "stroke-dasharray": DASHES[o] })), R.outputName(report, o))));
    }
  };

  const draw = ({ knots, one_input: oneInput }, inputName, state, width, choose) => {
    const { at, values, layer } = knots;
    const finite = values.flat().filter((v) => v !== null);
    let lo = Math.min(...finite), hi = Math.max(...finite);
    if (!(hi > lo)) { lo -= 1; hi += 1; }
    const pad = 0.06 * (hi - lo);
    const height = Math.max(220, Math.min(320, width * 0.5));
    const box = { left: 58, right: width - 12, top: 30, bottom: height - 46 };
    const x = R.linear(at[0], at[at.length - 1], box.left, box.right);
    const y = R.linear(lo - pad, hi + pad, box.bottom, box.top);
    const path = (o) => at.map((t, k) => `${k ? "L" : "M"}${x(t).toFixed(2)},${y(values[k][o] ?? 0).toFixed(2)}`)
      .join("");
    const piece = state.piece;
    const dense = at.length > 400;
    const node = R.svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, tabindex: 0,
      role: "img", class: "plot", "aria-label": `${at.length - 1} affine pieces along the line` },
    R.axes(box, x, y, { xTicks: R.ticks(at[0], at[at.length - 1], width < 480 ? 4 : 7),
      yTicks: R.ticks(lo - pad, hi + pad, 5), xLabel: oneInput ? inputName : "distance along the line",
      yLabel: values[0].length > 1 ? "outputs" : "output" }),
    piece >= 0 && R.svg("rect", { x: x(at[piece]), width: Math.max(1, x(at[piece + 1]) - x(at[piece])),
      y: box.top, height: box.bottom - box.top, class: "band" }),
    values[0].map((_, o) => R.svg("path", { d: path(o), class: `curve curve-${o}`, fill: "none",
      "stroke-dasharray": DASHES[o] })),
    !dense && at.map((t, k) => layer[k] > 0 && values[k].map((v) =>
      R.mark(layer[k] - 1, x(t), y(v ?? 0), 2.6, { class: `layer-${(layer[k] - 1) % 5}` }))));
    const last = at.length - 2;
    const pick = (event) => {
      const t = x.invert((event.clientX - node.getBoundingClientRect().left));
      let k = at.findIndex((v) => v > t) - 1;
      if (k < 0) k = t <= at[0] ? 0 : last;
      if (k !== state.piece) choose(Math.min(k, last));
    };
    node.addEventListener("pointermove", pick);
    node.addEventListener("pointerdown", pick);
    node.addEventListener("keydown", (event) => {
      const to = { ArrowRight: Math.min(piece + 1, last), ArrowLeft: Math.max(piece - 1, 0), Home: 0,
        End: last }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      const place = node.parentNode;
      choose(to);
      place.firstChild.focus();
    });
    return node;
  };
})((window.relunormReport ??= {}));
