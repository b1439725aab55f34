// The plus-minus tree of a small batch (relunorm.batchnorm.Tree), by brute force over its rows.
"use strict";
(() => {
  const mean = (row) => row.reduce((sum, x) => sum + x, 0) / row.length;

  // Both children of a row: relu(x - mean) and relu(mean - x).
  function children(row) {
    const m = mean(row);
    return [row.map((x) => Math.max(x - m, 0)), row.map((x) => Math.max(m - x, 0))];
  }

  // Values apart by less than 1e-12 of the row's spread are one cluster.
  function clusterCount(row) {
    const sorted = [...row].sort((p, q) => p - q);
    const tie = 1e-12 * Math.max(sorted[sorted.length - 1] - sorted[0], 1e-300);
    return 1 + sorted.slice(1).filter((x, i) => x - sorted[i] > tie).length;
  }

  function layers(batch, depth) {
    const all = [[batch]];
    for (let t = 0; t < depth; t++) all.push(all[t].flatMap(children));
    return all;
  }

  // Norms (largest 1) and pairwise angles in degrees of the points' representations in a layer.
  function geometry(rows) {
    const n = rows[0].length;
    const gram = Array.from({ length: n }, () => new Float64Array(n));
    for (const row of rows)
      for (let i = 0; i < n; i++)
        for (let j = 0; j <= i; j++) gram[i][j] += row[i] * row[j];
    const raw = gram.map((row, i) => Math.sqrt(row[i]));
    const top = Math.max(...raw);
    const angles = [];
    for (let i = 0; i < n; i++)
      for (let j = 0; j < i; j++) {
        const cosine = gram[i][j] / (raw[i] * raw[j]);
        angles.push({ i: j, j: i, degrees: (180 / Math.PI) * Math.acos(Math.max(-1, Math.min(1, cosine))) });
      }
    return { norms: raw.map((x) => x / top), angles };
  }

  // Sum over rows of (clusters - 2), two-cluster and constant rows counted as 0.
  const excess = (rows) =>
    rows.reduce((sum, row) => sum + Math.max(clusterCount(row) - 2, 0), 0);

  globalThis.relunormExplorer = globalThis.relunormExplorer || {};
  globalThis.relunormExplorer.treeMath = { children, clusterCount, excess, geometry, layers };
})();
