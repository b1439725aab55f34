// Unit health: a map of every layer, shape and letter before colour.
"use strict";
((R) => {
  const CELL = 22;

  R.units = (report) => R.section(report.sections.units, (body) => [
    R.el("p", { class: "lead" }, `${R.number(body.dead.value)} of ${R.plural(body.units.value, "unit")} ` +
      `${body.channels ? "(a channel counts once) " : ""}` +
      `${body.dead.value === 1 ? "is" : "are"} never active on ${body.on}. `, R.kind(body.dead.kind)),
    legend(body),
    body.layers.map((layer, k) => map(body, layer, k)),
    R.el("h3", {}, "Between dead and linear ", R.kind(body.dead.kind)),
    R.el("div", { class: "beside" }, R.cone(body)),
    R.el("h3", {}, "Target scale ", body.target && R.kind("estimate")),
    body.target ? R.target(body.target) : R.note(report.data?.classes
      ? "The target holds classes, which have no scale." : "No target was given."),
    R.el("h3", {}, "Counts by layer"),
    table(body),
  ]);

  const words = (body) => Object.entries(body.letters);
  const style = (word) => word.replaceAll(" ", "-");

  const legend = (body) => R.el("ul", { class: "keys" }, words(body).map(([word, letter]) =>
    R.el("li", {}, R.svg("svg", { width: CELL, height: CELL, "aria-hidden": "true" },
      cell(0, 0, word, letter, word === "live" ? 0.5 : 0)), word)));

  // A cell: its level is the share of inputs the unit is active on, its letter the finding.
  const cell = (x, y, word, letter, share) => R.svg("g", { class: `unit ${style(word)}` },
    R.svg("rect", { x: x + 1.5, y: y + 1.5, width: CELL - 3, height: CELL - 3, rx: 3, class: "shell" }),
    share > 0 && R.svg("rect", { x: x + 1.5, y: y + 1.5 + (CELL - 3) * (1 - share), width: CELL - 3,
      height: (CELL - 3) * share, rx: 2, class: "level" }),
    word !== "live" && R.svg("text", { x: x + CELL / 2, y: y + CELL / 2, "text-anchor": "middle",
      dy: "0.36em" }, letter));

  const map = (body, layer, index) => {
    const byLetter = Object.fromEntries(words(body).map(([word, letter]) => [letter, word]));
    const state = { unit: -1 };
    const readout = R.el("p", { class: "readout-line", role: "status" },
      summary(layer));
    const tell = (unit) => {
      state.unit = unit;
      const cone = layer.cone[unit];
      readout.textContent = `Unit ${unit}: ${byLetter[layer.status[unit]]}, active on ` +
        `${R.percent(layer.active_share[unit])}, mean over deviation ` +
        `${cone === null ? `${layer.cone_sign[unit] === "+" ? "+" : "−"}∞` : R.number(cone, 3)}`;
      picture.redraw();
    };
    const picture = R.figure("units", (width) => grid(layer, byLetter, state, width, tell, index));
    return R.el("div", { class: "layer-map" },
      R.el("h4", {}, `Layer ${layer.layer + 1}`, layer.name && ` · ${R.short(layer.name)}`,
        R.el("span", { class: "quiet" }, ` ${R.plural(layer.width, "unit")}, ${layer.activation}`)),
      picture, readout,
      layer.listed < layer.width && R.note(`The first ${R.number(layer.listed)} are drawn.`));
  };

  const summary = (layer) => Object.entries(layer.counts).filter(([, n]) => n)
    .map(([word, n]) => `${R.number(n)} ${word}`).join(", ");

  const grid = (layer, byLetter, state, width, tell, index) => {
    const columns = Math.max(1, Math.min(layer.listed, Math.floor(width / CELL), 32));
    const rows = Math.ceil(layer.listed / columns);
    const spot = (unit) => [(unit % columns) * CELL, Math.floor(unit / columns) * CELL];
    const node = R.svg("svg", { width: columns * CELL + 2, height: rows * CELL + 2, tabindex: 0, role: "img",
      class: "unit-map", "aria-label": `Units of layer ${layer.layer + 1}: ${summary(layer)}` },
    Array.from({ length: layer.listed }, (_, unit) =>
      cell(...spot(unit), byLetter[layer.status[unit]], layer.status[unit], layer.active_share[unit])),
    state.unit >= 0 && R.svg("rect", { x: spot(state.unit)[0] + 0.5, y: spot(state.unit)[1] + 0.5,
      width: CELL - 1, height: CELL - 1, rx: 4, class: "chosen" }));
    const point = (event) => {
      const box = node.getBoundingClientRect();
      const unit = Math.floor((event.clientY - box.top) / CELL) * columns +
        Math.floor((event.clientX - box.left) / CELL);
      if (unit >= 0 && unit < layer.listed && unit !== state.unit) tell(unit);
    };
    node.addEventListener("pointermove", point);
    node.addEventListener("pointerdown", point);
    node.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
      if (!step) return;
      event.preventDefault();
      const place = node.parentNode;
      tell(Math.max(0, Math.min(layer.listed - 1, (state.unit < 0 ? -step : state.unit) + step)));
      place.firstChild.focus();
    });
    return node;
  };

  const table = (body) => R.table(
    ["layer", ">units", ...words(body).map(([word]) => `>${word}`), ">proved dead", ">proved on"],
    body.layers.map((layer) => [
      `${layer.layer + 1}${layer.name ? ` ${R.short(layer.name)}` : ""}`, R.number(layer.width),
      ...words(body).map(([word]) => R.number(layer.counts[word])),
      layer.proved.dead === null ? "–" : R.number(layer.proved.dead),
      layer.proved.on === null ? "–" : R.number(layer.proved.on)]),
    "Findings by layer");
})((window.relunormReport ??= {}));
