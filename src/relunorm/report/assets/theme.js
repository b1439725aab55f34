// Light or dark: what the system asks for, until the reader chooses.
"use strict";
((R) => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const now = () => document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light");

  R.themeButton = () => {
    const button = R.el("button", { type: "button", class: "theme" });
    const label = () => {
      button.textContent = now() === "dark" ? "Light" : "Dark";
      button.setAttribute("aria-label", `Switch to ${now() === "dark" ? "light" : "dark"} colours`);
    };
    button.addEventListener("click", () => {
      document.documentElement.dataset.theme = now() === "dark" ? "light" : "dark";
      label();
      R.redrawAll();
    });
    dark.addEventListener("change", () => { label(); R.redrawAll(); });
    label();
    return button;
  };
})((window.relunormReport ??= {}));
