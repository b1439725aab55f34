// The explorer: three panels a reader can play with, all computed in the browser.
"use strict";
(() => {
  const { el } = relunormExplorer.dom;

  relunormExplorer.mount = (root) => {
    const panels = [relunormExplorer.unitPanel(), relunormExplorer.treePanel(), relunormExplorer.shallowPanel()];
    for (const { title, note, node } of panels)
      root.append(el("section", { class: "ex-panel" }, el("h3", { text: title }), el("p", { class: "ex-note", text: note }), node));
    for (const { start } of panels) start();
  };
})();
