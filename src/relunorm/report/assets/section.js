// What every section shares: a line on how it went, or a note in the place of what is missing.
"use strict";
((R) => {
  R.call = (text) => (text ? R.el("code", { class: "call" }, text) : null);

  // A command with its call folded away, or the call alone.
  R.asked = ({ command, call }) => (command
    ? [R.call(command), call && R.el("details", {}, R.el("summary", {}, "in Python"), R.call(call))]
    : R.call(call));

  R.note = (...children) => R.el("p", { class: "quiet" }, ...children);

  // The section's content; `render(body)` draws it where there is something to draw.
  R.section = (entry, render) => {
    if (entry.body === null) {
      return R.el("div", { class: "card missing" },
        R.el("p", {}, R.el("strong", {}, "Not computed. "), capital(entry.why), "."),
        R.el("p", { class: "quiet" }, `The ${entry.command ? "command" : "call"} that would do it:`),
        R.asked(entry));
    }
    const partial = entry.status === "partial" && R.el("div", { class: "card missing after" },
      R.el("p", {}, R.el("strong", {}, "Partly computed. "), capital(entry.why), "."),
      R.asked(entry));
    return [render(entry.body), partial];
  };
  const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1).replace(/\.$/, "");

  // A card with one number.
  R.fact = (title, value, detail) =>
    R.el("div", { class: "fact" }, R.el("h3", {}, title), R.el("p", { class: "big" }, value),
      detail && R.el("p", { class: "quiet" }, detail));
})((window.relunormReport ??= {}));
