// What to do next, each with the command that does it.
"use strict";
((R) => {
  R.advice = (report) => R.el("ol", { class: "advice" }, report.advice.map((item) => R.el("li", { class: "card" },
    R.el("p", {}, item.text),
    R.asked(item))));
})((window.relunormReport ??= {}));
