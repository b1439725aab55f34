"""What the tables of seed 002's figures say."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import pairwise

import numpy as np

from relunorm.dying.basins import basin
from relunorm.dying.oscillation import beta_star
from relunorm.papers.claim import Check, Claim
from relunorm.papers.exhibit import Exhibit, shows

Judge = Callable[[Exhibit, bool], Iterable[Claim]]


@shows("Figure 1, error", "Figure 1, dead units", "Figure 1: momentum is the cause", cost=18)
def figure1(found: Exhibit, full: bool) -> list[Claim]:
    """Fit and dead units against the scale of the targets."""
    small, one = min(found.column("gamma")), 1.0

    def dead(optimizer: str, gamma: float) -> float:
        return found.value("dead %", optimizer=optimizer, gamma=gamma)

    error = [found.value("MSE / gamma^2", optimizer="adam", gamma=g) for g in (small, one)]
    rise = {o: dead(o, small) - dead(o, one) for o in ("adam", "sgd")}
    bare = dead("adam beta1=0", small) - dead("adam", small)
    short = "" if full else f"{found.settings['updates']:,} updates, not 250,000"
    return [
        Claim(
            "Figure 1, error",
            "the fit degrades as the targets' scale falls below 1",
            Check(
                f"relative error at gamma {small:g} over that at 1, Adam",
                error[0] / error[1],
                ">",
                1,
            ),
            short=short,
        ),
        Claim(
            "Figure 1, dead units",
            "small targets kill units with Adam and not with SGD",
            Check(
                f"percent more dead at gamma {small:g} than at 1, Adam less SGD",
                rise["adam"] - rise["sgd"] if rise["sgd"] <= 1 else -math.inf,
                ">",
                1,
            ),
            short=short,
        ),
        Claim(
            "Figure 1: momentum is the cause",
            "units die only with momentum",
            Check(
                f"percent dead at gamma {small:g}, Adam without momentum less with", bare, "<=", 0
            ),
            "Adam with beta1 = 0 kills more, so momentum alone is not the cause",
            Check("the same", bare, ">", 0),
            short=short,
        ),
    ]


@shows("Figure 2", cost=0.5)
def figure2(found: Exhibit, full: bool) -> list[Claim]:
    """Where the eigenvalues become complex, by the eigenvalues themselves."""
    eta = found.settings["eta"]
    low, high = 0.0, 1.0
    for _ in range(30):  # bisection on whether the eigenvalues of (20) are a complex pair
        beta = (low + high) / 2
        matrix = np.array([[beta, 1 - beta], [-eta * beta, 1 - eta * (1 - beta)]])
        found_pair = bool(np.abs(np.linalg.eigvals(matrix).imag).max() > 0)
        low, high = (low, beta) if found_pair else (beta, high)
    return [
        Claim(
            "Figure 2",
            "the eigenvalues become complex at beta about 0.7 (eta = 0.1), then paths oscillate",
            Check("beta where they do", high, "=", 0.7, 0.005),
            "above ((1 - eta)/(1 + eta))^2 = 0.66942",
            Check("beta where they do", high, "=", beta_star(eta), 1e-6),
        )
    ]


@shows("Figure 3", "Section 5: lower left quadrant", cost=4)
def figure3(found: Exhibit, full: bool) -> list[Claim]:
    """Which parts of the plane die without momentum."""
    dead = found.value("right half dead %", gamma=0.001)
    lower = found.column("lower left dead %")
    return [
        Claim(
            "Figure 3",
            "at gamma = 0.001 most parameters from the right side end in the dead cone",
            Check("percent of the right half that dies", dead, ">", 50),
        ),
        Claim(
            "Section 5: lower left quadrant",
            "it evolves to the linear cone and then to the ground truth",
            Check("percent of it that dies", max(lower), "<", 50),
            "all of it dies without momentum",
            Check("percent of it that dies", min(lower), "=", 100),
        ),
    ]


@shows("Figure 4", "Figure 4: the majority converges", cost=2)
def figure4(found: Exhibit, full: bool) -> list[Claim]:
    """Basins without momentum."""
    shares = dict(zip(found.column("gamma"), found.column("optimum %"), strict=True))
    return [
        Claim(
            "Figure 4",
            "the region that dies changes with gamma; shares as measured apart from this code",
            Check("largest difference, percent", _apart(found), "<=", 1),
        ),
        Claim(
            "Figure 4: the majority converges",
            "without momentum most starts reach the optimum at every gamma shown",
            Check("smallest share reaching it, percent", min(shares.values()), ">", 50),
            "at gamma 1 and 0.1 only; 26 percent at 0.01 and 14 at 0.001",
            Check("share at gamma 0.1, percent", shares[0.1], ">", 50),
        ),
    ]


@shows("Figure 5", "Figure 5: no change up to beta 0.7", "erratum: momentum at gamma 1", cost=5)
def figure5(found: Exhibit, full: bool) -> list[Claim]:
    """Basins with momentum, beside those without."""
    grid = found.settings["grid"]
    plain = {gamma: basin(gamma, 0.0, grid=grid).optimum for gamma in (1.0, 0.001)}
    small = found.column("optimum %", gamma=0.001)
    rises = max(b - a for a, b in pairwise(small))
    best = found.value("optimum %", gamma=1.0, beta=0.99) - plain[1.0]
    return [
        Claim(
            "Figure 5",
            "at gamma = 0.001 momentum leads to ever more dying; shares as measured elsewhere",
            Check(
                "largest rise of the optimum's share with beta, percent",
                rises if _apart(found) <= 1 else math.inf,
                "<=",
                0.1,
            ),
        ),
        Claim(
            "Figure 5: no change up to beta 0.7",
            "up to beta = 0.7 the results are those without momentum",
            Check(
                "change of the share at gamma 0.001, percent",
                abs(found.value("optimum %", gamma=0.001, beta=0.7) - plain[0.001]),
                "<=",
                1,
            ),
            "the share falls already there, though nothing oscillates",
            Check(
                "share without momentum less that at 0.7, percent",
                plain[0.001] - found.value("optimum %", gamma=0.001, beta=0.7),
                ">",
                1,
            ),
        ),
        Claim(
            "erratum: momentum at gamma 1",
            "momentum makes dying worse",
            Check("change of the optimum's share at gamma 1, beta 0.99, percent", best, "<", 0),
            "it helps at gamma = 1 and hurts at small gamma",
            Check("the same", best, ">", 0),
        ),
    ]


@shows(
    "Figure 6, born dead",
    "Figure 6, depth",
    "Figure 6, residual depth",
    "Figure 6, SGD",
    cost=18,
)
def figure6(found: Exhibit, full: bool) -> list[Claim]:
    """Dead units in deeper networks."""
    born, dead = "born dead % (worst layer)", "dead % (worst layer)"
    low, high = min(found.column("depth")), max(found.column("depth"))
    residual = max(found.column(born, network="residual"))
    mlp = found.value(born, network="mlp", optimizer="adam", depth=high)
    deeper = {
        kind: found.value(dead, network=kind, optimizer="adam", depth=high)
        - found.value(dead, network=kind, optimizer="adam", depth=low)
        for kind in ("mlp", "residual")
    }
    by_sgd = [
        b - a
        for a, b in zip(
            found.column(born, optimizer="sgd"), found.column(dead, optimizer="sgd"), strict=True
        )
    ]
    updates = found.settings["updates"]
    return [
        Claim(
            "Figure 6, born dead",
            "units of deep perceptrons are born dead, those of residual networks are not",
            Check(
                "percent of the worst layer born dead, perceptron",
                mlp if residual == 0 else -math.inf,
                ">",
                0,
            ),
        ),
        Claim(
            "Figure 6, depth",
            "deeper perceptrons die more",
            Check("percent more dead in the deepest than with one layer", deeper["mlp"], ">", 0),
            short=f"{updates:,} updates",
        ),
        Claim(
            "Figure 6, residual depth",
            "deeper residual networks with batch norm die more too",
            Check(
                "percent more dead in the deepest than with one block", deeper["residual"], ">", 0
            ),
            # the paper prints neither its residual block nor how long it trains
            short=f"{updates:,} updates of blocks x + W relu(BN(x))",
        ),
        Claim(
            "Figure 6, SGD",
            "SGD adds no dead units during training",
            Check("most percent added", max(by_sgd), "<=", 2),
        ),
    ]


def _apart(found: Exhibit) -> float:
    """Largest difference from the shares that were measured apart from this code."""
    pairs = zip(found.column("optimum %"), found.column("measured elsewhere"), strict=True)
    return max(abs(own - other) for own, other in pairs if other is not None)


JUDGES: dict[str, Judge] = {
    "figure1": figure1,
    "figure2": figure2,
    "figure3": figure3,
    "figure4": figure4,
    "figure5": figure5,
    "figure6": figure6,
}
