// Which inputs matter: a bar from the smallest to the largest slope, for every input.
"use strict";
((R) => {
  const SHOWN = 15, LISTED = 40;

  R.sensitivity = (report) => R.section(report.sections.sensitivity, (body) => {
    const state = { output: 0 };
    const several = body.outputs.shown > 1;
    // Those with the largest effect on the output shown.
    const ranked = () => [...body.slopes.rows].sort((a, b) => reach(b, state.output) - reach(a, state.output));
    const picture = R.figure("sensitivity", (width) => bars(ranked().slice(0, SHOWN), state.output, width));
    const told = R.el("p", { class: "lead" }, lead(body, state.output, report));
    const words = (d) => ({ increasing: "increasing", decreasing: "decreasing", unused: "unused",
      fixed: "does not vary" }[d] ?? "");
    const table = R.el("div", {});
    const list = () => table.replaceChildren(R.table(
      ["input", ">smallest slope", ">largest slope", ">effect over its range", "certain", "exact"],
      ranked().slice(0, LISTED).map((r) => [R.short(r.name), R.number(r.lower[state.output], 4),
        R.number(r.upper[state.output], 4), R.number(effect(r, state.output), 4),
        words(r.direction[state.output]), r.exact[state.output] ? "yes" : "no"]),
      "Ranges of slopes"));
    const count = Math.min(LISTED, body.slopes.rows.length);
    const many = count < body.inputs.value;
    return [
      told,
      R.note("A slope says how much the output changes for each unit an input changes; the bars hold ",
        "every slope on the domain. ", body.inputs.value > SHOWN
          ? `These are the ${SHOWN} of ${R.number(body.inputs.value)} inputs with the largest slope times range.`
          : "Ordered by slope times the input's range."),
      several && R.el("div", { class: "controls" }, R.el("label", {}, "Output",
        R.el("select", { id: "sensitivity-output", onchange: (event) => {
          state.output = Number(event.target.value);
          told.replaceChildren(...[lead(body, state.output, report)].flat());
          picture.redraw();
          list();
        } }, Array.from({ length: body.outputs.shown }, (_, k) => R.el("option", { value: k },
          R.outputName(report, k).replace(/^output /, "")))))),
      body.outputs.shown < body.outputs.of && R.note(`The first ${body.outputs.shown} of ${body.outputs.of} outputs.`),
      picture,
      R.el("ul", { class: "keys" }, key("upper", "either way"), key("lower", "can only increase the output"),
        key("down", "can only decrease it")),
      R.el("details", { ontoggle: list }, R.el("summary", {}, many
        ? `As a table: the ${count} of ${R.number(body.inputs.value)} inputs with the largest effect`
        : "As a table"), table),
    ];
  });

  const lead = ({ monotone, outputs }, o, report) => {
    const sure = monotone.rows[o];
    const output = outputs.of > 1 ? R.outputName(report, o) : "the output";
    const parts = [["increasing", "increase"], ["decreasing", "decrease"]]
      .filter(([k]) => sure[k]).map(([k, verb]) => `${R.plural(sure[k], "input")} can only ${verb} ${output}`);
    if (sure.unused) {
      parts.push(`${R.plural(sure.unused, "input")} ${sure.unused === 1 ? "is" : "are"} never used` +
        (parts.length || outputs.of === 1 ? "" : ` by ${output}`));
    }
    return parts.length ? [`Proved on the domain: ${parts.join("; ")}. `, R.kind("bound")]
      : [`No input is proved to push ${output} one way only.`];
  };
  const key = (style, text) => R.el("li", {}, R.svg("svg", { width: 14, height: 14, "aria-hidden": "true" },
    R.svg("rect", { x: 1, y: 3, width: 12, height: 8, rx: 2, class: `bar ${style}` })), text);
  const SIDE = { increasing: "lower", decreasing: "down" };

  const effect = (row, o) => {
    const ends = [row.lower[o], row.upper[o]];
    return ends.includes(null) || row.width === null ? null : Math.max(...ends.map(Math.abs)) * row.width;
  };

  // For the order: what is beyond float64 first, what does not vary last.
  const reach = (row, o) => (row.direction[o] === "fixed" ? 0 : effect(row, o) ?? Infinity);

  const bars = (rows, o, width) => {
    const known = rows.filter((r) => r.lower[o] !== null && r.upper[o] !== null);
    if (!known.length) return R.note("No range of slopes within float64 was found.");
    const scaled = known.map((r) => [r.lower[o] * (r.width ?? 1), r.upper[o] * (r.width ?? 1)]);
    let reach = Math.max(...scaled.flat().map(Math.abs));
    if (!(reach > 0)) reach = 1;
    const step = 36, top = 8, left = 8, right = width - 10;
    const bottom = top + known.length * step;
    const x = R.linear(-reach, reach, left, right);
    const ticks = R.ticks(-reach, reach, width < 480 ? 4 : 8);
    const height = bottom + 40;
    return R.svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, class: "plot", role: "img",
      "aria-label": `Ranges of the effect of ${known.map((r) => r.name).join(", ")}` },
    ticks.map((v) => [
      R.svg("line", { x1: x(v), x2: x(v), y1: top, y2: bottom, class: v === 0 ? "tick" : "grid" }),
      R.svg("text", { x: x(v), y: bottom + 16, "text-anchor": "middle" }, R.number(v, 3))]),
    R.svg("text", { x: (left + right) / 2, y: bottom + 34, "text-anchor": "middle" },
      "slope × range of the input"),
    known.map((r, k) => {
      const y = top + k * step;
      const [from, to] = scaled[k].map(x);
      return R.svg("g", {},
        R.svg("text", { x: left, y: y + 13, class: "name" }, cutName(r.name, width)),
        R.svg("rect", { x: from, y: y + 18, width: Math.max(2, to - from), height: 10, rx: 2,
          class: `bar ${SIDE[r.direction[o]] ?? "upper"}` }));
    }));
  };
  const cutName = (name, width) => {
    const most = Math.max(10, Math.floor(width / 8.5));
    return name.length > most ? `${name.slice(0, most - 1)}…` : name;
  };
})((window.relunormReport ??= {}));
