// The regions tab: the map with its controls and readout, the counts, and the profile below.
"use strict";
((R) => {
  R.regions = (report) => {
    const { regions, line } = report.sections;
    const alone = line.body?.one_input;
    const profile = [R.el("h3", {}, alone ? "The function itself" : "Along a line"),
      R.section(line, (body) => R.profile(body, report))];
    return [
      alone && profile,
      R.section(regions, (body) => [
        body.cells && explorable(body, report),
        R.el("h3", {}, "How many ", R.kind(body.count.kind, body.count.side)),
        counts(body),
      ]),
      !alone && profile,
    ];
  };

  const explorable = (body, report) => {
    const model = { ...R.mapModel(body), classes: report.data?.classes,
      name: (k) => R.outputName(report, k) };
    const byClass = Boolean(body.winners && model.classes);
    const state = { color: byClass ? "class" : "value", output: 0, layer: byClass ? 0 : model.depth,
      region: -1, points: byClass && body.type === "plane",
      zero: !byClass && model.ranges[0].value.lo < 0 && model.ranges[0].value.hi > 0 };
    const canvas = R.el("canvas", { tabindex: 0, role: "application", id: "region-map",
      "aria-label": "Map of the linear regions. The arrow keys go from region to region.",
      "aria-describedby": "region-readout" });
    const readout = R.el("div", { class: "readout card", id: "region-readout", role: "status" });
    const legend = R.el("div", { class: "legend-place" });
    let frame = null;
    const picture = R.figure("regions", (width) => {
      frame = R.drawMap(canvas, model, state, Math.min(width, 760));
      return canvas.parentNode ? null : canvas;
    });
    const redraw = () => {
      picture.redraw();
      legend.replaceChildren(...explain(model, state));
    };
    const choose = (region, x, y) => {
      if (region < 0) return;
      const moved = region !== state.region;
      state.region = region;
      readout.replaceChildren(...read(model, state, x, y));
      if (moved) picture.redraw();
    };
    pointing(canvas, model, () => frame, choose);
    walking(canvas, model, state, choose);
    readout.append(R.el("p", { class: "quiet hint" }, "Point at a region, or use the arrow keys, to ",
      "read its pattern and the affine map the network is there."));
    legend.append(...explain(model, state));
    const shown = body.plane.words;
    return [
      byClass && R.el("p", { class: "lead" }, "Which class wins where. ", R.kind(body.winners.kind),
        body.winners.grid && R.el("span", { class: "quiet" }, " At the points of a grid: the linear regions are too ",
          "many to list; the other colours show some of them.")),
      shown && R.note(`This is ${shown}.`),
      R.el("div", { class: "map" },
        R.el("div", {}, controls(model, state, redraw, () => choose(state.region)), picture, legend),
        readout),
    ];
  };

  const explain = (model, state) => [...colours(model, state),
    state.points && model.classes && R.classLegend(model.classes)].filter(Boolean);

  const colours = (model, state) => {
    if (state.color === "class") return [R.territoryLegend(model.classes)];
    if (state.color === "pattern") {
      return [R.note("One colour for each pattern of the layers up to the slider.")];
    }
    const name = model.outputs > 1 ? model.name(state.output) : "output";
    return [state.color === "value"
      ? R.legend(model.ranges[state.output].value, name)
      : R.legend(model.ranges[state.output].gradient, `norm of the gradient of the ${name}`)];
  };

  const controls = (model, state, redraw, reread) => {
    const select = (id, label, options, change) => R.el("label", {}, label,
      R.el("select", { id, onchange: (event) => change(event.target.value) },
        options.map(([value, text]) => R.el("option", { value }, text))));
    const toggle = (id, label, key) => R.el("label", { class: "toggle" },
      R.el("input", { type: "checkbox", id, checked: state[key],
        onchange: (event) => { state[key] = event.target.checked; redraw(); } }), label);
    const told = R.el("output", { for: "layer-slider" });
    const tell = () => {
      const count = state.layer === model.depth ? model.polygons.length
        : model.body.outlines.layers[state.layer - 1]?.length;
      const known = count ? `: ${R.plural(count, "region")}` : " (its walls are not drawn)";
      told.textContent = state.layer
        ? `after layer ${state.layer} of ${model.depth}${known}`
        : "no walls drawn";
    };
    tell();
    return R.el("div", { class: "controls" },
      select("region-color", "Colour", [...(model.body.winners && model.classes ? [["class", "class"]] : []),
        ["value", "value"], ["gradient", "gradient norm"], ["pattern", "pattern"]], (value) => { state.color = value; redraw(); }),
      model.outputs > 1 && select("region-output", "Output",
        Array.from({ length: model.outputs }, (_, k) => [k, model.name(k).replace(/^output /, "")]),
        (value) => { state.output = Number(value); redraw(); reread(); }),
      model.depth > 0 && R.el("label", { class: "wide" }, "Layers",
        R.el("input", { type: "range", id: "layer-slider", min: 0, max: model.depth, step: 1,
          value: state.layer, oninput: (event) => {
            state.layer = Number(event.target.value);
            tell();
            redraw();
          } }), told),
      toggle("region-zero", "zero line", "zero"),
      model.body.points && toggle("region-points", "data", "points"));
  };

  const pointing = (canvas, model, frameNow, choose) => {
    const at = (event) => {
      const frame = frameNow();
      const box = canvas.getBoundingClientRect();
      const x = frame.x.invert((event.clientX - box.left) * (frame.width / box.width));
      const y = frame.y.invert((event.clientY - box.top) * (frame.height / box.height));
      choose(model.find(x, y), x, y);
    };
    canvas.addEventListener("pointermove", at);
    canvas.addEventListener("pointerdown", at);
  };

  // An arrow key walks from the region's middle until another region begins.
  const walking = (canvas, model, state, choose) => {
    const [x0, x1, y0, y1] = model.window;
    const start = () => {
      const middle = model.find((x0 + x1) / 2, (y0 + y1) / 2);
      choose(middle < 0 ? 0 : middle);
    };
    const step = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    canvas.addEventListener("focus", () => { if (state.region < 0) start(); });
    canvas.addEventListener("keydown", (event) => {
      const way = step[event.key];
      if (event.key === "Home") start();
      if (!way) return;
      event.preventDefault();
      if (state.region < 0) { start(); return; }
      let [x, y] = model.centres[state.region];
      for (let k = 0; k < 2000; k++) {
        x += (way[0] * (x1 - x0)) / 1000;
        y += (way[1] * (y1 - y0)) / 1000;
        const found = model.find(x, y);
        if (found >= 0 && found !== state.region) { choose(found); return; }
        if (x < x0 || x > x1 || y < y0 || y > y1) return;
      }
    });
  };

  // What is known about the chosen region.
  const read = (model, state, x, y) => {
    const k = state.region;
    const { body } = model;
    const [px, py] = x === undefined ? model.centres[k] : [x, y];
    const { names } = body.plane;
    const o = state.output;
    const [a, b] = body.cells.A[k][o];
    const c = body.cells.c[k][o];
    const term = (v, name) => `${v < 0 ? "−\u00a0" : "+\u00a0"}${R.number(Math.abs(v), 8)}${name}`;
    const rows = R.patternRows(body, k);
    return [
      R.el("h4", {}, `Region ${k + 1} of ${R.number(model.polygons.length)} `, R.kind("exact")),
      R.el("dl", {},
        pair("at", R.vector([px, py], 5)),
        pair(model.outputs > 1 ? model.name(o) : "output", R.el("code", { id: "affine-map",
          "data-a": JSON.stringify([a, b]), "data-c": c, "data-x": px, "data-y": py },
        `${R.number(a, 8)}\u00a0${names[0]} ${term(b, `\u00a0${names[1]}`)} ${term(c, "")}`)),
        pair("value here", R.number(model.value(k, o, px, py), 6)),
        pair("gradient", R.vector([a, b], 6)),
        pair("its norm", R.number(model.slope(k, o), 6)),
        pair("active units", `${R.number(body.cells.active[k])}`)),
      R.el("h5", {}, "Pattern, layer by layer"),
      rows
        ? R.el("ol", { class: "bits" }, rows.map((row) =>
          R.el("li", {}, R.el("code", {}, row.length > 256 ? `${row.slice(0, 256)}…` : row))))
        : R.note("Not printed: too many units."),
    ];
  };
  const pair = (name, value) => [R.el("dt", {}, name), R.el("dd", {}, value)];

  const counts = (body) => {
    const values = body.per_layer.values;
    const rows = values.map((n, k) => [String(k + 1), n === null ? "not counted" : R.number(n),
      k && n && values[k - 1] ? `× ${R.number(n / values[k - 1], 3)}` : ""]);
    const where = { plane: "the domain", slice: "the slice", interval: "the domain" }[body.type];
    return [
      R.el("p", {}, `${body.count.note ? `At least ${R.number(body.count.value)}` :
        R.number(body.count.value)} linear ${body.count.value === 1 ? "region" : "regions"} on ${where}`,
      body.cells && body.cells.corners.length < body.count.value
        ? `; the map shows ${R.number(body.cells.corners.length)} of them, in a smaller window.` : "."),
      body.whole && R.el("p", {}, body.whole.note ? "The whole domain has at least " :
        "The whole domain has ", R.quantity(body.whole), "."),
      rows.length ? R.table([">after layer", ">regions", ">growth"], rows, "Regions after each layer")
        : R.note("No hidden layer: the network is one affine map."),
    ];
  };
})((window.relunormReport ??= {}));
