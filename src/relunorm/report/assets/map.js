// The map of linear regions, drawn on a canvas: colours, walls by layer, the chosen region.
"use strict";
((R) => {
  const MARGIN = { left: 50, right: 14, top: 12, bottom: 44 };

  // Everything about the picture that does not change while it is looked at.
  R.mapModel = (body) => {
    const polygons = body.cells.corners;
    const outputs = body.outputs.shown;
    const centres = polygons.map(R.centroid);
    const value = (k, o, x, y) => {
      const [a, b] = body.cells.A[k][o];
      return a * x + b * y + body.cells.c[k][o];
    };
    const slope = (k, o) => Math.hypot(...body.cells.A[k][o]);
    const prefixes = (k, layer) => R.patternText(body, k, layer);
    const ranges = Array.from({ length: outputs }, (_, o) => ({
      value: R.ramp(...extent(polygons.flatMap((p, k) => cornersOf(p).map(([x, y]) =>
        value(k, o, x, y))))),
      gradient: R.ramp(0, extent(polygons.map((_, k) => slope(k, o)))[1]),
    }));
    return { body, polygons, outputs, centres, value, slope, prefixes, ranges,
      depth: body.layers.rows.length, window: body.plane.window,
      find: R.finder(polygons, body.plane.window) };
  };
  const cornersOf = (p) => Array.from({ length: p.length / 2 }, (_, i) => [p[2 * i], p[2 * i + 1]]);
  const extent = (values) => values.reduce(([a, b], v) =>
    (Number.isFinite(v) ? [Math.min(a, v), Math.max(b, v)] : [a, b]), [Infinity, -Infinity]);

  // The bits of region k, one text a layer, or up to a layer, joined.
  R.patternRows = (body, k) => {
    const hex = body.cells.patterns?.[k];
    if (hex === undefined) return null;
    let bits = "";
    for (const digit of hex) bits += parseInt(digit, 16).toString(2).padStart(4, "0");
    let at = 0;
    return body.layers.rows.map(({ width }) => bits.slice(at, (at += width)));
  };
  R.patternText = (body, k, layers) => {
    const rows = R.patternRows(body, k);
    return rows ? rows.slice(0, layers).join("|") : String(k);
  };

  // Draw; returns the frame, which maps between the plane and the canvas.
  R.drawMap = (canvas, model, state, width) => {
    const window = state.color === "class" ? model.body.winners.grid?.window ?? model.window : model.window;
    const frame = place(window, width);
    const ratio = Math.max(1, Math.min(3, globalThis.devicePixelRatio || 1));
    canvas.width = Math.round(frame.width * ratio);
    canvas.height = Math.round(frame.height * ratio);
    canvas.style.width = `${frame.width}px`;
    canvas.style.height = `${frame.height}px`;
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, frame.width, frame.height);
    pen.save();
    pen.beginPath();
    pen.rect(frame.left, frame.top, frame.right - frame.left, frame.bottom - frame.top);
    pen.clip();
    if (state.color === "class") territories(pen, frame, model);
    else fills(pen, frame, model, state);
    if (!(state.color === "class" && model.body.winners.grid)) walls(pen, frame, model, state);
    if (state.zero) zeroLine(pen, frame, model, state);
    if (state.points) dots(pen, frame, model);
    chosen(pen, frame, model, state);
    pen.restore();
    marks(pen, frame, model);
    ticks(pen, frame, model, window);
    return frame;
  };

  const place = ([x0, x1, y0, y1], width) => {
    // the axis' name stands left of its longest number
    const longest = Math.max(...R.ticks(y0, y1, 5).map((v) => R.number(v, 4).length));
    const left = Math.max(MARGIN.left, 26 + 7 * longest);
    const inner = width - left - MARGIN.right;
    const aspect = (y1 - y0) / (x1 - x0);
    const tall = inner * (aspect > 0.3 && aspect < 1.6 ? aspect : 0.8);
    const frame = { width, left, right: width - MARGIN.right, top: MARGIN.top,
      bottom: MARGIN.top + tall, height: MARGIN.top + tall + MARGIN.bottom };
    frame.x = R.linear(x0, x1, frame.left, frame.right);
    frame.y = R.linear(y0, y1, frame.bottom, frame.top);
    return frame;
  };

  const trace = (pen, frame, p) => {
    pen.beginPath();
    for (let i = 0; i < p.length; i += 2) pen.lineTo(frame.x(p[i]), frame.y(p[i + 1]));
    pen.closePath();
  };

  const fills = (pen, frame, model, state) => {
    model.polygons.forEach((p, k) => {
      const paint = fillOf(pen, frame, model, state, p, k);
      trace(pen, frame, p);
      pen.fillStyle = paint;
      pen.strokeStyle = paint; // covers the seam between neighbours
      pen.lineWidth = 0.6;
      pen.fill();
      pen.stroke();
    });
  };

  // Where each class wins: whole regions, and the parts of those that are cut.
  const territories = (pen, frame, model) => {
    const { whole, cut, grid } = model.body.winners;
    if (grid) squares(pen, frame, grid);
    const parts = [...model.polygons.map((p, k) => [p, whole[k]]).filter(([, k]) => k >= 0),
      ...cut.map((part) => [part.corners, part.class])];
    for (const [p, k] of parts) {
      const paint = R.territory(k);
      trace(pen, frame, p);
      pen.fillStyle = pen.strokeStyle = paint;
      pen.lineWidth = 0.8;
      pen.fill();
      pen.stroke();
    }
  };

  const squares = (pen, frame, { count, window: [x0, x1, y0, y1], classes }) => {
    const wide = (frame.x(x1) - frame.x(x0)) / count, tall = (frame.y(y0) - frame.y(y1)) / count;
    classes.forEach((k, n) => {
      pen.fillStyle = R.territory(k);
      pen.fillRect(frame.x(x0) + (n % count) * wide, frame.y(y0) - (Math.floor(n / count) + 1) * tall,
        wide + 0.6, tall + 0.6);
    });
  };

  // The points the plane was laid through, with their names.
  const marks = (pen, frame, model) => {
    for (const { name, at } of model.body.plane.marks) {
      const x = frame.x(at[0]), y = frame.y(at[1]);
      if (x < frame.left || x > frame.right || y < frame.top || y > frame.bottom) continue;
      pen.beginPath();
      pen.arc(x, y, 5, 0, 2 * Math.PI);
      pen.fillStyle = "#14181c";
      pen.strokeStyle = "#ffffff";
      pen.lineWidth = 2;
      pen.fill();
      pen.stroke();
      pen.font = "600 12px system-ui, sans-serif";
      pen.textBaseline = "bottom";
      const half = pen.measureText(name).width / 2 + 4;
      const middle = Math.max(frame.left + half, Math.min(frame.right - half, x));
      pen.textAlign = "center";
      pen.lineWidth = 4;
      pen.strokeText(name, middle, y - 8);
      pen.fillText(name, middle, y - 8);
    }
  };

  const fillOf = (pen, frame, model, state, p, k) => {
    const o = state.output;
    if (state.color === "pattern") {
      return state.layer ? R.hashed(model.prefixes(k, state.layer)) : R.color("card");
    }
    if (state.color === "gradient") return model.ranges[o].gradient(model.slope(k, o));
    return affinePaint(pen, frame, model, o, p, k);
  };

  // Inside a region the value is affine, so a linear gradient of the canvas shows it as it is.
  const affinePaint = (pen, frame, model, o, p, k) => {
    const color = model.ranges[o].value;
    const [a, b] = model.body.cells.A[k][o];
    const [cx, cy] = model.centres[k];
    const sx = frame.x(1) - frame.x(0), sy = frame.y(1) - frame.y(0);
    const gx = a / sx, gy = b / sy;
    const steep = gx * gx + gy * gy;
    const here = model.value(k, o, cx, cy);
    if (!(steep > 0)) return color(here);
    let low = 0, high = 0;
    for (let i = 0; i < p.length; i += 2) {
      const d = a * (p[i] - cx) + b * (p[i + 1] - cy);
      low = Math.min(low, d);
      high = Math.max(high, d);
    }
    const at = (d) => [frame.x(cx) + (d * gx) / steep, frame.y(cy) + (d * gy) / steep];
    const ends = [...at(low), ...at(high)];
    if (!ends.every(Number.isFinite)) return color(here);
    const paint = pen.createLinearGradient(...ends);
    for (let s = 0; s <= 4; s++) paint.addColorStop(s / 4, color(here + low + (s / 4) * (high - low)));
    return paint;
  };

  const walls = (pen, frame, model, state) => {
    const partitions = [...model.body.outlines.layers, model.polygons];
    pen.lineJoin = "round";
    for (let layer = state.layer; layer >= 1; layer--) {
      const share = (layer - 1) / Math.max(1, model.depth - 1);
      pen.strokeStyle = `rgba(18, 24, 30, ${0.85 - 0.4 * share})`;
      pen.lineWidth = 1.7 - 1.15 * share;
      for (const p of partitions[layer - 1] ?? []) {
        trace(pen, frame, p);
        pen.stroke();
      }
    }
  };

  const zeroLine = (pen, frame, model, state) => {
    const path = new Path2D();
    model.polygons.forEach((p, k) => {
      const [a, b] = model.body.cells.A[k][state.output];
      const ends = R.cut(p, a, b, model.body.cells.c[k][state.output]);
      if (!ends) return;
      path.moveTo(frame.x(ends[0]), frame.y(ends[1]));
      path.lineTo(frame.x(ends[2]), frame.y(ends[3]));
    });
    pen.lineCap = "round";
    for (const [style, width] of [["#ffffff", 5], ["#b3122f", 2.4]]) {
      pen.strokeStyle = style;
      pen.lineWidth = width;
      pen.stroke(path);
    }
  };

  const dots = (pen, frame, model) => {
    const { xy, labels } = model.body.points;
    for (let i = 0; i < xy.length; i += 2) {
      const x = frame.x(xy[i]), y = frame.y(xy[i + 1]);
      const { d, fill, stroke } = R.classMark(labels ? labels[i / 2] : 0, x, y, 2.6);
      const shape = new Path2D(d);
      pen.fillStyle = fill;
      pen.strokeStyle = stroke;
      pen.lineWidth = 1;
      pen.fill(shape);
      pen.stroke(shape);
    }
  };

  const chosen = (pen, frame, model, state) => {
    if (state.region < 0) return;
    for (const [style, width] of [["#ffffff", 5], ["#7a1fd0", 2.6]]) {
      trace(pen, frame, model.polygons[state.region]);
      pen.strokeStyle = style;
      pen.lineWidth = width;
      pen.stroke();
    }
  };

  const ticks = (pen, frame, model, [x0, x1, y0, y1]) => {
    pen.strokeStyle = R.color("line-strong");
    pen.lineWidth = 1;
    pen.strokeRect(frame.left, frame.top, frame.right - frame.left, frame.bottom - frame.top);
    pen.fillStyle = R.color("quiet");
    pen.font = "12px system-ui, sans-serif";
    pen.textAlign = "center";
    pen.textBaseline = "top";
    for (const v of R.ticks(x0, x1, frame.width < 480 ? 4 : 6)) {
      pen.fillText(R.number(v, 4), frame.x(v), frame.bottom + 6);
    }
    pen.fillText(fitted(pen, model.body.plane.labels[0], frame.right - frame.left),
      (frame.left + frame.right) / 2, frame.bottom + 25);
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const v of R.ticks(y0, y1, 5)) pen.fillText(R.number(v, 4), frame.left - 7, frame.y(v));
    pen.save();
    pen.translate(11, (frame.top + frame.bottom) / 2);
    pen.rotate(-Math.PI / 2);
    pen.textAlign = "center";
    pen.fillText(fitted(pen, model.body.plane.labels[1], frame.bottom - frame.top), 0, 0);
    pen.restore();
  };

  // As much of a text as fits.
  const fitted = (pen, text, width) => {
    let shown = text;
    while (shown.length > 4 && pen.measureText(shown).width > width) shown = `${shown.slice(0, -2)}…`;
    return shown;
  };
})((window.relunormReport ??= {}));
