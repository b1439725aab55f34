"""A batch through a deep random network whose batch normalization is taken apart.

Three ways to the same layer: weights drawn one by one; the pre-activations drawn directly, for
given the layer before, the rows of WX are independent N(0, G), so Z = randn(width, n) G^1/2 has
exactly the same law without a width^2 matrix; and infinite width, where the Gram matrix moves by a
deterministic map (`gram_step`). Equal points are carried once, with their number as a weight, so
they are equal at every depth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunorm.arguments import generator, points, resolve_statistic, switch, whole_number
from relunorm.batchnorm.gram import (
    ODD_NORM_GAP,
    EqualPoints,
    Statistic,
    merged_step,
    nonlinearity_slope,
    odd_points,
    pair_angles,
)
from relunorm.batchnorm.random_layer import RandomLayer
from relunorm.clock import Clock, Listener, Teller
from relunorm.errors import InvalidInputError

Method = Literal["weights", "gram", "infinite"]


@dataclass(frozen=True, eq=False)
class Propagation:
    """The geometry of a batch through depth.

    Attributes:
        grams: (layers + 1, n, n); entry 0 is the input. Each is scaled to trace n (the
            non-linearity is homogeneous, so angles and ratios of norms are unaffected).
        log_scale: log of the factor taken out of each Gram matrix <x_i, x_j> of activations. (With
            rescaling that matrix grows with the width, so the infinite-width map's is stated for
            ``width`` neurons.)
        activations: (n, width) of the last layer, scaled like its Gram matrix; None at infinite
            width.
        complete: False if the run was stopped early (interrupt or time limit); what was done is
            kept.
        options: the parts switched on, width, method and random state.
    """

    grams: NDArray[np.float64]
    log_scale: NDArray[np.float64]
    activations: NDArray[np.float64] | None
    complete: bool
    options: dict[str, Any] = field(repr=False)

    @property
    def layers(self) -> int:
        """How many layers were taken."""
        return len(self.grams) - 1

    def angles(self, layer: int = -1) -> NDArray[np.float64]:
        """Angles of all pairs i < j after a layer, radians."""
        return pair_angles(self.grams[layer])

    def mean_angles(self) -> NDArray[np.float64]:
        """Mean pairwise angle after every layer, radians; NaN where no pair has one."""
        return np.array([_mean(pair_angles(g)) for g in self.grams])

    def onset(self, **thresholds: float) -> int | None:
        """The first layer with an odd point (`odd_points`), or None."""
        asked = thresholds.get("norm_gap", ODD_NORM_GAP)
        squares = np.maximum(np.diagonal(self.grams, axis1=1, axis2=2), 0.0)
        norms = np.sqrt(np.sort(squares)[:, ::-1])
        with np.errstate(divide="ignore", invalid="ignore"):
            gaps = norms[:, :-1][:, :2] / norms[:, 1:3]
        # no angle makes a point odd whose norm is not
        for layer in np.flatnonzero(~(gaps < asked).all(axis=1)):
            if odd_points(self.grams[layer], **thresholds).count:
                return int(layer)
        return None

    def to_dict(self) -> dict[str, Any]:
        odd = odd_points(self.grams[-1])
        return {
            "schema": "relunorm.propagation/1",
            "options": self.options,
            "layers": self.layers,
            "complete": self.complete,
            "mean_angles": [None if np.isnan(a) else float(a) for a in self.mean_angles()],
            "log_scale": self.log_scale.tolist(),
            "odd": odd.to_dict(),
        }

    def __repr__(self) -> str:
        angle = np.degrees(_mean(self.angles()))
        last = (
            "no pair of points with an angle"
            if np.isnan(angle)
            else f"mean angle {angle:.2f} degrees"
        )
        return f"Propagation({self.layers} layers, n={self.grams.shape[1]}, {last} after the last)"


def propagate(
    X: ArrayLike,
    layers: int,
    width: int = 1000,
    nl: str | float = "relu",
    recenter: bool = True,
    rescale: bool = True,
    *,
    statistic: Statistic = "auto",
    method: Method = "gram",
    random_state: int | np.random.Generator | None = 0,
    progress: Listener | None = None,
    time_limit: float | Clock | None = None,
) -> Propagation:
    """Send a batch through a deep random network at initialization (seed 004, eq. 1-4).

    Args:
        X: (n, d), one row per point.
        layers, width: depth and width; at infinite width it enters ``log_scale`` alone.
        nl: "relu", "linear", or the slope of a leaky ReLU.
        recenter, rescale: the parts of batch normalization before the non-linearity.
        statistic: what rescaling divides by: "rms", "std", or "auto" (rms without recentering).
        method: "weights" (Gaussian weights of variance 2/width), "gram" (same law, no weight
            matrix) or "infinite" (the infinite-width map).
        progress: called with a `Progress` of the layers done.
        time_limit: seconds after which to stop and return what was done.

    Exact in law for "weights" and "gram"; "infinite" is the limit, deterministic. A neuron whose
    statistic is 0 (constant over the batch, recentered) responds with 0. Equal points stay equal.
    Distances are right down to rounding (2^-52 of the norm) for "weights" and "gram"; the
    infinite-width map, a function of a Gram matrix in floats, tells points apart from an angle of
    about 1e-7 on.

    >>> propagate(np.eye(5), 3, 50, random_state=0).layers
    3
    """
    recenter, rescale = switch("recenter", recenter), switch("rescale", rescale)
    kind = resolve_statistic(statistic, recenter) if rescale else None
    given, shift, equal = _batch(X, recenter, kind)
    layers, width = whole_number("layers", layers, 0), whole_number("width", width, 1)
    if method not in ("weights", "gram", "infinite"):
        raise InvalidInputError(f"method {method!r} is not known; use weights, gram or infinite")
    slope = nonlinearity_slope(nl)
    clock = Clock(time_limit)
    rng, tell = generator(random_state), Teller(progress, clock)
    options: dict[str, Any] = {
        "width": width,
        "nl": nl,
        "recenter": recenter,
        "rescale": rescale,
        "statistic": kind,
        "method": method,
        "random_state": _seed(random_state),
    }
    counts = equal.counts
    gram, log = _unit(given @ given.T, counts)
    taken = [(gram, log + shift)]
    start = given * np.exp(-log / 2)
    state = start
    if recenter:
        # a large mean would drown the rest in the squares; the first layer removes it anyway
        state, more = _scaled(given - counts @ given / counts.sum())
        shift += more
        gram, log = _unit(state @ state.T, counts)
        state = state * np.exp(-log / 2)
    log += shift
    complete = True
    draw = RandomLayer(counts, width, slope, recenter, kind, rng)
    made = 0.0  # log scale still in the activations
    try:
        for layer in range(layers):
            if clock.expired():
                complete = False
                break
            new = state
            if method == "infinite":
                after = merged_step(gram, counts, slope, recenter, kind)
                gram, shift = _unit(after, counts)
                # the map is 2 E[f f'], the mean over neurons of variance 2
                shift += np.log(width / 2) if rescale else 0.0
            else:
                # fewer inputs than points: a singular Gram matrix, and few weights
                few = layer == 0 and state.shape[1] < len(state) and not draw.wishart
                if method == "weights" or few:
                    new = draw.by_weights(state * np.exp(-made / 2))
                else:
                    new = draw.by_gram(gram, state)
                with np.errstate(over="ignore", invalid="ignore"):  # `_unit` tells
                    gram, shift = _unit(new @ new.T, counts)
            # rescaling forgets the scale that came before
            log = shift if rescale else log + shift
            taken.append((gram, log))
            state, made = new, shift
            tell("layers", layer + 1, layers)
    except KeyboardInterrupt:
        complete = False
    if len(taken) == 1:  # of the input itself, not recentered
        state = start
    elif method == "gram":
        state = draw.full(state)
    kept = None if method == "infinite" else equal.expand(state * np.exp(-made / 2), 0)
    grams, logs = zip(*taken, strict=True)
    whole = equal.expand(np.array(grams), 1, 2)
    return Propagation(whole, np.array(logs), kept, complete, options)


def _mean(angles: NDArray[np.float64]) -> float:
    known = angles[~np.isnan(angles)]
    return float(known.mean()) if len(known) else float("nan")


def _unit(
    gram: NDArray[np.float64], counts: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float]:
    """The Gram matrix with the batch's trace, n, and the log of the factor taken out."""
    scale = float(counts @ gram.diagonal() / counts.sum())
    if not np.isfinite(scale):
        raise InvalidInputError(
            "the activations overflowed: their squares are beyond what floats hold; use a smaller "
            "slope of the non-linearity"
        )
    if not scale > 0:
        raise InvalidInputError(
            "the whole batch was mapped to 0: every neuron is silent on every point; use "
            "a larger width"
        )
    return gram * (1 / scale), math.log(scale)


def _batch(
    X: Any, recenter: bool, statistic: str | None
) -> tuple[NDArray[np.float64], float, EqualPoints]:
    """The different points scaled to entries near 1, the log of what that takes out of squares,
    and which points of the batch are equal.
    """
    X = points(X)
    if recenter and len(X) < 2:
        raise InvalidInputError("recentering needs at least two points, the batch has one")
    equal = EqualPoints.of(X)
    if len(equal.first) == 1 and (recenter or statistic == "std"):
        does = "recentering sends them to 0" if recenter else "their standard deviation is 0"
        raise InvalidInputError(f"all {len(X)} points of the batch are equal: {does}")
    if not X.any():
        raise InvalidInputError("the batch is all zeros, so every layer is")
    return *_scaled(X[equal.first]), equal


def _scaled(X: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    exponent = int(np.frexp(np.abs(X).max())[1])
    return np.ldexp(X, -exponent), 2 * exponent * float(np.log(2))


def _seed(random_state: Any) -> int | str | None:
    if random_state is None:
        return None
    return int(random_state) if isinstance(random_state, (int, np.integer)) else "generator"
