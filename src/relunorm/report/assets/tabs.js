// Tabs by the ARIA pattern: one stop for the Tab key, arrows, Home and End between them.
"use strict";
((R) => {
  R.tabs = (entries) => {
    const buttons = entries.map(({ id, title }) =>
      R.el("button", { type: "button", role: "tab", id: `tab-${id}`, "aria-controls": id,
        "aria-selected": "false", tabindex: -1 }, title));
    const panels = entries.map(({ id, title, content }) =>
      R.el("section", { role: "tabpanel", id, "aria-labelledby": `tab-${id}`, hidden: true },
        R.el("h2", { class: id === "overview" ? "unseen" : null }, title), content));
    const list = R.el("div", { role: "tablist", "aria-label": "Parts of the report" }, buttons);

    const select = (index, focus) => {
      buttons.forEach((button, k) => {
        button.setAttribute("aria-selected", String(k === index));
        button.tabIndex = k === index ? 0 : -1;
        panels[k].hidden = k !== index;
      });
      if (focus) buttons[index].focus();
      const strip = buttons[index];
      list.scrollLeft = strip.offsetLeft - (list.clientWidth - strip.offsetWidth) / 2;
      entries[index].shown?.(panels[index]);
    };
    buttons.forEach((button, k) => {
      button.addEventListener("click", () => {
        select(k, false);
        history.replaceState(null, "", `#${entries[k].id}`);
      });
      button.addEventListener("keydown", (event) => {
        const last = buttons.length - 1;
        const to = { ArrowRight: k === last ? 0 : k + 1, ArrowLeft: k ? k - 1 : last, Home: 0,
          End: last }[event.key];
        if (to === undefined) return;
        event.preventDefault();
        select(to, true);
      });
    });

    const fromAddress = () => {
      const inside = panels.findIndex((panel) => location.hash.length > 1 &&
        panel.querySelector(`[id="${CSS.escape(location.hash.slice(1))}"]`));
      if (inside >= 0) { // a place on a panel, which the browser scrolls to once it is shown
        select(inside, false);
        document.getElementById(location.hash.slice(1)).scrollIntoView();
        return;
      }
      const wanted = entries.findIndex(({ id }) => `#${id}` === location.hash);
      select(Math.max(wanted, 0), false);
    };
    window.addEventListener("hashchange", fromAddress);
    let theme;
    window.addEventListener("beforeprint", () => {
      theme = document.documentElement.dataset.theme;
      document.documentElement.dataset.theme = "light"; // paper is white
      panels.forEach((panel) => { panel.dataset.hidden = String(panel.hidden); panel.hidden = false; });
      R.redrawAt(680);
    });
    window.addEventListener("afterprint", () => {
      if (theme) document.documentElement.dataset.theme = theme;
      else delete document.documentElement.dataset.theme;
      panels.forEach((panel) => { panel.hidden = panel.dataset.hidden === "true"; });
      R.redrawAll();
    });
    return { list, panels, start: fromAddress };
  };
})((window.relunormReport ??= {}));
