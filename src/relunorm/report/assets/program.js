// The network in integers: sizes, what was proved, what was found.
"use strict";
((R) => {
  R.program = (report) => R.section(report.sections.program, (body) => {
    const made = body.programs.rows.filter((p) => p.sizes);
    const last = made[made.length - 1];
    return [
      R.el("p", { class: "lead" }, last
        ? `In C with ${last.bits}-bit integers the network takes ${R.number(last.sizes.tables)} bytes of ` +
          "tables. No operation can overflow on the domain" +
          (last.moves.proved.value === null ? "."
            : `, and no output moves by more than ${R.number(last.moves.proved.value, 3)}.`)
        : "The network does not fit integers of 8 or 16 bits."),
      R.table(["bits", ">tables, bytes", ">buffers, bytes", ">products", ">moves at most", ">found", "on the data"],
        body.programs.rows.map((p) => p.sizes
          ? [p.bits, R.number(p.sizes.tables), R.number(p.sizes.buffers), R.number(p.sizes.multiplications),
            p.moves.proved.value === null ? "–" : R.number(p.moves.proved.value, 3),
            R.number(p.moves.found.value, 3), onData(p.on_data)]
          : [p.bits, "–", "–", "–", "–", "–", p.why]), "Integer programs"),
      R.note("Sizes ", R.kind("exact"), ", moves at most ", R.kind("bound"), ", found ", R.kind("estimate"),
        ". Rounding the inputs to integers is included. Nothing was removed first; the command below " +
        "removes what does nothing, looks longer and writes the file with its certificate."),
      R.call(report.sections.program.call),
    ];
  });

  const onData = (data) => {
    if (!data) return "no data";
    const moved = data.largest === null ? "beyond float64" :
      `moves by ${R.number(data.largest, 3)} at most`;
    return data.same_class === null ? moved
      : `${R.number(data.same_class)} of ${R.plural(data.rows, "row")} keep their class, ${moved}`;
  };
})((window.relunormReport ??= {}));
