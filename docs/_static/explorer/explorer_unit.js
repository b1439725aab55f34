// Panel: the dead and linear cones and the basin map of one unit; a click traces a start.
"use strict";
(() => {
  const { ARROWS, choice, el, number, slider, svg } = relunormExplorer.dom;
  const { OPTIMUM, DEAD, deadBelow, gridUnits, shares, trace } = relunormExplorer.unitMath;
  const SIZE = 420;
  const EXTENT = 2;
  const GRID = 81;
  const MAX_STEPS = 180000;
  const NAMES = ["reaches the optimum", "dies", "neither"];

  const toX = (w) => ((w + EXTENT) / (2 * EXTENT)) * SIZE;
  const toY = (b) => ((EXTENT - b) / (2 * EXTENT)) * SIZE;

  function colours(canvas) {
    const style = getComputedStyle(canvas);
    return ["--ex-optimum", "--ex-dead", "--ex-other"].map((name) => {
      const hex = style.getPropertyValue(name).trim().slice(1);
      return [0, 2, 4].map((k) => parseInt(hex.slice(k, k + 2), 16));
    });
  }

  function paint(canvas, units) {
    const context = canvas.getContext("2d");
    const image = context.createImageData(GRID, GRID);
    const palette = colours(canvas);
    for (let i = 0; i < GRID * GRID; i++) {
      const row = GRID - 1 - Math.floor(i / GRID);
      const at = 4 * (row * GRID + (i % GRID));
      image.data.set([...palette[units.classOf(i)], units.moving[i] ? 150 : 255], at);
    }
    context.putImageData(image, 0, 0);
  }

  function cones(overlay, epsilon) {
    const slope = -deadBelow(epsilon);
    const reach = EXTENT / slope;
    const wedge = (sign, name) =>
      svg("path", {
        class: `ex-cone ex-cone-${name}`,
        d: `M${toX(-reach)} ${toY(sign * EXTENT)}L${toX(0)} ${toY(0)}L${toX(reach)} ${toY(sign * EXTENT)}Z`,
      });
    const label = (sign, text) =>
      svg("text", { class: "ex-label", x: toX(0), y: toY(sign * 1.8) + 4, "text-anchor": "middle", text });
    overlay.replaceChildren(wedge(-1, "dead"), wedge(1, "linear"), label(-1, "dead"), label(1, "linear"));
  }

  function axes() {
    const marks = svg("g", { class: "ex-axes" });
    for (const at of [-1, 0, 1]) {
      marks.append(
        svg("line", { x1: toX(at), x2: toX(at), y1: 0, y2: SIZE }),
        svg("line", { y1: toY(at), y2: toY(at), x1: 0, x2: SIZE }),
        svg("text", { x: toX(at) + 4, y: SIZE - 6, text: number(at) }),
        svg("text", { x: 5, y: toY(at) - 4, text: at === 0 ? "" : number(at) })
      );
    }
    marks.append(
      svg("text", { x: SIZE - 14, y: SIZE - 6, class: "ex-axis-name", text: "w" }),
      svg("text", { x: 5, y: 16, class: "ex-axis-name", text: "b" })
    );
    return marks;
  }

  function panel() {
    const canvas = el("canvas", { width: GRID, height: GRID, class: "ex-map" });
    const coneLayer = svg("g");
    const goal = svg("circle", { class: "ex-goal", r: 7, cy: toY(0) });
    const pathLayer = svg("g");
    const cross = svg("path", { class: "ex-cross", d: "M-7 0H7M0 -7V7" });
    const plot = svg(
      "svg",
      {
        viewBox: `0 0 ${SIZE} ${SIZE}`, class: "ex-plot", tabindex: 0, role: "application",
        "aria-label": "Starts (w, b) of one unit. Arrow keys move the cross, Enter traces from it.",
      },
      axes(), coneLayer, goal, pathLayer, cross
    );
    const status = el("p", { class: "ex-status", role: "status" });
    const traced = el("p", { class: "ex-status", role: "status" });
    let start = [-1, 0.5];
    let running = 0;
    let frame = 0;
    let shown = null;

    const repaint = () => shown && paint(canvas, shown);
    new MutationObserver(repaint).observe(document.documentElement, { attributeFilter: ["data-theme"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);

    const rule = () => ({ gamma: gamma.value(), beta: beta.value(), eta: eta.value() });

    function follow() {
      cross.setAttribute("transform", `translate(${toX(start[0])} ${toY(start[1])})`);
      const found = trace(start[0], start[1], rule());
      const d = found.path.map(([w, b], k) => `${k ? "L" : "M"}${toX(w).toFixed(2)} ${toY(b).toFixed(2)}`);
      const [w, b] = found.path[found.path.length - 1];
      pathLayer.replaceChildren(
        svg("path", { class: "ex-path", d: d.join("") }),
        svg("circle", { class: "ex-end", cx: toX(w), cy: toY(b), r: 5 })
      );
      const end = found.moving ? "is still moving" : NAMES[found.end];
      traced.textContent =
        `From w = ${number(start[0])}, b = ${number(start[1])} the unit ${end} ` +
        `after ${found.steps} updates, at w = ${number(w)}, b = ${number(b)}.`;
    }

    function compute() {
      const mine = ++running;
      goal.setAttribute("cx", toX(Math.min(gamma.value(), EXTENT)));
      cancelAnimationFrame(frame);
      const units = gridUnits({ ...rule(), grid: GRID, extent: EXTENT });
      shown = units;
      const slice = () => {
        if (mine !== running) return;
        const until = performance.now() + 24;
        while (performance.now() < until && units.alive.length && units.steps < MAX_STEPS)
          units.advance(Math.max(1, Math.min(50, Math.floor(40000 / units.alive.length))));
        paint(canvas, units);
        const [optimum, dead, other] = shares(units).map((x) => x.toFixed(1));
        const done = !units.alive.length || units.steps >= MAX_STEPS;
        status.textContent =
          `${optimum} % of the starts reach the optimum, ${dead} % die, ${other} % do neither ` +
          `${done ? "" : "yet "}(${units.steps} updates, ${GRID} × ${GRID} starts; estimate).`;
        canvas.dataset.done = done;
        if (!done) frame = requestAnimationFrame(slice);
      };
      slice();
      follow();
    }

    const gamma = slider({
      label: "target scale γ", min: -3, max: 0.3, step: 0.05, at: 0,
      read: (x) => 10 ** x, show: number, change: compute,
    });
    const beta = slider({ label: "momentum β", min: 0, max: 0.99, step: 0.01, at: 0, show: number, change: compute });
    const eta = slider({
      label: "step size η", min: -2, max: 0.3, step: 0.05, at: -1,
      read: (x) => 10 ** x, show: number, change: compute,
    });
    const epsilon = choice({
      label: "cones: fires (or rests) with probability below",
      options: [["1e-4", "0.0001"], ["1e-2", "0.01"], ["0.1", "0.1"]],
      change: (value) => cones(coneLayer, Number(value)),
    });

    plot.addEventListener("click", (event) => {
      const box = plot.getBoundingClientRect();
      start = [
        ((event.clientX - box.left) / box.width) * 2 * EXTENT - EXTENT,
        EXTENT - ((event.clientY - box.top) / box.height) * 2 * EXTENT,
      ];
      follow();
    });
    plot.addEventListener("keydown", (event) => {
      const arrow = ARROWS[event.key];
      if (arrow) start = start.map((x, k) => Math.max(-EXTENT, Math.min(EXTENT, x + 0.1 * arrow[k])));
      else if (event.key !== "Enter") return;
      event.preventDefault();
      follow();
    });

    cones(coneLayer, 1e-4);
    return {
      title: "One unit, dying or not",
      note:
        "A unit relu(w x + b) with one standard normal input learns the target γ x by gradient descent on the expected loss. " +
        "Green starts reach the optimum (γ, 0), the ring; red ones die. Click a start to trace it.",
      node: el(
        "div", { class: "ex-columns" },
        el("div", { class: "ex-stage" }, canvas, plot),
        el("div", { class: "ex-controls" }, gamma.node, beta.node, eta.node, epsilon.node, status, traced)
      ),
      start: compute,
    };
  }

  relunormExplorer.unitPanel = panel;
})();
