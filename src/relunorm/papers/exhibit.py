"""What re-running a figure, table or theorem yields: a table, claims, and perhaps a figure; and
what that takes as given.

An exhibit is a function of a world and of nothing else: its data, its sizes and the laws it
computes with. A paper's own world names every ingredient that its claims rest on (a normal form, a
gradient, a kernel, a training run), each defaulting to the real one. A planted world replaces one
of them by a wrong one, and the verdict has to change: that is what makes a verdict worth having
(tests/papers/test_planted.py runs one for every claim).
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from relunorm.atomic import atomic_path
from relunorm.display.shown import entries
from relunorm.errors import InvalidInputError
from relunorm.network import Activation, Network
from relunorm.papers.claim import Check, Claim


@dataclass(frozen=True, eq=False)
class Sample:
    """The data an exhibit runs on: points (n, d), class labels or targets where there are any, and
    where it came from.
    """

    x: NDArray[np.float64]
    y: NDArray[Any] | None
    source: str

    @classmethod
    def digits(cls) -> Sample:
        """The 1,797 8 x 8 digits that scikit-learn carries, scaled to [0, 1]."""
        from sklearn.datasets import load_digits

        bunch: Any = load_digits()
        return cls(bunch.data / 16.0, bunch.target.astype(np.int64), "scikit-learn digits")

    def subset(self, count: int, random_state: int) -> NDArray[np.float64]:
        """``count`` points drawn without replacement (all of them if there are fewer)."""
        rng = np.random.default_rng(random_state)
        return self.x[rng.permutation(len(self.x))[:count]]


@dataclass(frozen=True, eq=False)
class Exhibit:
    """One reproduced exhibit."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    note: str = ""
    figure: Any = field(default=None, repr=False)
    settings: dict[str, Any] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": "relunorm.exhibit/1",
            **entries(self, "name title columns rows note settings claims"),
        }

    def save(self, folder: str | Path, **more: Any) -> list[Path]:
        """Write NAME.csv, NAME.png and NAME.svg if there is a figure, and NAME.json, which comes
        last: where it is, the others are complete. Returns the paths, NAME.json first.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        table, pictures = folder / f"{self.name}.csv", []
        with atomic_path(table) as path, path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(self.columns)
            writer.writerows(self.rows)
        if self.figure is not None:
            for ending in ("png", "svg"):
                pictures.append(folder / f"{self.name}.{ending}")
                with atomic_path(pictures[-1]) as path:
                    _draw(self.figure, path, ending)
        document = folder / f"{self.name}.json"
        text = json.dumps({**self.to_dict(), **more}, indent=2, allow_nan=False)
        with atomic_path(document) as path:
            path.write_text(text + "\n", encoding="utf-8")
        return [document, table, *pictures]


def _draw(figure: Any, path: Path, ending: str) -> None:
    """The same figure gives the same bytes: no date, and no random names in an SVG."""
    from matplotlib import rc_context

    metadata = {"Date": None} if ending == "svg" else None
    with rc_context({"svg.hashsalt": "relunorm"}):
        figure.savefig(path, dpi=120, format=ending, metadata=metadata)


def empty_figure(
    size: tuple[float, float], rows: int = 1, columns: int = 1, title: str = ""
) -> tuple[Any, Any]:
    """A figure of its own, outside pyplot, and its axes, row by row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    if title:
        figure.suptitle(title)
    return figure, figure.subplots(rows, columns, squeeze=False).ravel()


def margin(check: Check) -> float:
    """The distance of a number from its limit as a share of the larger of the two, 1 at most,
    positive where the check passes; a little at least, so that a bar shows; -1 for NaN.

    >>> margin(Check("x", 1.0, "<=", 4.0)), margin(Check("x", 4.0, "<=", 1.0))
    (0.75, -0.75)
    """
    value, limit = float(check.value), float(check.limit)
    if check.relation == "=":
        value, limit = abs(value - limit), float(check.tolerance)
    scale = max(abs(value), abs(limit))
    if not np.isfinite(scale):
        return 1.0 if check.passed else -1.0
    share = abs(value - limit) / scale if scale else 0.0
    share = min(1.0, max(share, 0.02))
    return share if check.passed else -share


def draw_margins(claims: Sequence[Claim]) -> Any:
    """One bar per check: right of the line it passes, left of it it fails."""
    bars = []
    for claim in claims:
        bars.append((claim.item, margin(claim.check), "as printed"))
        if claim.corrected_check is not None:
            bars.append(("", margin(claim.corrected_check), "corrected"))
    figure, (ax,) = empty_figure((8, 0.9 + 0.26 * len(bars)))
    places = -np.arange(len(bars))
    for kind, color in (("as printed", "C0"), ("corrected", "C1")):
        own = [k for k, bar in enumerate(bars) if bar[2] == kind]
        ax.barh(places[own], [bars[k][1] for k in own], color=color, label=kind)
    ax.axvline(0, color="black", lw=0.8)
    ax.set_yticks(places, [bar[0] for bar in bars], fontsize=8)
    ax.set(xlim=(-1.05, 1.05), xlabel="fails    |    distance from the limit    |    passes")
    ax.legend(fontsize=8, loc="lower right")
    return figure


Make = Callable[..., Exhibit]


def cell(value: Any) -> str:
    """A value of a table as text, four digits of a number."""
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)


T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """Data, sizes and seed of a run; a paper's world adds the laws.

    Attributes:
        data: the user's table or scikit-learn's; None where an exhibit generates its own.
        tiny: the smallest sizes at which a verdict is still decided, for planted worlds.
    """

    data: Sample | None = field(default=None, repr=False)
    full: bool = False
    random_state: int = 0
    tiny: bool = False

    @property
    def sample(self) -> Sample:
        """The data, which has to be there."""
        if self.data is None:
            raise InvalidInputError("this exhibit needs data: a table, or the default of its paper")
        return self.data

    @property
    def rng(self) -> np.random.Generator:
        """A new generator, always from the same state."""
        return np.random.default_rng(self.random_state)

    def size(self, quick: T, full: T, tiny: T | None = None) -> T:
        """The size for this run; ``tiny`` is ``quick`` unless given."""
        if self.full:
            return full
        return quick if tiny is None or not self.tiny else tiny

    def settings(self, **more: Any) -> dict[str, Any]:
        """What an exhibit notes of its run."""
        found: dict[str, Any] = {"random_state": self.random_state, **more}
        if self.data is not None:
            found["data"] = self.data.source
        return found


def he_network(rng: np.random.Generator, widths: tuple[int, ...], bias: float = 0.5) -> Network:
    """Gaussian weights of variance 2 / fan-in and Gaussian biases of deviation ``bias``.

    >>> he_network(np.random.default_rng(0), (3, 5, 1)).widths
    (3, 5, 1)
    """
    shapes = list(pairwise(widths))
    weights = [rng.normal(0, math.sqrt(2 / a), (b, a)) for a, b in shapes]
    return Network.from_weights(weights, [bias * rng.normal(size=b) for _, b in shapes])


def shallow_network(
    rng: np.random.Generator,
    width: int,
    inputs: int,
    activation: Activation | None = None,
    spread: float = 1.0,
) -> Network:
    """One hidden layer, one output, Gaussian entries, biases of deviation ``spread``; the first
    unit's row is zero."""
    w = rng.normal(size=(width, inputs))
    w[0] = 0.0
    b, v = spread * rng.normal(size=width), rng.normal(size=(1, width))
    return Network.from_weights([w, v], [b, [0.0]], activation or Activation("relu"))
