// What can be removed, the proof, and both as files.
"use strict";
((R) => {
  R.removal = (report) => R.section(report.sections.removal, (body) => [
    R.el("p", { class: "lead" }, verdict(body)),
    body.difference && R.el("p", {}, "Largest difference of the outputs over the domain: ",
      R.el("strong", {}, `at most ${R.number(body.difference.value, 3)}`), " ",
      R.kind("bound", "upper"), ` The proof ${body.difference.note}.`),
    R.el("div", { class: "columns" },
      R.el("div", {}, R.el("h3", {}, "Before and after ", R.kind("exact")), sizes(body)),
      R.el("div", {}, R.el("h3", {}, "Why each is gone ", R.kind("exact")), reasons(body))),
    R.el("h3", {}, "Take it with you"),
    body.files.length ? files(body) : R.note(`No files here: ${body.files_refused}.`),
  ]);

  const verdict = (body) => {
    const total = body.removed.total;
    const open = body.undecided ? body.undecided.value : 0;
    if (!total && open) {
      return `Nothing was found that can be removed; ${R.plural(open, "unit")} stayed undecided in the time given.`;
    }
    if (!total) return "Nothing can be removed: every unit takes part in the function.";
    return `${R.plural(total, "unit")} of ${R.number(body.before.units)} can go, and the network ` +
      "computes the same function on the domain.";
  };

  const sizes = ({ before, after }) => {
    const row = (name, key) => [name, R.number(before[key]), R.number(after[key]),
      change(before[key], after[key])];
    return R.table(["", ">before", ">after", ">change"],
      [row("hidden layers", "layers"), row("units", "units"), row("parameters", "parameters"),
        ["widths", before.widths.join(", ") || "–", after.widths.join(", ") || "–", ""]],
      "Sizes before and after");
  };
  const change = (a, b) => (a === b || !a ? "–" : `${b < a ? "−" : "+"}${R.percent(Math.abs(a - b) / a)}`);

  const reasons = (body) => (body.reasons.rows.length
    ? R.table([">layer", "reason", ">units", "proved by", ">smallest margin"],
      body.reasons.rows.map((r) => [String(r.layer + 1), r.reason, R.number(r.units), r.method,
        r.margin === null ? "–" : R.number(r.margin, 3)]),
      "Removed units by reason")
    : R.note("No unit was removed."));

  const files = (body) => [
    R.el("ul", { class: "downloads" }, body.files.map((file) => R.el("li", {},
      R.el("a", { download: file.name, href: address(file), class: "download" }, file.name),
      R.el("span", { class: "quiet" }, ` ${R.number(file.bytes.value)} bytes`)))),
    R.note("The certificate proves that the reduced network and yours agree. Check it with:"),
    R.call(body.command.replace("CERTIFICATE", nameOf(body, "certificate"))
      .replace("REDUCED", nameOf(body, "reduced"))),
  ];
  const nameOf = (body, role) => body.files.find((f) => f.role === role)?.name ?? role.toUpperCase();

  // A blob of this page; nothing is fetched.
  const address = (file) => {
    const bytes = Uint8Array.from(atob(file.base64), (c) => c.charCodeAt(0));
    return URL.createObjectURL(new Blob([bytes], { type: file.media_type }));
  };
})((window.relunormReport ??= {}));
