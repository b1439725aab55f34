// Panel: a one-hidden-layer network whose cells and normal form follow as a unit is dragged.
"use strict";
(() => {
  const { ARROWS, choice, el, number, svg } = relunormExplorer.dom;
  const { canonical, centre, contains, regions, signed } = relunormExplorer.shallowMath;
  const SIZE = 420;
  const START = [
    { w: [1, 0.6], b: 0.2, v: 1 },
    { w: [-0.7, 1], b: -0.1, v: -1.5 },
    { w: [0.3, -1.1], b: 0.5, v: 0.8 },
    { w: [-1.2, -0.2], b: 0.4, v: 0.5 },
    { w: [0.8, 0.9], b: -1.9, v: 1 },
  ];
  const toX = (x) => ((x + 1) / 2) * SIZE;
  const toY = (y) => ((1 - y) / 2) * SIZE;

  // The point of a unit's line nearest the middle of the box, and the tip of its normal.
  function handles(unit) {
    const square = unit.w[0] ** 2 + unit.w[1] ** 2;
    const foot = unit.w.map((x) => (-unit.b * x) / square);
    const held = foot.map((x) => Math.max(-0.93, Math.min(0.93, x)));
    const tip = held.map((x, k) => x + (0.22 * unit.w[k]) / Math.sqrt(square));
    return { held, tip };
  }

  const shade = (value, low, high) => {
    const t = high > low ? (value - low) / (high - low) : 0.5;
    return `color-mix(in oklab, var(--ex-high) ${Math.round(100 * t)}%, var(--ex-low))`;
  };

  function cellPath(polygon) {
    return polygon.map(([x, y], k) => `${k ? "L" : "M"}${toX(x).toFixed(2)} ${toY(y).toFixed(2)}`).join("") + "Z";
  }

  function linePath(unit) {
    const size = Math.hypot(...unit.w);
    const foot = unit.w.map((x) => (-unit.b * x) / size ** 2);
    const along = [-unit.w[1] / size, unit.w[0] / size];
    const end = (t) => `${toX(foot[0] + t * along[0])} ${toY(foot[1] + t * along[1])}`;
    return `M${end(-4)}L${end(4)}`;
  }

  const FORMS = {
    given: (unit) => unit,
    signed,
    unit: (unit) => {
      const size = Math.hypot(...unit.w);
      return { w: unit.w.map((x) => x / size), b: unit.b / size, v: unit.v * size };
    },
  };

  function table(units, form, fate, chosen) {
    const head = el("tr", {}, ...["unit", "row w", "bias b", "outgoing v", "on the box"].map((text) => el("th", { scope: "col", text })));
    const body = units.map((unit, k) => {
      const shown = FORMS[form](unit);
      const row = [shown.w.map(number).join(", "), number(shown.b), number(shown.v), fate[k]];
      return el("tr", { class: k === chosen ? "ex-chosen" : "" }, el("th", { scope: "row", text: `${k + 1}` }), ...row.map((text) => el("td", { text })));
    });
    return el("table", { class: "ex-table" }, el("thead", {}, head), el("tbody", {}, ...body));
  }

  function formula({ A, c, lines }) {
    const term = (x) => (x < 0 ? ` − ${number(-x)}` : ` + ${number(x)}`);
    let text = `f(x, y) = ${number(A[0])} x${term(A[1])} y${term(c)}`;
    for (const { n, beta, gamma } of lines)
      text += `${term(gamma)} relu(${number(n[0])} x${term(n[1])} y${term(beta)})`;
    return text;
  }

  function panel() {
    const units = START.map((unit) => ({ ...unit, w: [...unit.w] }));
    let chosen = 0;
    let cells = [];
    let hovered = [0.1, 0.2];
    const faceLayer = svg("g");
    const lineLayer = svg("g");
    const handleLayer = svg("g");
    const plot = svg("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, class: "ex-plot ex-solid" }, faceLayer, lineLayer, handleLayer);
    const readout = el("p", { class: "ex-status", role: "status" });
    const summary = el("p", { class: "ex-formula" });
    const rows = el("div", { class: "ex-scroll" });

    function read() {
      const cell = cells.find((c) => contains(c.polygon, hovered));
      if (!cell) return;
      readout.textContent =
        `Around (${number(hovered[0])}, ${number(hovered[1])}): pattern ${cell.pattern.join("")}, ` +
        `f = ${number(cell.A[0])} x ${cell.A[1] < 0 ? "−" : "+"} ${number(Math.abs(cell.A[1]))} y ${cell.c < 0 ? "−" : "+"} ${number(Math.abs(cell.c))} (exact up to rounding).`;
    }

    function refresh() {
      cells = regions(units);
      const values = cells.map((c) => {
        const p = centre(c.polygon);
        return c.A[0] * p[0] + c.A[1] * p[1] + c.c;
      });
      const low = Math.min(...values);
      const high = Math.max(...values);
      faceLayer.replaceChildren(
        ...cells.map((cell, k) => {
          const path = svg("path", { class: "ex-cell", d: cellPath(cell.polygon) });
          path.style.fill = shade(values[k], low, high);
          return path;
        })
      );
      lineLayer.replaceChildren(
        ...units.map((unit, k) => svg("path", { class: `ex-line${k === chosen ? " ex-chosen" : ""}`, d: linePath(unit) }))
      );
      units.forEach((unit, k) => place(k, unit));
      const form = canonical(units);
      rows.replaceChildren(table(units, which.value(), form.fate, chosen));
      summary.textContent = `${cells.length} cells. ${form.lines.length} of ${units.length} units are needed: ${formula(form)}`;
      read();
    }

    const grips = units.map((_, k) => {
      const arm = svg("line", { class: "ex-arm" });
      const move = svg("circle", { r: 9, class: "ex-grip", tabindex: 0, role: "button", "aria-label": `Unit ${k + 1}: arrow keys shift it, with Shift they turn it` });
      const turn = svg("circle", { r: 6, class: "ex-grip ex-turn" });
      const name = svg("text", { class: "ex-grip-name", "text-anchor": "middle", text: `${k + 1}` });
      handleLayer.append(arm, turn, move, name);
      drag(move, (p) => shiftTo(k, p));
      drag(turn, (p) => turnTo(k, p));
      move.addEventListener("focus", () => choose(k));
      move.addEventListener("keydown", (event) => nudge(event, k));
      return { arm, move, turn, name };
    });

    function choose(k) {
      if (chosen === k) return;
      chosen = k;
      refresh();
    }

    function place(k, unit) {
      const { held, tip } = handles(unit);
      const [x, y, tx, ty] = [toX(held[0]), toY(held[1]), toX(tip[0]), toY(tip[1])];
      const set = (node, values) => Object.entries(values).forEach(([name, value]) => node.setAttribute(name, value));
      set(grips[k].arm, { x1: x, y1: y, x2: tx, y2: ty });
      set(grips[k].move, { cx: x, cy: y });
      set(grips[k].turn, { cx: tx, cy: ty });
      set(grips[k].name, { x, y: y + 4 });
    }

    function shiftTo(k, p) {
      units[k].b = -(units[k].w[0] * p[0] + units[k].w[1] * p[1]);
      chosen = k;
      refresh();
    }

    function turnTo(k, p) {
      const { held } = handles(units[k]);
      const size = Math.hypot(...units[k].w);
      const angle = Math.atan2(p[1] - held[1], p[0] - held[0]);
      units[k].w = [size * Math.cos(angle), size * Math.sin(angle)];
      shiftTo(k, held);
    }

    function nudge(event, k) {
      const arrow = ARROWS[event.key];
      if (!arrow) return;
      event.preventDefault();
      const { held, tip } = handles(units[k]);
      if (event.shiftKey) {
        const turn = 0.08 * (arrow[1] - arrow[0] || 1);
        const [dx, dy] = [tip[0] - held[0], tip[1] - held[1]];
        turnTo(k, [held[0] + dx * Math.cos(turn) - dy * Math.sin(turn), held[1] + dx * Math.sin(turn) + dy * Math.cos(turn)]);
      } else shiftTo(k, [held[0] + 0.05 * arrow[0], held[1] + 0.05 * arrow[1]]);
    }

    const point = (event) => {
      const box = plot.getBoundingClientRect();
      return [((event.clientX - box.left) / box.width) * 2 - 1, 1 - ((event.clientY - box.top) / box.height) * 2];
    };

    function drag(node, move) {
      node.addEventListener("pointerdown", (event) => {
        event.preventDefault();
        node.setPointerCapture(event.pointerId);
        const on = (e) => move(point(e));
        const stop = () => {
          node.removeEventListener("pointermove", on);
          node.removeEventListener("pointerup", stop);
          node.removeEventListener("pointercancel", stop);
        };
        node.addEventListener("pointermove", on);
        node.addEventListener("pointerup", stop);
        node.addEventListener("pointercancel", stop);
      });
    }

    plot.addEventListener("pointermove", (event) => {
      hovered = point(event);
      read();
    });
    const which = choice({
      label: "units written",
      options: [["given", "as given"], ["signed", "signed: outgoing −1, 0, +1"], ["unit", "unit: rows of length 1"]],
      change: refresh,
    });
    return {
      title: "Drag a unit",
      note:
        "Two inputs, five hidden units, one output, on the box [−1, 1]². Drag a disc to shift a unit's line, its small end to turn it. " +
        "The cells, the table and the canonical form follow.",
      node: el(
        "div", { class: "ex-columns" },
        el("div", { class: "ex-stage" }, plot),
        el("div", { class: "ex-controls" }, which.node, rows, summary, readout)
      ),
      start: refresh,
    };
  }

  relunormExplorer.shallowPanel = panel;
})();
