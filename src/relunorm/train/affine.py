"""How much the affine part has to be held back: a ridge chosen by generalized cross-validation.

With few rows for each input the least-squares plane follows the noise (and with fewer rows than
inputs it passes through every row), whatever the hidden units do.
"""

from __future__ import annotations

import torch
from torch import Tensor

#: Penalties that are tried, relative to inputs and a target of variance one.
RIDGES = tuple(10.0 ** (k / 3) for k in range(-18, 10))

#: Share by which a penalty could lower the score at most where none is looked for, and by which it
#: must lower it; less is not worth a biased plane.
POSSIBLE, MARGIN = 0.1, 0.01


def affine_ridge(x: Tensor, y: Tensor, weight: Tensor) -> float:
    """The penalty beta of min sum_i w_i |y_i - a - S x_i|^2 + beta sum(w) |S|^2, or 0.

    The smallest score of generalized cross-validation (Golub, Heath & Wahba 1979),
    G(beta) = RSS(beta) / (1 - df(beta) / n)^2, df the trace of the hat matrix. It is 0 unless
    G falls by `MARGIN`. Since RSS grows with beta, G(beta) >= (1 - df(0) / n)^2 G(0): about twenty
    rows for each input are enough for 0, and nothing is computed. An estimate; O(n d min(n, d)).

    >>> generator = torch.Generator().manual_seed(0)
    >>> x = torch.randn(1000, 10, dtype=torch.float64, generator=generator)
    >>> y = torch.randn(1000, 1, dtype=torch.float64, generator=generator)
    >>> affine_ridge(x, y, torch.ones(1000, dtype=torch.float64))
    0.0
    >>> affine_ridge(x[:12], y[:12], torch.ones(12, dtype=torch.float64)) > 0.1
    True
    """
    n, d = x.shape
    if d + 1 < n and (1 - (d + 1) / n) ** 2 >= 1 - POSSIBLE:
        return 0.0
    x, y, share = x.double(), y.double(), (weight / weight.sum()).double()
    x, y = ((v - share @ v) * share.sqrt()[:, None] for v in (x, y))
    left, values, _ = torch.linalg.svd(x, full_matrices=False)
    sound = values > 1e-10 * values.amax()
    square = values[sound].square()
    seen = (left[:, sound].mT @ y).square().sum(dim=1)
    outside = (y.square().sum() - seen.sum()).clamp_min(0)

    def score(ridge: float) -> float:
        kept = ridge / (square + ridge)
        free = n - 1 - len(square) + float(kept.sum())
        if free < 1e-6:
            return float("inf")
        return float(outside + (kept.square() * seen).sum()) * (n / free) ** 2

    best = min(RIDGES, key=score)
    return best if score(best) < (1 - MARGIN) * score(0.0) else 0.0
