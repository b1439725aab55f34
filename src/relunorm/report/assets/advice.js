// What to do next, each with the call that does it.
"use strict";
((R) => {
  R.advice = (report) => [
    R.el("ol", { class: "advice" }, report.advice.map((item) => R.el("li", { class: "card" },
      R.el("p", {}, item.text),
      item.call && R.el("div", { class: "how" }, R.el("span", { class: "quiet" }, "Python"), R.call(item.call)),
      item.command && R.el("div", { class: "how" }, R.el("span", { class: "quiet" }, "shell"),
        R.call(item.command))))),
  ];
})((window.relunormReport ??= {}));
