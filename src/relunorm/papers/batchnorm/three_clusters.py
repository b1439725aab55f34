"""Appendix E of seed 004: what rows of three clusters add to the proof of Theorem 11."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from relunorm.papers import words_of
from relunorm.papers.batchnorm.limit import split_weights
from relunorm.papers.batchnorm.tree import brute_force
from relunorm.papers.claim import ROUNDING
from relunorm.papers.exhibit import Exhibit

if TYPE_CHECKING:
    from relunorm.papers.batchnorm import BatchNorm

claim, exhibit = words_of("batchnorm")

Array = NDArray[np.float64]
#: Layers after which rows of three clusters, and splits but the most unbalanced ones, have faded.
LONG = 400


def appendix_e(world: BatchNorm) -> Exhibit:
    """Rows of two and of three clusters through one layer, through seven row by row, and through
    400 by their splits; deep trees of random and of symmetric batches; small trees row by row."""
    rng = world.rng
    below, above = _descendants(world)
    norms, products, matching = _compositions(world, rng)
    by_two, rest = _only_two(world)
    second, cosines, wrong_norm, right_norm, largest = _second_point(world, rng)
    printed_d, true_d = _cumulative(world)
    at_first, at_last, drift = _four_weights(world, rng)
    allowed = _allowed_deficit()
    return exhibit(
        world.settings(),
        "appendix_e",
        claim("Appendix E: the middle cluster is one point", _middle(world, rng)),
        claim("Appendix E: 2^T rows at layer T", below, above),
        claim(
            "Appendix E: (61)-(62) three-cluster rows",
            _three_rows(world, (3,)),
            _three_rows(world, (4, 5, 8, 50)),
        ),
        claim("Appendix E: (63)-(65) norms by composition", norms),
        claim("Appendix E: i in {3, n-2}", matching, matching),
        claim(
            "Appendix E: (66)-(73) norm ratios",
            rest if abs(by_two - 1) <= ROUNDING else math.nan,
            by_two=by_two,
        ),
        claim("Appendix E: after (71) A, B, C and D are positive", at_first, at_last),
        claim("Appendix E: after (71) the ratio converges", drift),
        claim("Appendix E: (74)-(80) the second point", largest if second <= 1e-6 else math.nan),
        claim("Appendix E: D(T)", printed_d, true_d),
        claim("Appendix E: (81)-(86) cosines", products),
        claim("Appendix E: (89)-(94) cosines of the second point", cosines),
        claim("Appendix E: (92) its norms", wrong_norm, right_norm),
        claim("Appendix E: (87) and (88)", allowed, allowed, constant=world.angle_constant(3)),
    )


def _allowed_deficit() -> float:
    """pi/2 less the angle whose cosine is (85), largest over (A+C)/(B+D) >= 1, times n - 2."""
    n, r = np.meshgrid(np.arange(3.0, 1001.0), np.linspace(1, 5, 41))
    cosine = np.minimum(1.0, 4 / np.sqrt((r + 1) * ((n - 2) ** 2 * r + 1)))
    return float((np.arcsin(cosine) * (n - 2)).max())


def _four_weights(world: BatchNorm, rng: np.random.Generator) -> tuple[float, float, float]:
    """The least of A, B, C, D for the batch 0 to 4 at layer 1; the least share of one 60 layers on;
    and the change of (A + C)/(B + D) over the second half of LONG layers; of several batches."""
    batches = [
        np.arange(5.0),
        np.arange(6.0),
        *np.sort(rng.normal(size=(world.size(5, 5, 1), 8)), axis=1),
    ]
    first, share, drift = math.nan, [], []
    for x in batches:
        weights = split_weights(world, x, LONG)[0]
        four = weights[:, [1, -1, 2, -2]]
        first = float(four[1].min()) if x is batches[0] else first
        share.append(four[60].min() / weights[60].sum())
        ratio = (four[:, 0] + four[:, 2]) / np.maximum(four[:, 1] + four[:, 3], 1e-300)
        drift.append(abs(ratio[LONG] / ratio[LONG // 2] - 1))
    return first, float(min(share)), float(max(drift))


def _middle(world: BatchNorm, rng: np.random.Generator) -> float:
    """The largest middle cluster of a row with three, trees of five and six points."""
    sizes = []
    for n in (5, 6):
        for row in brute_force(world, np.sort(rng.normal(size=n))[None], 9)[-1]:
            if len(set(row.tolist())) == 3:
                sizes.append(int(np.unique(row, return_counts=True)[1][1]))
    return float(max(sizes, default=math.nan))


def _descendants(world: BatchNorm) -> tuple[int, float]:
    """Rows that a row of three clusters at layer 2 has at layer 3, and at layer 5 if one of these
    has three clusters."""
    layers = brute_force(world, np.array([[0.0, 0.7, 1.9, 1.9, 1.9]]), 3)
    three = sum(len(set(row)) == 3 for row in layers[3].tolist())
    return len(layers[1]), float(len(layers[3])) if three == 1 else math.nan


def _rows(n: int, split: int, coordinate: float) -> Array:
    """The two rows whose first ``split`` points are one cluster: positive right, positive left."""
    right = np.r_[np.zeros(split), np.full(n - split, coordinate)]
    return np.stack([right, coordinate - right])


def _children(world: BatchNorm, rows: Array) -> Array:
    return np.stack([f(row) for row in rows for f in (world.positive, world.negative)])


def _norms(n: int, a: float, b: float, c: float, d: float) -> tuple[float, float, float]:
    """(63)-(65) times n^2: of x_i, x_1 and x_n."""
    return (
        a + b + 4 * c + 4 * d,
        (n - 1) ** 2 * a + b + (n - 2) ** 2 * c + 4 * d,
        a + (n - 1) ** 2 * b + 4 * c + (n - 2) ** 2 * d,
    )


def _compositions(world: BatchNorm, rng: np.random.Generator) -> tuple[float, float, int]:
    """(63)-(65), and (81), (82), (84), against the children of rows of the four compositions, off
    by at most; and the inner points of n = 8 whose norm is (63)."""
    norms_off = products_off = 0.0
    matching = 0
    for n in (5, 8, 20):
        drawn = zip((1, n - 1, 2, n - 2), 1 + rng.random(4), strict=True)
        parts = [_rows(n, m, v) for m, v in drawn]
        a, b, c, d = (float((part.max(axis=1) ** 2).sum()) for part in parts)
        kids = n * _children(world, np.vstack(parts))
        gram = kids.T @ kids
        inner, first, last = _norms(n, a, b, c, d)
        found = np.diag(gram)
        off = [abs(found[0] / first - 1), abs(found[-1] / last - 1)]
        off += list(np.abs(found[2:-2] / inner - 1))
        norms_off = max(norms_off, *off)
        cosine = (b + 4 * d) / math.sqrt(inner * first)
        for i in range(2, n - 2):
            own = gram[i, 0] / math.sqrt(found[i] * found[0])
            bound = 4 / math.sqrt(((a + c) / (b + d) + 1) * ((n - 2) ** 2 * (a + c) / (b + d) + 1))
            gaps = (gram[i, 0] / (b + 4 * d), gram[i, -1] / (a + 4 * c), own / cosine)
            products_off = max(products_off, *(abs(gap - 1) for gap in gaps))
            products_off = products_off if own <= bound else math.inf
        if n == 8:
            matching = int((np.abs(found[1:-1] / inner - 1) <= ROUNDING).sum())
    return norms_off, products_off, matching


def _only_two(world: BatchNorm) -> tuple[float, float]:
    """(66) over (68) for rows (2, n-2) alone; and the smaller ratio over 8/(n-2)^2 for as many rows
    (n-2, 2), n = 100."""
    n, found = 100, []
    for splits in ((2,), (2, n - 2)):
        kids = _children(world, np.vstack([_rows(n, m, 1.0) for m in splits]))
        squares = (kids**2).sum(axis=0)
        found.append(float(squares[4] / max(squares[0], squares[-1])))
    return found[0] * (n - 2) ** 2 / 4, found[1] * (n - 2) ** 2 / 8


def _second_point(
    world: BatchNorm, rng: np.random.Generator
) -> tuple[float, float, float, float, float]:
    """Over deep trees: how far (77), (78) and (91) are off, (92) as printed and with |x_n|; and the
    largest smaller squared ratio of point 2 over 2/(n-1)^2."""
    ratios = cosines = printed = right = top = 0.0
    half = np.sort(rng.random(10)) + 0.1
    batches = [np.sort(rng.normal(size=n)) for n in (5, 10, 20)] + [np.r_[-half[::-1], half]]
    for x in batches:
        n, gram = len(x), world.tree(x).jump(20_000).gram(normalize=True)
        to_first, to_last = gram[1, 0], gram[1, -1]  # (89), (90)
        r = to_first / to_last  # (B + D)/(A + C)
        squares = gram[1, 1] / np.array([gram[0, 0], gram[-1, -1]])
        wanted = [(1 + s) / ((n - 1) ** 2 + s) for s in (r, 1 / r)]
        ratios = max(ratios, *np.abs(squares / wanted - 1))
        top = max(top, min(squares) * (n - 1) ** 2 / 2)
        norms = np.sqrt(np.diag(gram))
        at91, at92 = (1 / math.sqrt((1 + (n - 1) ** 2 / s) * (1 + 1 / s)) for s in (r, 1 / r))
        cosines = max(cosines, abs(to_first / norms[1] / norms[0] - at91))
        if min(at91, at92) > (1 + 1e-6) / (math.sqrt(2) * (n - 1)):
            cosines = math.inf
        printed = max(printed, abs(to_last / norms[1] / norms[0] / at92 - 1))
        right = max(right, abs(to_last / norms[1] / norms[-1] / at92 - 1))
    return float(ratios), float(cosines), float(printed), float(right), float(top)


def _cumulative(world: BatchNorm) -> tuple[float, float]:
    """How far (76) is off for one row (1, 1, 6) and one (6, 1, 1), with D(T) taken of the rows
    (1, 1, 6) again, and of (6, 1, 1)."""
    n = 8
    left = np.r_[0.0, 0.6, np.full(n - 2, 1.0)]
    first, second = (split_weights(world, row, LONG)[0][-1] for row in (left, 3 * left[::-1]))
    m = np.arange(1, n)
    truth = float((((m / n) ** 2) * (first + second)[1:]).sum())  # |x_n|^2 one layer on
    wanted = [(first[1] + (n - 1) ** 2 * d) / n**2 for d in (first[1], second[n - 1])]
    return abs(truth / wanted[0] - 1), abs(truth / wanted[1] - 1)


def _three_rows(world: BatchNorm, sizes: tuple[int, ...]) -> float:
    """The largest of: (61) over (62), the rate of (62) over that of (40), and for small n the
    three-cluster row over its bound and its rows (2, n-2) over (61), T = 2 to 7."""
    worst = 0.0
    for n in sizes:
        a, q = ((n - 1) / n) ** 2, (4 + (n - 2) ** 2) / n**2

        def sum61(layers: int, a: float = a, q: float = q, n: int = n) -> float:
            total = sum(a**s * q ** (layers - 1 - s) for s in range(1, layers))
            return ((n - 2) / n) ** 2 * total

        for layers in (3, 10, 100):
            bound = ((n - 2) / n) ** 2 * (n - 1) ** 2 / (2 * n - 7) * a ** (layers - 1)
            worst = max(worst, sum61(layers) / bound if bound > 0 else math.inf)
        worst = max(worst, a / (a + 1 / n**2))
        for middle in (0.05, 0.5, 0.95) if 3 < n < 10 else ():
            left = np.r_[0.0, middle, np.ones(n - 2)]
            for row, split in ((left, 2), (1 - left, 2), (left[::-1], n - 2)):
                rows = row[None]
                for layers in range(1, 8):
                    rows = _children(world, rows)
                    counts = np.array([len(set(r)) for r in rows.tolist()])
                    three = rows[counts == 3]
                    top = float(three.max(initial=0.0)) / ((n - 1) / n) ** layers
                    parts = (rows != rows[:, :1]).argmax(axis=1)
                    apart = rows[(counts == 2) & (parts == split)]
                    added = float((apart**2).sum(axis=0).max(initial=0.0))
                    worst = max(worst, top, added / sum61(layers) if layers > 1 else 0.0)
    return worst
