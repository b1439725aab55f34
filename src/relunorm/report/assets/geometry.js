// What each layer does to the geometry of the data.
"use strict";
((R) => {
  R.geometry = (report) => R.section(report.sections.geometry, (body) => {
    const rows = body.layers.rows;
    const kind = body.layers.kind;
    const degrees = (v) => (v === null ? null : (v * 180) / Math.PI);
    const quantile = (row, k) => (row.angle_quantiles.length ? degrees(row.angle_quantiles[k]) : null);
    return [
      R.note(`On ${body.on}; ${body.pairs_on}.`),
      R.el("div", { class: "plots" },
        plot("Angles, degrees", kind, rows, [
          { name: "median", values: rows.map((r) => quantile(r, 3)) }],
        { band: [rows.map((r) => quantile(r, 1)), rows.map((r) => quantile(r, 5))],
          note: "Between two points: the median, and a band that holds 90 per cent." }),
        plot("Rank and soft rank", kind, rows, [
          { name: "rank", values: rows.map((r) => r.rank) },
          { name: "soft rank", values: rows.map((r) => r.soft_rank) }],
        { note: "The soft rank counts directions by how much of the variance they carry." }),
        plot("Share of units, per cent", kind, rows, [
          { name: "active on 90 % of the points", values: rows.map((r) => 100 * r.broad_share) },
          { name: "active on none", values: rows.map((r) => (100 * r.dead) / r.width) }],
        { top: 100 })),
      R.table([">layer", "name", ">width", ">rank", ">soft rank", ">mean angle", ">clusters", ">dead"],
        rows.map((r, k) => [String(k), r.name === String(k) ? "" : R.short(r.name), R.number(r.width), R.number(r.rank),
          R.number(r.soft_rank, 3), r.mean_angle === null ? "–" : `${R.number(degrees(r.mean_angle), 3)}°`,
          R.number(r.cluster_count), R.number(r.dead)]),
        "Geometry by layer"),
    ];
  });

  const plot = (title, kind, rows, curves, options) => R.el("figure", {},
    R.el("figcaption", {}, R.el("h3", {}, title, " ", R.kind(kind))),
    R.figure("geometry", (width) => draw(rows, curves, options, width)),
    curves.length > 1 && R.el("ul", { class: "keys" }, curves.map(({ name }, k) => R.el("li", {},
      R.svg("svg", { width: 14, height: 14, "aria-hidden": "true" },
        R.mark(k, 7, 7, 3.6, { class: `layer-${k}` })), name))),
    options.note && R.note(options.note));

  const draw = (rows, curves, { band, top }, width) => {
    const height = 210;
    const box = { left: 44, right: width - 16, top: 16, bottom: height - 44 };
    const all = [...curves.flatMap((c) => c.values), ...(band ? band.flat() : [])].filter((v) => v !== null);
    const hi = top ?? (Math.max(...all, 1e-9) * 1.08);
    const last = Math.max(rows.length - 1, 1);
    const x = R.linear(0, last, box.left, box.right);
    const y = R.linear(0, hi, box.bottom, box.top);
    const known = (values) => values.map((v, k) => [v, k]).filter(([v]) => v !== null);
    const path = (values) => known(values).map(([v, k], n) => `${n ? "L" : "M"}${x(k)},${y(v)}`).join("");
    const area = band && known(band[0]).length > 0 && `${path(band[0])}${known(band[1]).reverse().map(([v, k]) => `L${x(k)},${y(v)}`).join("")}Z`;
    const step = Math.ceil(rows.length / 8);
    return R.svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, class: "plot", role: "img",
      "aria-label": curves.map((c) => `${c.name}: ${c.values.map((v) => (v === null ? "none" : R.number(v, 3))).join(", ")}`).join("; ") },
    R.axes(box, x, y, { xTicks: rows.map((_, k) => k).filter((k) => k % step === 0),
      yTicks: R.ticks(0, hi, 4), xLabel: "layer (0 is the input)", yLabel: "" }),
    area && R.svg("path", { d: area, class: "band" }),
    curves.map(({ values }, k) => [
      R.svg("path", { d: path(values), class: `curve curve-${k}`, fill: "none" }),
      known(values).map(([v, i]) => R.mark(k, x(i), y(v), 3.2, { class: `layer-${k}` }))]));
  };
})((window.relunormReport ??= {}));
