// A one-hidden-layer network of two inputs on the box [-1, 1]^2: its cells and its canonical form.
"use strict";
(() => {
  const BOX = [[-1, -1], [1, -1], [1, 1], [-1, 1]];
  const TINY = 1e-9;
  const value = (unit, p) => unit.w[0] * p[0] + unit.w[1] * p[1] + unit.b;

  function clip(polygon, unit, sign) {
    const kept = [];
    polygon.forEach((p, k) => {
      const q = polygon[(k + 1) % polygon.length];
      const a = sign * value(unit, p);
      const c = sign * value(unit, q);
      if (a >= 0) kept.push(p);
      if ((a > 0 && c < 0) || (a < 0 && c > 0)) {
        const t = a / (a - c);
        kept.push([p[0] + t * (q[0] - p[0]), p[1] + t * (q[1] - p[1])]);
      }
    });
    return kept;
  }

  function area(polygon) {
    return (
      polygon.reduce((sum, p, k) => {
        const q = polygon[(k + 1) % polygon.length];
        return sum + p[0] * q[1] - p[1] * q[0];
      }, 0) / 2
    );
  }

  const centre = (polygon) =>
    [0, 1].map((k) => polygon.reduce((sum, p) => sum + p[k], 0) / polygon.length);

  // Cells of constant pattern with an interior, each with its affine map f(x) = A x + c.
  function regions(units, bias = 0) {
    let cells = [{ polygon: BOX, pattern: [] }];
    for (const unit of units) {
      cells = cells.flatMap(({ polygon, pattern }) => {
        const on = { polygon: clip(polygon, unit, 1), pattern: [...pattern, 1] };
        const off = { polygon: clip(polygon, unit, -1), pattern: [...pattern, 0] };
        const real = [on, off].filter((c) => c.polygon.length > 2 && area(c.polygon) > TINY);
        if (real.length < 2 || unit.w.every((x) => x === 0)) {
          const active = value(unit, centre(polygon)) > 0 ? 1 : 0;
          return [{ polygon, pattern: [...pattern, active] }];
        }
        return real;
      });
    }
    return cells.map((cell) => ({ ...cell, ...affine(units, cell.pattern, bias) }));
  }

  function affine(units, pattern, bias) {
    const A = [0, 0];
    let c = bias;
    units.forEach((unit, i) => {
      if (!pattern[i]) return;
      A[0] += unit.v * unit.w[0];
      A[1] += unit.v * unit.w[1];
      c += unit.v * unit.b;
    });
    return { A, c };
  }

  // f = A x + c + sum of gamma relu(n.x + beta) over distinct lines that meet the box's interior,
  // n of unit length with its first non-zero entry positive (relu(z) = z + relu(-z)).
  function canonical(units, bias = 0) {
    const A = [0, 0];
    let c = bias;
    const lines = [];
    const fate = units.map((unit) => {
      const size = Math.hypot(...unit.w);
      const reach = Math.abs(unit.w[0]) + Math.abs(unit.w[1]);
      const add = (times) => {
        A[0] += times * unit.w[0];
        A[1] += times * unit.w[1];
        c += times * unit.b;
      };
      if (unit.v === 0) return "unobserved";
      if (unit.b + reach <= TINY) return "never on";
      if (unit.b - reach >= -TINY) {
        add(unit.v);
        return size > 0 ? "always on" : "constant";
      }
      const lead = Math.abs(unit.w[0]) > TINY * size ? unit.w[0] : unit.w[1];
      const flip = lead < 0;
      if (flip) add(unit.v);
      const sign = flip ? -1 : 1;
      const n = unit.w.map((x) => (sign * x) / size);
      const beta = (sign * unit.b) / size;
      const gamma = unit.v * size;
      const same = lines.find(
        (l) => Math.hypot(l.n[0] - n[0], l.n[1] - n[1], l.beta - beta) < TINY
      );
      if (same) {
        same.gamma += gamma;
        return "merged";
      }
      lines.push({ n, beta, gamma });
      return "kept";
    });
    return { A, c, lines: lines.filter((l) => Math.abs(l.gamma) > TINY), fate };
  }

  // Seed 000, Lemma 1 corrected: |v| goes into the row, sign(v) stays.
  const signed = (unit) => ({
    w: unit.w.map((x) => Math.abs(unit.v) * x),
    b: Math.abs(unit.v) * unit.b,
    v: Math.sign(unit.v),
  });

  const contains = (polygon, p) =>
    polygon.every((a, k) => {
      const b = polygon[(k + 1) % polygon.length];
      return (b[0] - a[0]) * (p[1] - a[1]) - (b[1] - a[1]) * (p[0] - a[0]) >= -1e-12;
    });

  globalThis.relunormExplorer = globalThis.relunormExplorer || {};
  globalThis.relunormExplorer.shallowMath = { BOX, area, canonical, centre, contains, regions, signed };
})();
