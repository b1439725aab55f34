"""Whether the scale of regression targets is one at which ReLUs die."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from relunorm.dying.target import _rows, mean_and_deviation
from relunorm.errors import InvalidInputError

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
        """JSON-safe form."""
        return {**asdict(self), "advice": list(self.advice)}


def target_advice(
    y: ArrayLike,
    *,
    optimizer: str | None = None,
    lr: float | None = None,
    momentum: float | None = None,
) -> TargetAdvice:
    """Compare the targets' deviation gamma and mean delta with the maps and with figure 1.

    Measured (docs/dying.md): with Adam, units die at gamma = 1e-4 (24% after 30,000 updates on
    concrete, 87-90% without first-moment averaging) and none at gamma = 1; with SGD none die at
    small gamma, but the fit is poor. Large targets kill with SGD: the gradient of a hidden weight
    is the error times the outgoing weight, and both grow with the targets, so the first steps
    throw units past the data, where nothing brings them back. Adam's steps do not grow with the
    error; there large targets are only slow to reach. Single units under gradient descent: the
    share of starts that reach the optimum falls with gamma, and momentum makes it fall faster
    below gamma = 1. An estimate, not a proof.

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
