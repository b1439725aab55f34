// Panel: the plus-minus tree of a small batch, drawn to a depth, with norms and angles below it.
"use strict";
(() => {
  const { el, number, slider, svg } = relunormExplorer.dom;
  const { clusterCount, excess, geometry, layers } = relunormExplorer.treeMath;
  const WIDTH = 720;
  const ROW = 74;
  const DRAWN = 4;
  const DEEPEST = 12;
  const MOST = 12;

  function parse(text) {
    const parts = text.split(/[\s,;]+/).filter(Boolean);
    const batch = parts.map(Number);
    if (batch.length < 2 || batch.length > MOST) return { error: `Give 2 to ${MOST} numbers.` };
    const wrong = parts.find((_, k) => !Number.isFinite(batch[k]) || Math.abs(batch[k]) > 1e6);
    if (wrong) return { error: `“${wrong.slice(0, 20)}” is not a number within ±1,000,000.` };
    if (new Set(batch).size < 2) return { error: "All points are equal: recentering sends them to 0." };
    return { batch };
  }

  // One row of a layer: its values as dots on a short line, scaled to the row's own range.
  function strip(row, x, y, width) {
    const top = Math.max(...row);
    const low = Math.min(...row);
    const span = top - low || 1;
    const left = x - width / 2;
    const node = svg("g", { class: "ex-strip" });
    node.append(svg("line", { x1: left, x2: left + width, y1: y, y2: y }));
    row.forEach((value, k) => {
      const cx = left + ((value - low) / span) * width;
      node.append(svg("circle", { cx, cy: y - 5, r: 4, class: `ex-point ex-point-${k % 6}` }));
    });
    const clusters = clusterCount(row);
    const text = top === low ? "constant" : `${clusters} cluster${clusters === 1 ? "" : "s"}`;
    if (width > 34) node.append(svg("text", { x, y: y + 15, "text-anchor": "middle", text }));
    node.append(svg("title", { text: row.map(number).join(", ") }));
    return node;
  }

  function draw(all, depth) {
    const height = ROW * (depth + 1);
    const picture = svg("svg", {
      viewBox: `0 0 ${WIDTH} ${height}`, class: "ex-tree", role: "img",
      "aria-label": `The tree of the batch to layer ${depth}`,
    });
    const place = (t, k) => [((k + 0.5) / 2 ** t) * WIDTH, 24 + ROW * t];
    for (let t = 0; t <= depth; t++)
      all[t].forEach((row, k) => {
        const [x, y] = place(t, k);
        if (t) {
          const [px, py] = place(t - 1, Math.floor(k / 2));
          picture.append(svg("path", { class: `ex-edge ex-edge-${k % 2}`, d: `M${px} ${py + 18}L${x} ${y - 14}` }));
        }
        picture.append(strip(row, x, y, Math.min(120, (WIDTH / 2 ** t) * 0.8)));
      });
    return picture;
  }

  function bars(norms) {
    const list = el("ol", { class: "ex-bars", "aria-label": "Norm of each point, largest 1" });
    norms.forEach((norm, k) => {
      const bar = el("span", { class: `ex-bar ex-fill-${k % 6}` });
      bar.style.width = `${100 * norm}%`;
      list.append(el("li", {}, el("span", { class: "ex-name", text: `point ${k + 1}` }),
        el("span", { class: "ex-track" }, bar), el("span", { class: "ex-value", text: number(norm) })));
    });
    return list;
  }

  function describe(batch, rows, depth) {
    const { norms, angles } = geometry(rows);
    const odd = norms.indexOf(1);
    const finite = angles.filter((a) => Number.isFinite(a.degrees));
    const inside = finite.filter((a) => a.i !== odd && a.j !== odd).map((a) => a.degrees);
    const across = finite.filter((a) => a.i === odd || a.j === odd).map((a) => a.degrees);
    return {
      norms,
      text:
        `Layer ${depth}: ${rows.length} rows. The sum of (clusters − 2) is ${excess(rows)} ` +
        `(at the start ${Math.max(clusterCount(batch) - 2, 0)}; only a cluster exactly on a mean lowers it). ` +
        `${largest(norms)}; ${fromOne(across, odd, batch.length > 2)}` +
        `${inside.length ? `, those among the others ${range(inside)}` : ""} (exact up to rounding).`,
    };
  }

  const range = (list) => {
    const [low, high] = [Math.min(...list), Math.max(...list)].map(number);
    return low === high ? `${low}°` : `${low}° to ${high}°`;
  };

  function largest(norms) {
    const first = norms.flatMap((norm, k) => (norm > 1 - 1e-12 ? [k + 1] : []));
    return first.length > 1 ? `Points ${first.join(", ")} have the largest norm` : `Point ${first[0]} has the largest norm`;
  }

  // The angles of one point to the others; a point at 0 has none.
  function fromOne(list, odd, several) {
    if (!list.length) return `there is no angle to point ${odd + 1}: the rest lies at 0`;
    return several ? `the angles of point ${odd + 1} to the others are ${range(list)}` : `the angle between the two is ${range(list)}`;
  }

  function panel() {
    const input = el("input", { id: "explorer-batch", type: "text", value: "0, 1, 3, 9", inputmode: "decimal" });
    const stage = el("div", { class: "ex-scroll", tabindex: 0, role: "group", "aria-label": "Drawing of the tree" });
    const numbers = el("div");
    const status = el("p", { class: "ex-status", role: "status" });

    function update() {
      const { batch, error } = parse(input.value);
      input.setAttribute("aria-invalid", Boolean(error));
      if (error) {
        stage.replaceChildren();
        numbers.replaceChildren();
        status.textContent = error;
        return;
      }
      const depth = deep.value();
      const all = layers(batch, depth);
      const found = describe(batch, all[depth], depth);
      stage.replaceChildren(draw(all, Math.min(depth, DRAWN)));
      numbers.replaceChildren(bars(found.norms));
      status.textContent = found.text + (depth > DRAWN ? ` The drawing stops at layer ${DRAWN}.` : "");
    }

    const deep = slider({ label: "layers", min: 0, max: DEEPEST, step: 1, at: 3, change: update });
    input.addEventListener("input", update);
    return {
      title: "The ± tree of a batch",
      note:
        "Recentering and ReLU alone: every row x of a layer has two children, relu(x − mean) to the left and relu(mean − x) to the right. " +
        "Going down, one point grows apart from the rest.",
      node: el(
        "div", {}, el("div", { class: "ex-controls ex-inline" },
          el("div", { class: "ex-choice" }, el("label", { for: "explorer-batch", text: "batch" }), input), deep.node),
        stage, numbers, status
      ),
      start: update,
    };
  }

  relunormExplorer.treePanel = panel;
})();
