"""What an exhibit takes as given: its data, its sizes and the laws it computes with.

An exhibit is a function of a world and of nothing else. A paper's own world names every ingredient
that its claims rest on (a normal form, a gradient, a kernel, a training run), each defaulting to
the real one. A planted world replaces one of them by a wrong one, and the verdict has to change:
that is what makes a verdict worth having (tests/papers/test_planted.py runs one for every claim).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from relunorm.errors import InvalidInputError
from relunorm.network import Activation, Network
from relunorm.papers.exhibit import Sample

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """Data, sizes and seed of a run; a paper's world adds the laws.

    Attributes:
        data: the user's table or scikit-learn's; None where an exhibit generates its own.
        full: the sizes of the paper instead of quick ones.
        random_state: every random number follows from it.
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
