"""A batch through a deep random network whose batch normalization is taken apart.

Three ways to the same layer: weights drawn one by one; the pre-activations drawn directly, for
given the layer before, the rows of WX are independent N(0, G), so Z = randn(width, n) G^1/2 has
exactly the same law without a width^2 matrix; and infinite width, where the Gram matrix moves by a
deterministic map (`gram_step`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunorm.batchnorm._arguments import generator, points, whole_number
from relunorm.batchnorm._layer_kernel import inner_products
from relunorm.batchnorm._random_layer import RandomLayer
from relunorm.batchnorm.gram import (
    Statistic,
    gram_step,
    nonlinearity_slope,
    resolve_statistic,
)
from relunorm.batchnorm.measure import odd_points, pair_angles
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
        for layer, gram in enumerate(self.grams):
            if odd_points(gram, **thresholds).count:
                return layer
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
    progress: Callable[[int, int], None] | None = None,
    time_limit: float | None = None,
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
        progress: called with (layers done, layers).
        time_limit: seconds after which to stop and return what was done.

    Exact in law for "weights" and "gram"; "infinite" is the limit, deterministic. A neuron whose
    statistic is 0 (constant over the batch, recentered) responds with 0.

    >>> propagate(np.eye(5), 3, 50, random_state=0).layers
    3
    """
    points, shift = _batch(X, recenter)
    layers, width = whole_number("layers", layers, 0), whole_number("width", width, 1)
    if method not in ("weights", "gram", "infinite"):
        raise InvalidInputError(f"method {method!r} is not known; use weights, gram or infinite")
    slope = nonlinearity_slope(nl)
    kind = resolve_statistic(statistic, recenter)
    rng = generator(random_state)
    options: dict[str, Any] = {
        "width": width,
        "nl": nl,
        "recenter": recenter,
        "rescale": rescale,
        "statistic": kind if rescale else None,
        "method": method,
        "random_state": _seed(random_state),
    }
    gram, log = _unit(points @ points.T)
    taken = [(gram, log + shift)]
    if recenter:
        # a large mean would drown the rest in the squares; the first layer removes it anyway
        points, more = _scaled(points - points.mean(axis=0))
        shift += more
        gram, log = _unit(points @ points.T)
    state = points * np.exp(-log / 2)
    log += shift
    deadline = None if time_limit is None else time.monotonic() + time_limit
    complete = True
    draw = RandomLayer(len(gram), width, slope, recenter, kind if rescale else None, rng)
    made = 0.0  # log scale still in the activations
    try:
        for layer in range(layers):
            if deadline is not None and time.monotonic() > deadline:
                complete = False
                break
            new = state
            if method == "infinite":
                gram, shift = _unit(
                    gram_step(gram, nl=nl, recenter=recenter, rescale=rescale, statistic=statistic)
                )
                # the map is 2 E[f f'], the mean over neurons of variance 2
                shift += np.log(width / 2) if rescale else 0.0
            else:
                # fewer inputs than points: a singular Gram matrix, and few weights
                few = layer == 0 and points.shape[1] < len(points) and not draw.wishart
                if method == "weights" or few:
                    new = draw.by_weights(state * np.exp(-made / 2))
                else:
                    new = draw.by_gram(gram)
                gram, shift = _unit(inner_products(new))
            # rescaling forgets the scale that came before
            log = shift if rescale else log + shift
            taken.append((gram, log))
            state, made = new, shift
            if progress is not None:
                progress(layer + 1, layers)
    except KeyboardInterrupt:
        complete = False
    if method == "gram" and len(taken) > 1:
        state = draw.full(state)
    kept = None if method == "infinite" else state * np.exp(-made / 2)
    grams, logs = zip(*taken, strict=True)
    return Propagation(np.array(grams), np.array(logs), kept, complete, options)


def _mean(angles: NDArray[np.float64]) -> float:
    known = angles[~np.isnan(angles)]
    return float(known.mean()) if len(known) else float("nan")


def _unit(gram: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    trace = float(np.trace(gram))
    if not (np.isfinite(trace) and trace > 0):
        raise InvalidInputError(
            "the whole batch was mapped to 0: every neuron is silent on every point; use "
            "a larger width"
        )
    return gram * (len(gram) / trace), float(np.log(trace / len(gram)))


def _batch(X: Any, recenter: bool) -> tuple[NDArray[np.float64], float]:
    """The batch scaled to entries near 1, and the log of what that takes out of squares."""
    X = points(X)
    if recenter and len(X) < 2:
        raise InvalidInputError("recentering needs at least two points, the batch has one")
    if recenter and (X[:1] == X).all():
        raise InvalidInputError(
            f"all {len(X)} points of the batch are equal: recentering sends them to 0"
        )
    if not X.any():
        raise InvalidInputError("the batch is all zeros, so every layer is")
    return _scaled(X)


def _scaled(X: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    exponent = int(np.frexp(np.abs(X).max())[1])
    return np.ldexp(X, -exponent), 2 * exponent * float(np.log(2))


def _seed(random_state: Any) -> int | str | None:
    if random_state is None:
        return None
    return int(random_state) if isinstance(random_state, (int, np.integer)) else "generator"
