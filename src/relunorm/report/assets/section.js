// What every section shares: a line on how it went, or a note in the place of what is missing.
"use strict";
((R) => {
  R.call = (text) => (text ? R.el("code", { class: "call" }, text) : null);

  R.note = (...children) => R.el("p", { class: "quiet" }, ...children);

  // The section's content; `render(body)` draws it where there is something to draw.
  R.section = (entry, render) => {
    if (entry.body === null) {
      return R.el("div", { class: "card missing" },
        R.el("p", {}, R.el("strong", {}, "Not computed. "), capital(entry.why), "."),
        R.el("p", { class: "quiet" }, "The call that would do it:"),
        R.call(entry.call));
    }
    const partial = entry.status === "partial" && R.el("div", { class: "card missing after" },
      R.el("p", {}, R.el("strong", {}, "Partly computed. "), capital(entry.why), "."),
      R.call(entry.call));
    return [render(entry.body), partial];
  };
  const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1).replace(/\.$/, "");

  // A card with one number.
  R.fact = (title, value, detail) =>
    R.el("div", { class: "fact" }, R.el("h3", {}, title), R.el("p", { class: "big" }, value),
      detail && R.el("p", { class: "quiet" }, detail));
})((window.relunormReport ??= {}));
