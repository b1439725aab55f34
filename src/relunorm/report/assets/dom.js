// Building elements. Text from the document goes in as text nodes, never as markup.
"use strict";
((R) => {
  const SVG = "http://www.w3.org/2000/svg";

  const fill = (node, attributes, children) => {
    for (const [name, value] of Object.entries(attributes ?? {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name === "text") node.textContent = value;
      else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else node.setAttribute(name, value === true ? "" : String(value));
    }
    for (const child of children.flat(Infinity)) {
      if (child === null || child === undefined || child === false) continue;
      node.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
    return node;
  };

  // An HTML element: el("p", {class: "quiet"}, "some text", el("b", {}, "more")).
  R.el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

  // The same for SVG.
  R.svg = (tag, attributes, ...children) =>
    fill(document.createElementNS(SVG, tag), attributes, children);

  // A table; cells are strings or nodes, columns named with a leading ">" are numbers. A column
  // with nothing in it is left out. Where a table is too wide, every row becomes a list.
  R.table = (names, all, caption) => {
    const filled = names.map((_, k) => all.some((row) => row[k] !== ""));
    const columns = names.filter((_, k) => filled[k]);
    const rows = all.map((row) => row.filter((_, k) => filled[k]));
    const right = columns.map((name) => name.startsWith(">"));
    const cells = (tag, row) =>
      row.map((cell, k) =>
        R.el(tag, { class: right[k] ? "number" : null, scope: tag === "th" ? "col" : null,
          "data-label": tag === "td" ? columns[k].replace(/^>/, "") : null }, cell));
    const place = R.el("div", { class: "scroll", role: "region", "aria-label": caption },
      R.el("table", {},
        R.el("caption", {}, caption),
        R.el("thead", {}, R.el("tr", {}, cells("th", columns.map((c) => c.replace(/^>/, ""))))),
        R.el("tbody", {}, rows.map((row) => R.el("tr", {}, cells("td", row))))));
    let width = 0;
    new ResizeObserver(() => {
      if (place.clientWidth === width) return;
      width = place.clientWidth;
      place.classList.remove("stacked");
      if (place.scrollWidth > width + 1) place.classList.add("stacked");
    }).observe(place);
    return place;
  };
})((window.relunormReport ??= {}));
