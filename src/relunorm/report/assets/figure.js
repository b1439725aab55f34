// Figures that follow the width of their place, also in panels that are hidden and in print.
"use strict";
((R) => {
  const figures = [];

  // A place whose content `draw(width)` returns; drawn again when the width or the theme changes.
  R.figure = (label, draw, attributes = {}) => {
    const place = R.el("div", { class: "figure-place", ...attributes });
    let drawn = 0;
    const redraw = (width, force = false) => {
      if (width < 40 || (!force && Math.abs(width - drawn) < 2)) return;
      drawn = width;
      const node = draw(Math.floor(width));
      if (node) place.replaceChildren(node);
    };
    const again = () => redraw(place.clientWidth, true);
    new ResizeObserver(() => redraw(place.clientWidth)).observe(place);
    figures.push({ place, redraw, again });
    place.redraw = again;
    if (label) place.setAttribute("data-figure", label);
    return place;
  };

  R.redrawAll = () => figures.forEach((f) => f.again());
  R.redrawAt = (width) =>
    figures.forEach((f) => f.redraw(Math.min(width, f.place.clientWidth || width), true));

  // The value of a CSS colour variable now.
  R.color = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
})((window.relunormReport ??= {}));
