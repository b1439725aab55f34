"""Target normalization, seed 002 eq. (1): y = gamma (y* - mean) / deviation + delta; and moving
such a scale into the parameters (appendix D, corrected); and whether a scale is one at which ReLUs
die.

Theorem D.1 says no single factor nu turns f(., theta) into gamma f(., theta). That is true only
"for all theta": with zero biases nu = gamma^(1/(N+1)) does it. With one factor per parameter an
exact rescaling always exists: docs/errata.md.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunorm import matrix as mx
from relunorm.arguments import real_numbers
from relunorm.errors import InvalidInputError
from relunorm.network import Affine, Network


def _check(gamma: float, delta: float) -> tuple[float, float]:
    gamma, delta = float(gamma), float(delta)
    if not (math.isfinite(gamma) and gamma > 0):
        raise InvalidInputError(f"gamma is {gamma}, expected a finite number above 0")
    if not math.isfinite(delta):
        raise InvalidInputError(f"delta is {delta}, expected a finite number")
    return gamma, delta


def _rows(y: Any, what: str) -> NDArray[np.float64]:
    """Targets as (n, outputs), checked."""
    array = real_numbers(what, y).astype(np.float64, copy=False)
    if array.ndim not in (1, 2) or not array.size:
        raise InvalidInputError(f"{what} has shape {array.shape}, expected (n,) or (n, outputs)")
    if not np.isfinite(array).all():
        row = int(np.argwhere(~np.isfinite(array.reshape(len(array), -1)))[0][0])
        raise InvalidInputError(f"{what} holds NaN or infinite values, first in row {row}")
    return array.reshape(len(array), -1)


class _Affine:
    """The map of eq. (1) and its inverse; the mean and deviation come from a subclass."""

    gamma: float
    delta: float
    mean_: NDArray[np.float64]
    scale_: NDArray[np.float64]

    def transform(self, y: Any) -> Any:
        """Normalised targets: gamma (y - mean) / deviation + delta; arrays or torch tensors."""
        y, mean, scale = self._like(y)
        return (y - mean) * (self.gamma / scale) + self.delta

    def inverse_transform(self, y: Any) -> Any:
        """The original units: (y - delta) / gamma * deviation + mean."""
        y, mean, scale = self._like(y)
        return (y - self.delta) * (scale / self.gamma) + mean

    def _like(self, y: Any) -> tuple[Any, Any, Any]:
        """The targets as floats, with mean and scale of their kind."""
        if not hasattr(self, "mean_"):
            raise InvalidInputError(f"this {type(self).__name__} has seen no targets yet: fit it")
        if not hasattr(y, "ndim"):
            y = real_numbers("y", y).astype(np.float64, copy=False)
        if not y.ndim:
            raise InvalidInputError("y is a single number, expected (n,) or (n, outputs)")
        outputs = 1 if y.ndim == 1 else y.shape[-1]
        if outputs != len(self.mean_):
            raise InvalidInputError(
                f"targets of shape {tuple(y.shape)}, but the scaler was fitted on "
                f"{len(self.mean_)} output{'s' if len(self.mean_) > 1 else ''}"
            )
        mean, scale = (self.mean_, self.scale_) if y.ndim > 1 else (self.mean_[0], self.scale_[0])
        if hasattr(y, "detach"):
            import torch

            if not y.is_floating_point():  # whole numbers would cut mean and scale off
                y = y.to(torch.get_default_dtype())
            mean = torch.as_tensor(mean, dtype=y.dtype, device=y.device)
            scale = torch.as_tensor(scale, dtype=y.dtype, device=y.device)
        return y, mean, scale


class TargetScaler(_Affine):
    """Scale regression targets to mean ``delta`` and standard deviation ``gamma``.

    Follows the scikit-learn transformer protocol, so it works in ``TransformedTargetRegressor``,
    and maps torch tensors to torch tensors, so it works in a training loop. gamma is the target's
    standard deviation (the seed calls it a variance; docs/errata.md). A constant column has no
    spread; it is shifted and left unscaled (scale 1) instead of divided by zero.

    >>> scaler = TargetScaler(gamma=2.0).fit([1.0, 2.0, 3.0])
    >>> scaler.transform(np.array([2.0, 3.0])).round(4).tolist()
    [0.0, 2.4495]
    >>> scaler.inverse_transform(scaler.transform(np.array([7.0]))).tolist()
    [7.0]
    """

    def __init__(self, gamma: float = 1.0, delta: float = 0.0):
        self.gamma, self.delta = _check(gamma, delta)

    def fit(self, y: ArrayLike, _: Any = None) -> TargetScaler:
        """Measure mean and standard deviation of the training targets, column by column."""
        rows = _rows(y, "y")
        self.mean_, spread = mean_and_deviation(rows)
        self.scale_ = np.where(spread > 0, spread, 1.0)
        return self

    def fit_transform(self, y: Any, _: Any = None) -> Any:
        """Fit, then transform the same targets."""
        return self.fit(y).transform(y)

    def get_params(self, deep: bool = True) -> dict[str, float]:
        """Constructor arguments, as scikit-learn asks for them."""
        return {"gamma": self.gamma, "delta": self.delta}

    def set_params(self, **params: float) -> TargetScaler:
        """Set constructor arguments."""
        unknown = set(params) - {"gamma", "delta"}
        if unknown:
            raise InvalidInputError(f"unknown parameters {sorted(unknown)}: use gamma and delta")
        self.gamma, self.delta = _check(
            params.get("gamma", self.gamma), params.get("delta", self.delta)
        )
        return self

    def __repr__(self) -> str:
        return f"TargetScaler(gamma={self.gamma:g}, delta={self.delta:g})"


class RunningTargetScaler(_Affine):
    """A `TargetScaler` for streams: exact mean and deviation of everything seen so far.

    Batches are merged by the pairwise update of Chan, Golub and LeVeque (1983), which does not
    cancel. ``preserve`` corrects the last linear layer, so that the network's predictions in the
    original units do not jump when the scale moves (van Hasselt et al. 2016, PopArt).

    >>> running = RunningTargetScaler()
    >>> for batch in ([1.0, 2.0], [3.0], [4.0, 5.0, 6.0]):
    ...     _ = running.update(batch)
    >>> running.mean_.round(6).tolist(), running.scale_.round(6).tolist()
    ([3.5], [1.707825])
    """

    def __init__(self, gamma: float = 1.0, delta: float = 0.0):
        self.gamma, self.delta = _check(gamma, delta)
        self.count = 0.0

    def update(self, y: ArrayLike) -> RunningTargetScaler:
        """Take in one batch of targets."""
        rows = _rows(y, "the batch")
        n = len(rows)
        if self.count and rows.shape[1] != len(self.mean_):
            raise InvalidInputError(f"a batch of {rows.shape[1]} outputs after {len(self.mean_)}")
        if not self.count:
            self.mean_, self._deviation = mean_and_deviation(rows)
            self._largest, self.count = np.abs(rows).max(axis=0), float(n)
        else:
            self._merge(rows)
        self.scale_ = np.where(_is_spread(self._deviation, self._largest), self._deviation, 1.0)
        return self

    def _merge(self, rows: NDArray[np.float64]) -> None:
        """The pairwise update, in units of the largest value so that squares stay in range."""
        n, kept = len(rows), self.count
        self._largest = np.maximum(self._largest, np.abs(rows).max(axis=0))
        unit = np.maximum(np.maximum(self._largest, np.abs(self.mean_)), self._deviation)
        unit = np.where(unit > 0, unit, 1.0)
        scaled, old = rows / unit, self.mean_ / unit
        mean, total = scaled.mean(axis=0), kept + n
        gap = mean - old
        variance = (
            (self._deviation / unit) ** 2 * (kept / total)
            + scaled.var(axis=0) * (n / total)
            + gap**2 * (kept / total) * (n / total)
        )
        self.mean_ = (old + gap * (n / total)) * unit
        self._deviation, self.count = np.sqrt(variance) * unit, total

    def preserve(self, layer: Any, y: ArrayLike) -> RunningTargetScaler:
        """`update`, then change a torch ``Linear`` so that its unnormalised output stays put."""
        import torch

        outputs = _rows(y, "the batch").shape[1]
        weight, bias = getattr(layer, "weight", None), getattr(layer, "bias", None)
        if weight is None or bias is None:
            raise InvalidInputError(
                f"{layer!r} has no weight and bias to correct: give the last Linear layer, with "
                "bias=True"
            )
        if len(weight) != outputs:
            raise InvalidInputError(f"{layer!r} has {len(weight)} outputs, the batch {outputs}")
        if not self.count:
            return self.update(y)
        mean, scale = self.mean_, self.scale_
        self.update(y)
        factor = torch.as_tensor(scale / self.scale_)
        shift = torch.as_tensor(self.gamma * (mean - self.mean_) / self.scale_)
        with torch.no_grad():
            factor = factor.to(weight)
            weight.mul_(factor[:, None])
            bias.sub_(self.delta).mul_(factor).add_(shift.to(bias) + self.delta)
        return self

    def __repr__(self) -> str:
        return f"RunningTargetScaler(gamma={self.gamma:g}, delta={self.delta:g}, n={self.count:g})"


def mean_and_deviation(
    rows: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Per column, over the whole floating-point range; a constant column has deviation 0."""
    largest = np.abs(rows).max(axis=0)
    safe = np.where(largest > 0, largest, 1.0)  # squares of tiny or huge values leave the range
    scaled = rows / safe
    spread = scaled.std(axis=0) * safe
    return scaled.mean(axis=0) * safe, np.where(_is_spread(spread, largest), spread, 0.0)


def _is_spread(deviation: NDArray[np.float64], largest: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether a deviation is more than the rounding of the values themselves."""
    return deviation > np.maximum(8 * np.finfo(float).eps * largest, 1e-290)


def rescale_targets(network: Network, gamma: float, delta: float = 0.0) -> Network:
    """A network that computes gamma f(x) + delta, with the factor spread evenly over the layers.

    Layer n of N gets W_n a and b_n a^n with a = gamma^(1/(N+1)), so its values grow by a^n and the
    output by gamma. With skips the matrix from value j to layer n gets a^(depth n - depth j).
    Exact up to rounding for relu, leaky and identity layers, which are positively homogeneous; a
    step layer keeps its values, and its own weights are left alone.

    >>> net = Network.from_weights([[[2.0]], [[3.0]]], [[1.0], [1.0]])  # 3 relu(2 x + 1) + 1
    >>> small = rescale_targets(net, 1e-4)
    >>> float(net([1.0])[0]), float(small([1.0])[0])
    (10.0, 0.001)
    """
    gamma, delta = _check(gamma, delta)
    scale = [1.0]
    depth = [0]
    for layer in network.layers:
        below = max((depth[s] for s in layer.affine.sources), default=0)
        counts = layer.activation.kind in ("relu", "leaky")
        depth.append(below + 1 if counts else below if layer.activation.kind == "identity" else 0)
    total = 1 + max((depth[s] for s in network.output.sources), default=0)
    factor = gamma ** (1.0 / total)
    layers = []
    for index, layer in enumerate(network.layers):
        step = layer.activation.kind == "step"
        scale.append(1.0 if step else factor ** depth[index + 1])
        # A step layer only needs its pre-activation up to a positive factor: undo its inputs'.
        affine = _scaled(layer.affine, 1.0 if step else scale[-1], scale)
        layers.append(type(layer)(affine, layer.activation, layer.name, layer.shape))
    output = _scaled(network.output, gamma, scale)
    output = Affine(output.terms, output.bias + delta)
    return network.replace(layers=layers, output=output)


def single_factor(network: Network, gamma: float) -> float | None:
    """The one factor nu on all parameters with f(., nu theta) = gamma f(., theta), or None.

    Exists when every bias is zero and the network is a plain relu or leaky chain:
    nu = gamma^(1/(N+1)). None means that this argument gives no factor, which for generic biases
    is Theorem D.1.

    >>> single_factor(Network.from_weights([[[2.0]], [[3.0]]]), 4.0)
    2.0
    """
    gamma, _ = _check(gamma, 0.0)
    plain = network.is_chain and all(
        layer.activation.kind in ("relu", "leaky") for layer in network.layers
    )
    if not plain or any(np.any(affine.bias) for affine in network.maps):
        return None
    return float(gamma ** (1.0 / (len(network.layers) + 1)))


def _scaled(affine: Affine, own: float, scale: list[float]) -> Affine:
    terms = {
        source: mx.scale_rows(matrix, np.full(affine.size, own / scale[source]))
        for source, matrix in affine.terms.items()
    }
    return Affine(terms, affine.bias * own)


#: Optimizers that scale steps by gradient size; there small targets were measured to kill.
ADAPTIVE = ("adam", "adamw", "nadam", "rmsprop")
#: Optimizers whose steps are as large as the gradient; there large targets were measured to kill.
PLAIN = ("sgd", "momentum")
#: Targets up to this size, mean or deviation, are no danger to plain gradient descent.
LARGE = 10.0


@dataclass(frozen=True)
class TargetAdvice:
    """What the targets' scale means for training.

    Attributes:
        gamma, delta: standard deviation and mean of the targets (of the worst column).
        risk: ``low``, ``some`` or ``high``.
        optimum_share: percent of single-unit starts that reach the optimum at this scale, from a
            basin map with the given momentum and step size; None for adaptive optimizers, to which
            the maps do not apply, and for targets so large that outgoing weights decide, which a
            single unit does not have.
        advice: sentences, empty when there is nothing to do.
    """

    gamma: float
    delta: float
    optimizer: str | None
    lr: float | None
    momentum: float | None
    risk: str
    optimum_share: float | None
    advice: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "advice": list(self.advice)}


def target_advice(
    y: ArrayLike,
    *,
    optimizer: str | None = None,
    lr: float | None = None,
    momentum: float | None = None,
) -> TargetAdvice:
    """Compare the targets' deviation gamma and mean delta with the maps and with figure 1.

    An estimate, not a proof: docs/dying.md says what was measured.

    >>> target_advice([0.0001, 0.0002, 0.0004], optimizer="adam").risk
    'high'
    """
    if optimizer is not None and not isinstance(optimizer, str):
        raise InvalidInputError(
            f"optimizer is a {type(optimizer).__name__}, expected its name, such as 'adam'"
        )
    name = optimizer.lower() if optimizer is not None else None
    if name is not None and name not in ADAPTIVE + PLAIN:
        raise InvalidInputError(
            f"optimizer {optimizer!r}: use one of {', '.join(ADAPTIVE + PLAIN)}, or leave it out"
        )
    rows = _rows(y, "y")
    means, deviations = mean_and_deviation(rows)
    constant = np.flatnonzero(deviations == 0)
    if len(constant) < len(deviations):  # the worst of those there is something to learn about
        away = np.abs(np.log10(np.where(deviations > 0, deviations, 1.0)))
        worst = int(np.argmax(np.where(deviations > 0, away, -1.0)))
    else:
        worst = 0
    gamma, delta = float(deviations[worst]), float(means[worst])
    share = None
    thrown = name in PLAIN and gamma > 0 and max(gamma, abs(delta)) > LARGE
    if name in PLAIN and gamma > 0 and not thrown:
        share = _optimum_share(gamma, momentum or 0.0, lr)
    risk = "high" if thrown else _risk(gamma, name)
    lines = []
    if gamma == 0:
        lines.append("The targets are constant: there is nothing to learn.")
    elif risk != "low":
        if thrown:
            what = (
                f"(mean {delta:.3g}) SGD steps as large as the error throw units past the "
                "data, where they stay dead"
            )
        elif gamma > 1 and name is None:
            what = "SGD throws units past the data, where they stay dead, and Adam is slow"
        elif gamma > 1:
            what = "steps are small against the targets and the fit is slow"
        else:
            what = "the fit suffers" if name in PLAIN else "units die with adaptive optimizers"
        lines.append(
            f"The targets have standard deviation {gamma:.3g}; at this scale {what}. Scale them "
            "with relunorm.dying.TargetScaler, or move the scale into a trained network with "
            "relunorm.dying.rescale_targets."
        )
    if gamma > 0 and len(constant):
        lines.append(
            f"{len(constant)} of {len(deviations)} target columns are constant (the first is "
            f"column {constant[0]}): there is nothing to learn in them."
        )
    if gamma > 0 and abs(delta) > 3 * gamma:
        lines.append(
            f"The targets' mean {delta:.3g} is {abs(delta) / gamma:.0f} deviations from 0; centre "
            "them (TargetScaler does)."
        )
    return TargetAdvice(gamma, delta, name, lr, momentum, risk, share, tuple(lines))


def _risk(gamma: float, optimizer: str | None) -> str:
    if gamma == 0:
        return "high"
    if gamma < 1e-2:
        return "some" if optimizer in PLAIN else "high"
    return "some" if gamma < 0.1 or gamma > 10 else "low"


def _optimum_share(gamma: float, beta: float, lr: float | None) -> float:
    from relunorm.dying.basins import basin

    found = basin(gamma, beta, eta=lr if lr is not None else 0.1, grid=31, max_steps=20_000)
    return found.optimum
