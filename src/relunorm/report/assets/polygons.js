// Plane geometry of convex polygons: which one holds a point, areas, level lines.
"use strict";
((R) => {
  // Corners are flat lists x0, y0, x1, y1, ...
  const inside = (p, x, y) => {
    let found = false;
    for (let i = 0, j = p.length - 2; i < p.length; j = i, i += 2) {
      if (p[i + 1] > y !== p[j + 1] > y &&
          x < ((p[j] - p[i]) * (y - p[i + 1])) / (p[j + 1] - p[i + 1]) + p[i]) found = !found;
    }
    return found;
  };

  R.centroid = (p) => {
    let area = 0, cx = 0, cy = 0;
    const [x0, y0] = p;
    for (let i = 2; i + 3 < p.length; i += 2) {
      const a = (p[i] - x0) * (p[i + 3] - y0) - (p[i + 2] - x0) * (p[i + 1] - y0);
      area += a;
      cx += (a * (p[i] + p[i + 2] + x0)) / 3;
      cy += (a * (p[i + 1] + p[i + 3] + y0)) / 3;
    }
    return area ? [cx / area, cy / area] : [x0, y0];
  };

  // The ends of {a x + b y + c = 0} inside a polygon, or null.
  R.cut = (p, a, b, c) => {
    const ends = [];
    for (let i = 0, j = p.length - 2; i < p.length; j = i, i += 2) {
      const u = a * p[j] + b * p[j + 1] + c;
      const v = a * p[i] + b * p[i + 1] + c;
      if (u > 0 === v > 0) continue;
      const t = u / (u - v);
      ends.push(p[j] + t * (p[i] - p[j]), p[j + 1] + t * (p[i + 1] - p[j + 1]));
    }
    return ends.length >= 4 ? ends : null;
  };

  // A grid over the window that lists for every box the polygons that may hold its points.
  R.finder = (polygons, [x0, x1, y0, y1]) => {
    const n = Math.max(1, Math.min(64, Math.ceil(Math.sqrt(polygons.length))));
    const boxes = Array.from({ length: n * n }, () => []);
    const column = (x) => Math.max(0, Math.min(n - 1, Math.floor(((x - x0) / (x1 - x0)) * n)));
    const row = (y) => Math.max(0, Math.min(n - 1, Math.floor(((y - y0) / (y1 - y0)) * n)));
    polygons.forEach((p, k) => {
      const xs = p.filter((_, i) => i % 2 === 0);
      const ys = p.filter((_, i) => i % 2 === 1);
      for (let j = row(Math.min(...ys)); j <= row(Math.max(...ys)); j++) {
        for (let i = column(Math.min(...xs)); i <= column(Math.max(...xs)); i++) {
          boxes[j * n + i].push(k);
        }
      }
    });
    return (x, y) => {
      if (x < x0 || x > x1 || y < y0 || y > y1) return -1;
      return boxes[row(y) * n + column(x)].find((k) => inside(polygons[k], x, y)) ?? -1;
    };
  };
})((window.relunormReport ??= {}));
