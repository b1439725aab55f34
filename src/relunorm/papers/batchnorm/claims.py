"""What the tables of seed 004's figures and of three of its theorems say."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from relunorm.papers.claim import Check, Claim
from relunorm.papers.exhibit import Exhibit, shows

Judge = Callable[[Exhibit, bool], Iterable[Claim]]


@shows("Figure 2", cost=15)
def figure2(found: Exhibit, full: bool) -> list[Claim]:
    """He initialization from a low rank, against batch norm, same optimizer, greatest depth."""
    depth = max(found.column("depth"))
    where = {"set-up": "same optimizer", "depth": depth}

    def at(column: str, arm: str) -> float:
        return found.value(column, arm=arm, **where)

    he, norm = "no batch norm, He init", "batch norm, default init"
    low = at("rank at start", he) / at("rank at start", norm)
    return [
        Claim(
            "Figure 2",
            "without batch norm, He initialization trains to high accuracy from a low rank",
            Check(
                f"training accuracy at depth {depth}, rank {low:.0%} of batch norm's",
                at("train accuracy", he) if low < 0.5 else 0.0,
                ">=",
                0.95,
            ),
        )
    ]


@shows("Figure 3", "Figure 3, the cluster is one point", cost=0.5)
def figure3(found: Exhibit, full: bool) -> list[Claim]:
    """One odd point, orthogonal to a cluster that stays open."""
    from relunorm.batchnorm.fixed_points import odd_state

    value = dict(zip(found.column("quantity"), found.column("measured"), strict=True))
    within = value["angle within the cluster (degrees)"]
    state = odd_state(found.settings["n"])
    attractor = math.degrees(state.angle) if state is not None else math.nan
    return [
        Claim(
            "Figure 3",
            "one point escapes, orthogonal to the cluster of the others",
            Check(
                "degrees between it and the cluster",
                value["angle odd point - cluster (degrees)"]
                if value["odd points"] == 1
                else math.nan,
                "=",
                90,
                3,
            ),
        ),
        Claim(
            "Figure 3, the cluster is one point",
            "the other points collapse to one",
            Check("degrees within the cluster", within, "<=", 2),
            "they settle at an equiangular cluster, about 3 pi/n",
            Check("degrees within the cluster", within, "=", attractor, 0.25 * attractor),
        ),
    ]


@shows("Figure 5, no recentering", "Figure 5, statistic of (2)", "Figure 5, full", cost=6)
def figure5(found: Exhibit, full: bool) -> list[Claim]:
    """Angles after 30 layers, of the inputs as given, which every arm has."""

    def angle(name: str, n: int) -> float:
        return found.value("mean angle", normalization=name, inputs="as given", n=n)

    rms, std, both = "rms, no recentering", "std, no recentering (eq. 2)", "full"
    return [
        Claim(
            "Figure 5, no recentering",
            "about 60 degrees without recentering",
            Check("degrees at n = 100, second moment", angle(rms, 100), "=", 60, 2),
        ),
        Claim(
            "Figure 5, statistic of (2)",
            "rescaling is by the deviation (2) about the mean",
            Check("degrees at n = 10 with (2)", angle(std, 10), "=", 60, 2),
            "by the second moment; (2) without recentering collapses the batch",
            Check("degrees at n = 10 with the second moment", angle(rms, 10), "=", 60, 2),
        ),
        Claim(
            "Figure 5, full",
            "about 75 degrees with recentering",
            Check("degrees at n = 100", angle(both, 100), "=", 75, 0.5),
            "arccos J(-1/(n-1)): 75 for n of 9 or 10, 71.74 at n = 100",
            Check("degrees at n = 100", angle(both, 100), "=", 71.74, 0.5),
        ),
    ]


@shows("Figure 6", cost=1)
def figure6(found: Exhibit, full: bool) -> list[Claim]:
    """Broadly responding neurons."""
    broad = [
        found.value("broadly responding %", normalization=name)
        for name in ("rms, no recentering", "full")
    ]
    return [
        Claim(
            "Figure 6",
            "without recentering some neurons respond to most inputs, with it hardly any",
            Check(
                "percent of neurons active on 90% of inputs, without less with",
                broad[0] - broad[1] if broad[1] <= 1 else -math.inf,
                ">",
                1,
            ),
        )
    ]


@shows("Section III: every batch", cost=1)
def attractor_angle(found: Exhibit, full: bool) -> list[Claim]:
    """Which batch sizes have a state with an odd point."""
    sizes = [
        n
        for n, a in zip(found.column("n"), found.column("cluster angle"), strict=True)
        if math.isfinite(a)
    ]
    symmetric = max(found.column("symmetric rate"))
    return [
        Claim(
            "Section III: every batch",
            "after enough layers every batch has one odd point",
            Check("smallest batch with such a state at infinite width", min(sizes), "<=", 3),
            "none for n <= 6; the symmetric state attracts too, so finite width decides the onset",
            Check(
                "smallest batch with such a state",
                min(sizes) if symmetric < 1 else math.nan,
                "=",
                7,
            ),
        )
    ]


@shows("erratum: onset and width", cost=1)
def onset_width(found: Exhibit, full: bool) -> list[Claim]:
    """The layer where a point escapes."""
    onsets = found.column("median onset")
    return [
        Claim(
            "erratum: onset and width",
            "a property of the infinite-width expectation, so the width does not matter",
            Check("median onset, widest over narrowest", onsets[-1] / onsets[0], "<=", 1.5),
            "later in wider networks: fluctuations carry the batch out of the symmetric state",
            Check("median onset, widest over narrowest", onsets[-1] / onsets[0], ">", 1.5),
        )
    ]


@shows("Definition 1, example", "Theorem 3, item 1", "derived: n/(2 gamma)", cost=0.5)
def theorem3(found: Exhibit, full: bool) -> list[Claim]:
    """Neurons until full rank."""
    columns = ("gamma", "printed gamma", "E[y]", "error", "n/(2 gamma)", "n/gamma", "n")
    own, printed, mean, error, sharper, bound, n = (found.column(name) for name in columns)
    upper = [m + 4 * e for m, e in zip(mean, error, strict=True)]
    return [
        Claim(
            "Definition 1, example",
            "n equally spaced points, n odd: gamma = 1/n",
            Check("largest difference", _apart(own, printed), "<=", 1e-9),
            "2n cells, gamma = 1/(2n)",
            Check("largest difference", _apart(own, [1 / (2 * k) for k in n]), "<=", 1e-9),
        ),
        Claim(
            "Theorem 3, item 1",
            "E[y] <= n/gamma neurons until full rank",
            Check("largest E[y] (+ 4 errors) over the bound", _most(upper, bound), "<=", 1),
        ),
        Claim(
            "derived: n/(2 gamma)",
            "(in no paper) half of that suffices",
            Check("largest E[y] (+ 4 errors) over n/(2 gamma)", _most(upper, sharper), "<=", 1),
        ),
    ]


@shows("Theorem 11, item 3", "Theorem 11, item 4", "derived: sharp limits of the tree", cost=6)
def theorem11(found: Exhibit, full: bool) -> list[Claim]:
    """Limits of the tree model."""
    n = found.column("n")
    largest, bound = found.column("to")[: len(n)], found.column("printed bound")
    least, printed_angle = found.column("angle from"), found.column("printed bound ")
    sharp = [math.sqrt(2 / ((k - 1) ** 2 + 1)) for k in n]
    return [
        Claim(
            "Theorem 11, item 3",
            "cluster norm over odd norm is at most 3/(n-2) in the limit",
            Check("largest ratio over the bound", _most(largest, bound), "<=", 1),
        ),
        Claim(
            "Theorem 11, item 4",
            "the cluster is within sqrt(2) pi/(n-2) of orthogonal to the odd point",
            Check("largest bound over angle", _most(printed_angle, least), "<=", 1),
        ),
        Claim(
            "derived: sharp limits of the tree",
            "(in no paper) the ratio is sqrt((1+r)/((n-1)^2+r)), r in [0, 1]",
            Check("largest ratio over its largest value", _most(largest, sharp), "<=", 1 + 1e-9),
        ),
    ]


@shows("Definition 12", "Theorem 13", cost=0.1)
def theorem13(found: Exhibit, full: bool) -> list[Claim]:
    """The invariant representation under one layer."""
    invariant = all(found.column("expected Gram invariant"))
    norm = found.column("|E x_1|^2")[0]
    return [
        Claim(
            "Definition 12",
            "one odd point and a cluster at one point: a layer reproduces it (its Gram matrix)",
            Check(
                "batch sizes for which the expected Gram matrix does not",
                0 if invariant else 1,
                "=",
                0,
            ),
        ),
        Claim(
            "Theorem 13",
            "the expectation of the next layer is invariant",
            Check("|E x_1|^2, which has to be 1", norm, "=", 1, 1e-9),
            "its expected Gram matrix is; |E x_1|^2 = 1/pi",
            Check(
                "|E x_1|^2",
                norm if invariant else math.nan,
                "=",
                1 / math.pi,
                1e-9,
            ),
        ),
    ]


@shows("Discussion: one neuron per point", cost=1)
def initialization(found: Exhibit, full: bool) -> list[Claim]:
    """Test accuracy of the Discussion's initialization against He's."""
    size = max(found.column("training points"))
    test = dict(
        zip(
            found.column("initialization", training_points=size),
            found.column("test", training_points=size),
            strict=True,
        )
    )
    ours = max(v for k, v in test.items() if k.startswith("datapoint"))
    return [
        Claim(
            "Discussion: one neuron per point",
            "one neuron per data point may be a good start for small sets",
            Check(f"test accuracy with {size} points less He's", ours - test["He"], ">=", 0),
            short="" if full else "{epochs} epochs, {seeds} seeds".format(**found.settings),
        )
    ]


def _apart(a: list[float], b: list[float]) -> float:
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


def _most(a: list[float], b: list[float]) -> float:
    return max(x / y for x, y in zip(a, b, strict=True))


JUDGES: dict[str, Judge] = {
    "figure2": figure2,
    "figure3": figure3,
    "figure5": figure5,
    "figure6": figure6,
    "attractor_angle": attractor_angle,
    "onset_width": onset_width,
    "theorem3": theorem3,
    "theorem11": theorem11,
    "theorem13": theorem13,
    "initialization": initialization,
}
