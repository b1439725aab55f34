// The cone diagram: the angle of (deviation, mean) of every unit's pre-activation, an arc a layer.
"use strict";
((R) => {
  const MOST = 8;

  R.cone = (body) => [
    R.figure("cone", (width) => draw(body, width)),
    R.el("div", {}, R.note("Each mark is a unit: its angle is that of mean against deviation of its pre-activation. ",
      `Below ${R.number(body.cone.dead_below, 3)} deviations a unit fires with a probability under `,
      `${R.number(body.cone.epsilon)} on Gaussian inputs (dead cone); above `,
      `${R.number(body.cone.linear_above, 3)} it is as rarely off (linear cone).`),
    body.layers.length > MOST && R.note(`The first ${MOST} of ${body.layers.length} layers.`),
    R.el("ul", { class: "keys stacked" }, body.layers.slice(0, MOST).map((layer, k) => R.el("li", {},
      R.svg("svg", { width: 14, height: 14, "aria-hidden": "true" },
        R.mark(k, 7, 7, 3.6, { class: `layer-${k % 5}` })), `layer ${layer.layer + 1}: ${told(body, layer)}`)))),
  ];

  const told = (body, layer) => {
    const at = (i) => layer.cone[i] ?? (layer.cone_sign[i] === "+" ? Infinity : -Infinity);
    const all = layer.cone.map((_, i) => at(i));
    const dead = all.filter((h) => h < body.cone.dead_below).length;
    const linear = all.filter((h) => h > body.cone.linear_above).length;
    return `${R.number(dead)} in the dead cone, ${R.number(linear)} in the linear cone`;
  };

  const draw = (body, width) => {
    const layers = body.layers.slice(0, MOST);
    const radius = Math.min(190, (width - 170));
    const cx = 70, cy = radius + 24;
    const total = width, height = 2 * radius + 48;
    const angle = (h) => Math.atan(h);
    const at = (a, r) => [cx + r * Math.cos(a), cy - r * Math.sin(a)];
    const wedge = (from, to) => {
      const [x1, y1] = at(from, radius), [x2, y2] = at(to, radius);
      return `M${cx},${cy}L${x1},${y1}A${radius},${radius} 0 0,0 ${x2},${y2}Z`;
    };
    const dead = angle(body.cone.dead_below), linear = angle(body.cone.linear_above);
    const ring = (k) => radius * (0.42 + (0.53 * (k + 1)) / layers.length);
    return R.svg("svg", { width: total, height, viewBox: `0 0 ${total} ${height}`, class: "plot",
      role: "img", "aria-label": "Cone diagram: dead units point down, linear units point up" },
    R.svg("path", { d: wedge(-Math.PI / 2, Math.PI / 2), class: "fan" }),
    R.svg("path", { d: wedge(-Math.PI / 2, dead), class: "dead-cone" }),
    R.svg("path", { d: wedge(linear, Math.PI / 2), class: "linear-cone" }),
    [-2, -1, 0, 1, 2].map((h) => {
      const [x, y] = at(angle(h), radius), [tx, ty] = at(angle(h), radius + 8);
      return [R.svg("line", { x1: cx, y1: cy, x2: x, y2: y, class: "grid" }),
        R.svg("text", { x: tx, y: ty, dy: "0.32em" }, h === 0 ? "0 deviations" : R.number(h))];
    }),
    layers.map((layer, k) => {
      const r = ring(k);
      const [x1, y1] = at(-Math.PI / 2, r), [x2, y2] = at(Math.PI / 2, r);
      return R.svg("g", {},
        R.svg("path", { d: `M${x1},${y1}A${r},${r} 0 0,0 ${x2},${y2}`, class: "arc" }),
        R.svg("text", { x: cx - 8, y: cy - r, "text-anchor": "end", dy: "0.32em" }, `layer ${layer.layer + 1}`),
        layer.cone.slice(0, 400).map((h, i) => {
          const a = h === null ? (layer.cone_sign[i] === "+" ? 1 : -1) * (Math.PI / 2) : angle(h);
          return R.mark(k, ...at(a, r), 3.4, { class: `layer-${k % 5} seen` });
        }));
    }),
    R.svg("text", { x: cx + 10, y: height - 6, class: "label" }, "dead cone"),
    R.svg("text", { x: cx + 10, y: 14, class: "label" }, "linear cone"));
  };

  // The deviation of the targets on a logarithmic axis, with the risk at every scale.
  R.target = (target) => [
    R.el("p", {}, target.name ? `${target.name}: deviation ` : "Deviation ", R.quantity(target.gamma),
      ", mean ", R.quantity(target.delta), ". Risk that units die at this scale: ",
      R.el("strong", {}, target.risk), "."),
    R.figure("target", (width) => scale(target, width)),
    target.sentences.map((text) => R.el("p", {}, text)),
  ];

  const scale = (target, width) => {
    const rows = target.scale.rows;
    if (!rows.length) return R.note("The target is constant: there is no scale to show.");
    const left = 22, right = width - 22, top = 34, tall = 26, height = 92;
    const lo = rows[0].gamma, hi = rows[rows.length - 1].gamma;
    const x = R.log(lo, hi, left, right);
    const half = Math.sqrt(rows[1].gamma / rows[0].gamma);
    const zones = [];
    for (const { gamma, risk } of rows) {
      const from = Math.max(lo, gamma / half), to = Math.min(hi, gamma * half);
      const last = zones[zones.length - 1];
      if (last?.risk === risk) last.to = to;
      else zones.push({ risk, from, to });
    }
    const mark = x(Math.max(lo, Math.min(hi, target.gamma.value)));
    // The middle of a zone, moved aside where the pointer stands on it.
    const clear = (middle, from, to) => {
      if (Math.abs(middle - mark) > 32) return middle;
      return mark - from > to - mark ? Math.max(from + 28, mark - 34) : Math.min(to - 28, mark + 34);
    };
    return R.svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, class: "plot", role: "img",
      "aria-label": `Deviation of the targets: ${R.number(target.gamma.value)}, risk ${target.risk}` },
    zones.map(({ risk, from, to }) => [
      R.svg("rect", { x: x(from), y: top, width: Math.max(0, x(to) - x(from) - 1), height: tall,
        class: `risk ${risk}` }),
      x(to) - x(from) > 54 && R.svg("text", { x: clear((x(from) + x(to)) / 2, x(from), x(to)),
        y: top + tall / 2, dy: "0.34em", "text-anchor": "middle", class: "on-risk" }, `${risk} risk`)]),
    R.logTicks(lo, hi, 7).map((v) =>
      R.svg("text", { x: x(v), y: top + tall + 18, "text-anchor": "middle" }, R.number(v))),
    R.svg("path", { d: `M${mark},${top + tall + 3}V${top - 2}l-6,-9h12l-6,9`, class: "pointer" }),
    R.svg("text", { x: mark, y: top - 16, "text-anchor": mark > width / 2 ? "end" : "start",
      class: "name" }, `deviation ${R.number(target.gamma.value, 3)}`));
  };
})((window.relunormReport ??= {}));
