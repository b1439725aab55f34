"""Prediction intervals that hold for any network: split conformal and jackknife+.

Both need nothing but exchangeable rows. Split (Vovk, Gammerman & Shafer 2005) measures the errors
on rows that the network did not see. Jackknife+ and its K-fold form CV+ (Barber, Candes, Ramdas &
Tibshirani 2021) measure the error of every row by a network without it, and also let these
networks disagree about the new row.
"""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import joblib
import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state

from relunorm.clock import INTERRUPTED, Clock
from relunorm.errors import InvalidInputError
from relunorm.network import Network

if TYPE_CHECKING:
    from relunorm.train.regressor import ReLURegressor

Floats = NDArray[np.float64]

#: Share of the rows that split sets aside.
SPLIT = 0.2
#: Up to so many rows jackknife+ leaves out one at a time, above them one of so many folds.
SINGLE, FOLDS = 30, 20
#: Numbers that the comparison of all rows with all errors may take at a time.
BLOCK = 1 << 22


@dataclass(frozen=True)
class Conformal:
    """Rows and what was learnt from them about the size of errors.

    Attributes:
        x, y, weight: rows whose errors are measured, in the order they were given.
        fold: (n,) of jackknife+, for each row the network that did not see it; empty for split.
        errors: (n, m) absolute errors.
    """

    x: Floats
    y: Floats
    weight: Floats
    fold: NDArray[np.intp]
    networks: tuple[Network, ...] = ()
    errors: Floats | None = None

    @property
    def folds(self) -> int:
        """Networks of jackknife+."""
        return int(self.fold.max()) + 1 if len(self.fold) else 0

    def turns(self, n_jobs: int | None) -> int:
        """Fits of jackknife+ one after the other, so many at a time."""
        jobs: Any = n_jobs  # None is that of an ambient parallel_config
        return -(-self.folds // joblib.effective_n_jobs(jobs))

    def calibrated(self, model: ReLURegressor, clock: Clock) -> Conformal | None:
        """With the errors measured; jackknife+ fits its networks here, each in its share of the
        time. None after Ctrl-C: the model is there, its intervals are not."""
        if not self.folds:
            return replace(self, errors=np.abs(self.y - model.network_(self.x)))
        networks: list[Network] = []
        if model.stopped_ != INTERRUPTED:
            try:
                for network, stopped in self._others(model, clock):
                    networks.append(network)
                    model.stopped_ = stopped or model.stopped_
                    if stopped == INTERRUPTED:
                        break
            except KeyboardInterrupt:
                model.stopped_ = INTERRUPTED
        if model.stopped_ == INTERRUPTED:
            message = "the fit was interrupted; there are no intervals"
            warnings.warn(message, RuntimeWarning, stacklevel=3)
            return None
        errors = np.empty_like(self.y)
        for number, network in enumerate(networks):
            rows = self.fold == number
            errors[rows] = np.abs(self.y[rows] - network(self.x[rows]))
        return replace(self, networks=tuple(networks), errors=errors)

    def _others(self, model: ReLURegressor, clock: Clock) -> Iterator[tuple[Network, str]]:
        """The networks that did not see one fold each, and why a fit ended early."""
        plain: Any = clone(model)
        limit = clock.left() / self.turns(model.n_jobs) if clock.limited else None
        plain.set_params(
            interval=None, warm_start=False, verbose=False, n_jobs=None, time_limit=limit
        )
        work = (joblib.delayed(_without)(plain, self, number) for number in range(self.folds))
        found: Any = joblib.Parallel(n_jobs=model.n_jobs, return_as="generator")(work)
        yield from found

    def interval(self, center: Floats, x: Floats, coverage: float) -> tuple[Floats, Floats]:
        """Lower and upper ends (rows, m)."""
        real = isinstance(coverage, numbers.Real) and not isinstance(coverage, bool)
        if not (real and 0 < float(coverage) < 1):
            raise InvalidInputError(f"coverage={coverage!r}: expected a share between 0 and 1")
        assert self.errors is not None
        count = len(self.errors)
        # the smallest k with k / (n + 1) >= coverage, safe against rounding of the product
        rank = max(1, math.ceil((count + 1) * coverage - 1e-9))
        if rank > count:
            least = math.ceil(coverage / (1 - coverage) - 1e-9)
            other = "" if len(self.fold) else ", or use interval='jackknife+'"
            raise InvalidInputError(
                f"coverage={coverage:g} needs the errors of at least {least} rows, but there are "
                f"{count}; ask for less or fit more rows{other}"
            )
        if not len(self.fold):
            reach = np.sort(self.errors, axis=0)[rank - 1]
            return center - reach, center + reach
        lower, upper = np.empty_like(center), np.empty_like(center)
        step = max(1, BLOCK // max(1, count * center.shape[1]))
        for at in range(0, len(x), step):
            rows = slice(at, at + step)
            around = np.stack([network(x[rows]) for network in self.networks])[self.fold]
            errors = self.errors[:, None]
            lower[rows] = np.sort(around - errors, axis=0)[count - rank]
            upper[rows] = np.sort(around + errors, axis=0)[rank - 1]
        return lower, upper


def conformal_rows(
    model: ReLURegressor, x: Floats, y: Floats, weight: Floats
) -> tuple[Floats, Floats, Floats, Conformal]:
    """The rows to fit, and those whose errors will be measured; rows without weight are dropped."""
    keep = weight > 0
    x, y, weight = x[keep], y[keep], weight[keep]
    n = len(x)
    seed = int(check_random_state(model.random_state).randint(2**31 - 1))
    order = np.random.default_rng([seed, 61]).permutation(n)
    if model.interval == "split":
        count = max(1, round(SPLIT * n))
        if n - count < 2:
            raise InvalidInputError(f"interval='split': {n} rows cannot be split; use more rows")
        held, kept = np.sort(order[:count]), np.sort(order[count:])
        rows = Conformal(x[held], y[held], weight[held], np.empty(0, np.intp))
        return x[kept], y[kept], weight[kept], rows
    if n < 3:
        raise InvalidInputError(f"interval='jackknife+': {n} rows; at least 3 are needed")
    fold = np.empty(n, np.intp)
    fold[order] = np.arange(n) % (n if n <= SINGLE else FOLDS)
    return x, y, weight, Conformal(x, y, weight, fold)


def _without(plain: Any, rows: Conformal, number: int) -> tuple[Network, str]:
    """A network fitted to all rows but those of one fold, and why that ended early."""
    keep = rows.fold != number
    with warnings.catch_warnings():  # an interrupt is told once, of the model
        warnings.simplefilter("ignore", RuntimeWarning)
        one: Any = clone(plain)
        one.fit(rows.x[keep], rows.y[keep], rows.weight[keep])
    return one.network_, one.stopped_
