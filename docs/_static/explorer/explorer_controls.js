// Sliders, choices and numbers: what the explorer's panels share.
"use strict";
(() => {
  // An element with attributes and children; texts go in as text nodes, never as markup.
  const fill = (node, attributes, children) => {
    for (const [name, value] of Object.entries(attributes ?? {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name === "text") node.textContent = value;
      else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else node.setAttribute(name, value === true ? "" : String(value));
    }
    for (const child of children.flat(Infinity)) {
      if (child !== null && child !== undefined && child !== false) node.append(child);
    }
    return node;
  };
  const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
  const svg = (tag, attributes, ...children) =>
    fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
  let serial = 0;

  // A labelled range input with its value beside it; `read` turns its position into the number.
  function slider({ label, min, max, step, at, read = (x) => x, show = String, change }) {
    const id = `explorer-${++serial}`;
    const output = el("output", { for: id });
    const input = el("input", { id, type: "range", min, max, step, value: at });
    const value = () => read(Number(input.value));
    const update = () => {
      output.textContent = show(value());
      input.setAttribute("aria-valuetext", output.textContent);
    };
    update();
    input.addEventListener("input", () => {
      update();
      change(value());
    });
    const node = el("div", { class: "ex-slider" }, el("label", { for: id, text: label }), input, output);
    return { node, value };
  }

  function choice({ label, options, change }) {
    const id = `explorer-${++serial}`;
    const select = el("select", { id, onchange: () => change(select.value) });
    for (const [value, text] of options) select.append(el("option", { value, text }));
    const node = el("div", { class: "ex-choice" }, el("label", { for: id, text: label }), select);
    return { node, value: () => select.value };
  }

  // Four significant digits, a true minus sign, no trailing zeros.
  function number(x) {
    const rounded = Math.abs(x) < 1e-12 ? 0 : Number(x.toPrecision(4));
    return String(rounded).replace("-", "−");
  }

  // The same `arrow` for every panel that moves something by keys.
  const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

  globalThis.relunormExplorer = globalThis.relunormExplorer || {};
  globalThis.relunormExplorer.dom = { ARROWS, choice, el, number, slider, svg };
})();
