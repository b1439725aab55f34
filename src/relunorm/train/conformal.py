"""Prediction intervals that hold for any network: split conformal and jackknife+.

Both need nothing but exchangeable rows. Split (Vovk, Gammerman & Shafer 2005) measures the errors
on rows that the network did not see. Jackknife+ and its K-fold form CV+ (Barber, Candes, Ramdas &
Tibshirani 2021) measure the error of every row by a network without it, and also let these
networks disagree about the new row.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state

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
        networks: those of jackknife+.
        errors: (n, m) absolute errors.
    """

    x: Floats
    y: Floats
    weight: Floats
    fold: NDArray[np.intp]
    networks: tuple[Network, ...] = ()
    errors: Floats | None = None

    def calibrated(self, model: ReLURegressor) -> Conformal:
        """With the errors measured; jackknife+ fits its networks here."""
        if not len(self.fold):
            return replace(self, errors=np.abs(self.y - model.network_(self.x)))
        from joblib import Parallel, delayed

        plain: Any = clone(model)
        plain.set_params(interval=None, warm_start=False, verbose=False, n_jobs=None)
        folds = range(int(self.fold.max()) + 1)
        work = (delayed(_without)(plain, self, number) for number in folds)
        found: Any = Parallel(n_jobs=model.n_jobs)(work)
        networks: tuple[Network, ...] = tuple(found)
        errors = np.empty_like(self.y)
        for number, network in enumerate(networks):
            rows = self.fold == number
            errors[rows] = np.abs(self.y[rows] - network(self.x[rows]))
        return replace(self, networks=networks, errors=errors)

    def interval(self, center: Floats, x: Floats, coverage: float) -> tuple[Floats, Floats]:
        """Lower and upper ends (rows, m).

        Args:
            center: what the fitted network predicts at x.
        """
        real = isinstance(coverage, numbers.Real) and not isinstance(coverage, bool)
        if not (real and 0 < float(coverage) < 1):
            raise InvalidInputError(f"coverage={coverage!r}: expected a share between 0 and 1")
        assert self.errors is not None
        count = len(self.errors)
        # the smallest k with k / (n + 1) >= coverage, safe against rounding of the product
        rank = math.ceil((count + 1) * coverage - 1e-9)
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


def _without(plain: Any, rows: Conformal, number: int) -> Network:
    """A network fitted to all rows but those of one fold."""
    keep = rows.fold != number
    one: Any = clone(plain)
    return one.fit(rows.x[keep], rows.y[keep], rows.weight[keep]).network_
