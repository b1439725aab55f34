// What to do next, each with the command that does it.
"use strict";
((R) => {
  R.advice = (report) => R.el("ol", { class: "advice" }, report.advice.map((item) => R.el("li", { class: "card" },
    R.el("p", {}, item.text),
    item.command && R.call(item.command),
    item.call && (item.command
      ? R.el("details", {}, R.el("summary", {}, "in Python"), R.call(item.call)) : R.call(item.call)))));
})((window.relunormReport ??= {}));
