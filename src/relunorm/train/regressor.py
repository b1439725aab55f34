"""`ReLURegressor`: the solvers behind scikit-learn's interface.

With ``restarts`` there are fits from several seeds, spread over joblib, and the best one is kept.
The first runs here and chooses the penalty; the others take it over, so that all are measured
by the same objective, mean squared error + penalty. Each fit runs on one thread from its own
seed: the answer does not depend on the backend or the number of jobs.
"""

from __future__ import annotations

import warnings
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from relunorm.clock import INTERRUPTED, TIME_LIMIT, Clock
from relunorm.errors import InvalidInputError, RelunormError
from relunorm.network import Network
from relunorm.sweep.backends import ambient_jobs, placed
from relunorm.sweep.tasks import WorkerDiedError, single_threaded, spread
from relunorm.train.conformal import conformal_rows
from relunorm.train.estimator_base import (
    Floats,
    ReLUEstimator,
    progress_bar,
    threads,
    used_columns,
    whole_number,
)
from relunorm.train.problem.task import Fit, Task
from relunorm.train.scaling import Scaling
from relunorm.train.solve.by_name import (
    SOLVERS,
    UNDECIDED_BETWEEN,
    described,
    objective,
    solver,
    suitable,
)


@dataclass(kw_only=True, eq=False, repr=False)
class ReLURegressor(RegressorMixin, ReLUEstimator):
    """Least-squares regression with a small ReLU network, trained in the reduced parameter space.

    f(x) = a + S x + V h_L(x) with hidden rows of unit length and thresholds in the support interval
    of what a unit can receive (seed 001, Prop. 2.3; docs/errata for the deep bound). Inputs and
    targets are normalized inside and the network is returned in the user's units. Copies of a row
    count as one row of larger weight; columns that do not vary get weight 0.

    Args:
        hidden: ReLU units, a number or one number per hidden layer.
        solver: ``auto``, ``exact`` (one input, with a lower bound), ``greedy`` (one hidden layer),
            ``deep``, ``adam`` (large data), or ``slsqp``, ``bfgs``, ``lbfgs`` for comparison.
        constraint: ``tight`` (support interval), ``bounded`` (X_B), ``unit`` (rows only) or None.
        alpha: penalty on the squared output weights of the last hidden layer, in normalized units;
            ``auto`` chooses it by hold-out (0 for ``exact``), and where rows are few per input one
            for the slopes of the affine part too.
        skip: whether the affine part is a connection of its own. Without it one hidden layer spends
            d + 1 units on it and has no output bias, as (2.10) of seed 001; deeper networks are
            plain perceptrons.
        n_init: starts (``deep``) or improvement rounds (``exact``, ``greedy``) of one fit.
        restarts: fits from different seeds, of which the best is kept (mean squared error and
            penalty). They go through joblib: ``n_jobs`` at a time, or as an ambient
            ``joblib.parallel_config`` says, on any of its backends and with the same result.
        time_limit: seconds after which the best network so far is returned; None and infinity
            mean no limit. Restarts and the networks of jackknife+ share them.
        random_state: seed of every random choice.
        n_jobs: threads while fitting; None leaves torch's own setting. With restarts, also how
            many of them run at a time, each on one thread.
        device: where the numbers live while fitting, for example ``cuda``.
        verbose: show a progress bar on stderr.
        missing: ``refuse`` NaN in X, or fill it with the ``median`` of its column.
        early_stopping: hold out ``validation_fraction`` of the rows, keep the network that does
            best on them and stop after ``n_iter_no_change`` iterations (epochs for ``adam``)
            without a better one.
        warm_start: another `fit` goes on from the network there is, with its penalties.
        interval: ``split`` or ``jackknife+`` prepares `predict_interval`. Split sets a fifth of the
            rows aside: the network is fitted to the others. Jackknife+ fits one more network for
            every row, above thirty rows for each of twenty folds (CV+).
        options: further settings of one solver, such as ``{"batch": 512}`` of ``adam``.

    Attributes:
        network_: the `Network` in the user's units, hidden rows of unit length; it knows the
            columns of a DataFrame.
        loss_curve_: mean squared error of the normalized target as the search went on.
        n_iter_: iterations (updates for ``adam``).
        optimality_gap_: squared error of what `predict` gives on the rows / certified lower bound
            - 1, or None where there is no certificate. Beside a bound of 0 an error within
            rounding of the targets themselves counts as 0.
        lower_bound_: mean squared error, in the target's units, that no network of this size can
            beat; None where not certified.
        alpha_, solver_: what ``auto`` became.
        affine_alpha_: penalty on the squared slopes of the affine part, in normalized units; 0 but
            for few rows per input and ``alpha="auto"``.
        restart_losses_: what every restart reached, in the order of the seeds: mean squared error
            of the normalized target plus penalty.
        validation_curve_: mean squared error of the normalized target on the rows that
            ``early_stopping`` held out.
        imputed_: what missing values are filled with, column by column.
        stopped_: "" or why the search ended before its usual effort ("time limit", "interrupted").

    >>> x = np.linspace(0, 1, 200)[:, None]
    >>> model = ReLURegressor(hidden=4, random_state=0).fit(x, np.abs(x[:, 0] - 0.3))
    >>> bool(np.abs(model.predict([[0.1], [0.5]]) - 0.2).max() < 1e-6)
    True
    >>> model.solver_
    'exact'
    """

    restarts: int = 1
    interval: str | None = None
    _solvers = tuple(SOLVERS)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> ReLURegressor:
        """Fit the network.

        Args:
            X: (n, d), y: (n,) or (n, m), sample_weight: (n,) non-negative.
        """
        clock = Clock(self.time_limit)
        hidden = self._checked()
        x, y, weight = self._training_rows(X, y, sample_weight, multi_output=True, y_numeric=True)
        self._single = y.ndim == 1
        y = y.astype(np.float64).reshape(len(y), -1)
        self._conformal = rows = None
        if self.interval is not None:
            x, y, weight, rows = conformal_rows(self, x, y, weight)
        further = 0 if rows is None else rows.turns(self.n_jobs)
        self._fit_rows(x, y, weight, hidden, clock.part(share=1 / (1 + further)))
        if rows is not None:
            self._conformal = rows.calibrated(self, clock)
        return self

    def _fit_rows(
        self, x: Floats, y: Floats, weight: Floats, hidden: tuple[int, ...], clock: Clock
    ) -> None:
        penalty = None if isinstance(self.alpha, str) else float(self.alpha)
        former = self.alpha_ if self.warm_start and hasattr(self, "network_") else None
        columns = used_columns(x, weight)
        inputs = max(1, len(columns))
        self.solver_ = self.solver
        if self.solver == "auto":
            self.solver_ = suitable(len(x), inputs, y.shape[1], hidden, penalty)
            if self.solver_ == "exact" and (not len(columns) or self.early_stopping):
                self.solver_ = "greedy"
        if self.solver_ == "exact" and self.early_stopping:
            raise InvalidInputError(
                "solver='exact' finds the optimum and has nothing to stop early: leave "
                "early_stopping out"
            )
        rows = self._prepared(x, y, weight, hidden, inputs)
        self._solve(rows, columns, hidden, penalty if former is None else former, clock)

    def predict_interval(self, X: Any, coverage: float = 0.9) -> tuple[Floats, Floats]:
        """Lower and upper ends, shaped as `predict`, that hold a new target with this probability.

        Distribution-free for exchangeable rows, whatever the network does: at least ``coverage`` by
        ``interval="split"`` (Vovk et al. 2005), at least 2 coverage - 1 and in practice about
        ``coverage`` by ``interval="jackknife+"`` (Barber et al. 2021). Rows count once each,
        whatever their weight.
        """
        check_is_fitted(self, "network_")
        if self._conformal is None:
            raise InvalidInputError(
                f"interval={self.interval!r}: intervals need rows to be set aside while fitting; "
                "use ReLURegressor(interval='split') or 'jackknife+' and fit again"
            )
        center = self._outputs(X)
        x = self._filled(self._validated(X, reset=False))
        ends = self._conformal.interval(center, x, coverage)
        return tuple(end[:, 0] if self._single else end for end in ends)  # type: ignore[return-value]

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Outputs (n,) or (n, m), as the target was given."""
        result = self._outputs(X)
        return result[:, 0] if self._single else result

    def _checked(self) -> tuple[int, ...]:
        hidden = super()._checked()
        self._ask("restarts", whole_number(self.restarts, 1), "expected a whole number >= 1")
        known = self.interval in (None, "split", "jackknife+")
        self._ask("interval", known, "use 'split', 'jackknife+' or None")
        if self.interval == "split" and self.warm_start and hasattr(self, "network_"):
            raise InvalidInputError(
                "interval='split' with warm_start: the network may have seen rows that are to be "
                "set aside; use interval='jackknife+', or fit a new estimator"
            )
        return hidden

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _solve(
        self,
        rows: tuple[Floats, Floats, Floats],
        columns: NDArray[np.intp],
        hidden: tuple[int, ...],
        penalty: float | None,
        clock: Clock,
    ) -> None:

        x, y, weight = rows
        used = columns if len(columns) else np.zeros(1, np.intp)
        inputs = self._scaled_inputs(x, weight, used)
        targets = Scaling.of(y, weight, "y")
        name = self.solver_
        if self.solver == "auto" and penalty is None and self.solver_ in ("exact", "greedy"):
            name = UNDECIDED_BETWEEN.get(self.solver_, self.solver_)
        alpha = 0.0 if penalty is None and not described(name).penalized else penalty
        affine = self.affine_alpha_ if self.warm_start and hasattr(self, "network_") else 0.0
        with threads(self.n_jobs), progress_bar(bool(self.verbose), self.solver_) as progress:
            task = self._task(
                rows, (inputs, targets), used, hidden, (alpha, affine), clock, progress=progress
            )
            fit, self.restart_losses_ = best_fit(name, task, self.restarts, self.n_jobs)
        self.solver_ = fit.facts.get("solver", self.solver_)
        self._adopt(fit, inputs, targets, columns, x.shape[1])
        self.lower_bound_ = self.optimality_gap_ = None
        if fit.lower_bound is not None:
            with np.errstate(over="ignore"):
                bound = float(fit.lower_bound * np.square(targets.scale[0]))
            # squares of huge targets have no float64; the gap, a ratio, has one
            self.lower_bound_ = bound if np.isfinite(bound) else None
            loss, rounding = _delivered(self.network_, x, y, weight, targets)
            self.optimality_gap_ = _gap(loss, fit.lower_bound, rounding)
        if fit.facts.get("spike", 0.0) > 1:
            message = (
                "the best spline without a penalty leaves the targets between some rows by more "
                "than their range; solver='greedy' has a penalty"
            )
            warnings.warn(message, RuntimeWarning, stacklevel=4)


def _delivered(
    network: Network,
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    weight: NDArray[np.float64],
    targets: Scaling,
) -> tuple[float, float]:
    """Mean squared error of the network itself, and what rounding of the targets alone makes.

    Both in normalized units. Beside a large offset the network in the user's units rounds more than
    the fit did.
    """
    residual = (network(x) - y) / targets.scale
    loss = float(weight @ np.square(residual).sum(axis=1) / weight.sum())
    ulp = np.spacing(np.abs(y).max(axis=0)) / targets.scale
    return loss, float(np.square(4 * ulp).sum())


def _gap(loss: float, lower: float, rounding: float) -> float:
    """loss / lower - 1, never negative through rounding; 0 where both vanish."""
    if loss <= (1e-24 if lower > 0 else max(1e-24, rounding)):
        return 0.0
    return max(loss / lower - 1, 0.0) if lower > 0 else float("inf")


def _restart(name: str, task: Task, seconds: float, seed: int) -> Fit:
    """One fit of a task, which may have travelled, in ``seconds`` of its clock at most.

    The clock travels as time of day: those of other machines should agree.
    """
    own = replace(task, seed=seed, clock=task.clock.part(seconds))
    return solver(name)(own.with_fresh_watch())


def best_fit(name: str, task: Task, restarts: int, n_jobs: int | None) -> tuple[Fit, list[float]]:
    """The best of several fits, and the objective of every one that was finished.

    With a time limit each has its share: one fit alone would go on until nothing is left.

    Args:
        task: its seed is that of the first fit; the others' are drawn from it.
        n_jobs: fits at a time; None honours an ambient ``joblib.parallel_config``.
    """
    if restarts == 1:
        only = solver(name)(task)
        return only, [objective(only)]
    with placed(None, None, n_jobs):
        turns = 1 + -(-(restarts - 1) // ambient_jobs())
    each = task.clock.left() / turns
    with single_threaded():
        first = solver(name)(replace(task.with_fresh_watch(), clock=task.clock.part(each)))
    fits = {0: first}
    known = replace(task, alpha=first.alpha, affine=first.affine, progress=None)
    rest = partial(_restart, name, known, each)
    draws = np.random.SeedSequence([task.seed, 11]).generate_state(restarts - 1)
    seeds = [int(draw) >> 1 for draw in draws]

    def go_on() -> bool:
        return not task.spent and not any(fit.stopped == "interrupted" for fit in fits.values())

    interrupted = False
    try:
        with placed(None, None, n_jobs), closing(spread(rest, seeds, go_on=go_on)) as found:
            for index, fit in found:
                if isinstance(fit, WorkerDiedError):
                    raise RelunormError(f"restart {index + 1} of {restarts} failed: {fit}")
                fits[index + 1] = fit
                best = min(fits.values(), key=objective)
                task.report("restarts", len(fits) / restarts, best.loss)
    except KeyboardInterrupt:
        interrupted = True
    best = min((fits[k] for k in sorted(fits)), key=objective)
    if interrupted or any(fit.stopped == "interrupted" for fit in fits.values()):
        best = replace(best, stopped=INTERRUPTED)
    elif len(fits) < restarts:
        best = replace(best, stopped=TIME_LIMIT)
    return best, [objective(fits[k]) for k in sorted(fits)]
