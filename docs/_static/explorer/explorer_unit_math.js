// One ReLU unit under gradient descent (relunorm.dying.basins and .cones), recomputed in the browser.
// The expected gradient is the rotation-free closed form in theta/gamma; tests hold it to Python's.
"use strict";
(() => {
  const CLIP = 12;
  const STEP = 12 / 4096;
  const OPTIMUM = 0;
  const DEAD = 1;
  const OTHER = 2;

  // Mills ratio Phi(-a)/phi(a): a series around 0, a continued fraction beyond.
  function mills(a) {
    if (a < 2) {
      let term = a;
      let sum = a;
      for (let k = 3; k < 80; k += 2) {
        term *= (a * a) / k;
        sum += term;
      }
      return Math.sqrt(Math.PI / 2) * Math.exp((a * a) / 2) - sum;
    }
    let tail = a;
    for (let k = 400; k >= 1; k--) tail = a + k / tail;
    return 1 / tail;
  }

  // M' = a M - 1, so a cubic Hermite table needs values only; relative error below 1e-11.
  const TABLE = Float64Array.from({ length: 4098 }, (_, i) => mills(i * STEP));
  const SLOPE = TABLE.map((m, i) => i * STEP * m - 1);

  function tail(a, pdf) {
    const i = Math.floor(a / STEP);
    const t = a / STEP - i;
    const s = 1 - t;
    return (
      pdf *
      (TABLE[i] * (1 + 2 * t) * s * s +
        TABLE[i + 1] * t * t * (3 - 2 * t) +
        STEP * (SLOPE[i] * t * s * s - SLOPE[i + 1] * t * t * s))
    );
  }

  const density = (h) => Math.exp((-h * h) / 2) / Math.sqrt(2 * Math.PI);

  function firing(h) {
    const a = Math.min(Math.abs(h), CLIP);
    const off = tail(a, density(a));
    return h > 0 ? 1 - off : off;
  }

  // Phi^-1(eps) by bisection: the dead cone is b/|w| below it, the linear cone above minus it.
  function deadBelow(epsilon) {
    let lo = -CLIP;
    let hi = 0;
    for (let k = 0; k < 80; k++) {
      const middle = (lo + hi) / 2;
      if (firing(middle) < epsilon) lo = middle;
      else hi = middle;
    }
    return hi;
  }

  // A set of units stepped together. Positions are in theta/gamma; the optimum is (1, 0).
  class Units {
    constructor(w, b, { gamma, beta, eta, update = 1e-6, slope = 1e-3 }) {
      this.w = Float64Array.from(w);
      this.b = Float64Array.from(b);
      this.mw = new Float64Array(w.length);
      this.mb = new Float64Array(w.length);
      this.moving = new Uint8Array(w.length).fill(1);
      this.alive = Uint32Array.from(w.keys());
      Object.assign(this, { gamma, beta, eta, steps: 0 });
      this.update = (update / gamma) ** 2;
      this.slope = (slope / gamma) ** 2;
    }

    advance(steps) {
      const { w, b, mw, mb, moving, beta, eta, update, slope } = this;
      for (const i of this.alive) {
        let x = w[i];
        let y = b[i];
        let u = mw[i];
        let v = mb[i];
        for (let k = 0; k < steps; k++) {
          const h = Math.max(-CLIP, Math.min(CLIP, (y - 1e-298) / Math.max(Math.abs(x), 1e-300)));
          const pdf = density(h);
          const off = tail(Math.abs(h), pdf);
          const cdf = h > 0 ? 1 - off : off;
          const rho = x > 0 ? 1 : -1;
          const gw = (x - 1) * (cdf - h * pdf) + rho * y * pdf;
          const gb = rho * (x - 1) * pdf + y * cdf;
          u = beta * u + (1 - beta) * gw;
          v = beta * v + (1 - beta) * gb;
          x -= eta * u;
          y -= eta * v;
          if (eta * eta * (u * u + v * v) < update && gw * gw + gb * gb < slope) {
            moving[i] = 0;
            break;
          }
        }
        w[i] = x;
        b[i] = y;
        mw[i] = u;
        mb[i] = v;
      }
      this.steps += steps;
      this.alive = this.alive.filter((i) => moving[i]);
    }

    classOf(i) {
      if (Math.hypot(this.w[i] - 1, this.b[i]) < 0.1) return OPTIMUM;
      return !this.moving[i] && this.b[i] < 0 ? DEAD : OTHER;
    }
  }

  // Every start of a grid over [-extent, extent]^2; rows are b ascending, columns w ascending.
  function gridUnits({ gamma, grid, extent = 2, ...rule }) {
    const at = (k) => (grid === 1 ? 0 : -extent + (2 * extent * k) / (grid - 1)) / gamma;
    const w = Array.from({ length: grid * grid }, (_, k) => at(k % grid));
    const b = Array.from({ length: grid * grid }, (_, k) => at(Math.floor(k / grid)));
    return new Units(w, b, { gamma, ...rule });
  }

  function shares(units) {
    const count = [0, 0, 0];
    for (let i = 0; i < units.w.length; i++) count[units.classOf(i)]++;
    return count.map((c) => (100 * c) / units.w.length);
  }

  // The path of one start, in parameters, thinned to at most `points` records.
  function trace(w, b, rule, maxSteps = 50000, points = 2000) {
    const unit = new Units([w / rule.gamma], [b / rule.gamma], rule);
    const path = [[w, b]];
    let every = 1;
    while (unit.alive.length && unit.steps < maxSteps) {
      unit.advance(Math.min(every, maxSteps - unit.steps));
      path.push([unit.w[0] * rule.gamma, unit.b[0] * rule.gamma]);
      if (path.length >= points / 2) every = Math.ceil(maxSteps / (points / 2));
    }
    return { path, steps: unit.steps, end: unit.classOf(0), moving: unit.alive.length > 0 };
  }

  globalThis.relunormExplorer = globalThis.relunormExplorer || {};
  globalThis.relunormExplorer.unitMath = {
    OPTIMUM, DEAD, OTHER, deadBelow, firing, gridUnits, shares, trace,
  };
})();
