"""`ReLURegressor`: the solvers behind scikit-learn's interface."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from relunorm.clock import Clock
from relunorm.errors import InvalidInputError
from relunorm.network import Network
from relunorm.train.scaling import Scaling, network_of, varying, widened
from relunorm.train.solvers import SOLVERS, check_options, check_size, solver, suitable


class ReLURegressor(RegressorMixin, BaseEstimator):
    """Least-squares regression with a small ReLU network, trained in the reduced parameter space.

    f(x) = a + S x + V h_L(x) with hidden rows of unit length and thresholds in the support interval
    of what a unit can receive (seed 001, Prop. 2.3; docs/errata for the deep bound). Inputs and
    targets are normalized inside and the network is returned in the user's units. Copies of a row
    count as one row of larger weight; columns that do not vary get weight 0.

    Args:
        hidden: ReLU units, a number or one number per hidden layer.
        solver: ``auto``, ``exact`` (one input, certified), ``greedy`` (one hidden layer), ``deep``,
            ``adam`` (large data), or ``slsqp``, ``bfgs``, ``lbfgs`` for comparison.
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
            mean no limit.
        random_state: seed of every random choice.
        n_jobs: threads while fitting; None leaves torch's own setting. With restarts, also how
            many of them run at a time, each on one thread.
        device: where the numbers live while fitting, for example ``cuda``.
        verbose: show a progress bar on stderr.
        options: further settings of one solver, such as ``{"batch": 512}`` of ``adam``.

    Attributes:
        network_: the `Network` in the user's units, hidden rows of unit length.
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
        stopped_: "" or why the search ended early ("time limit", "interrupted").

    >>> x = np.linspace(0, 1, 200)[:, None]
    >>> model = ReLURegressor(hidden=4, random_state=0).fit(x, np.abs(x[:, 0] - 0.3))
    >>> bool(np.abs(model.predict([[0.1], [0.5]]) - 0.2).max() < 1e-6)
    True
    >>> model.solver_
    'exact'
    """

    def __init__(
        self,
        *,
        hidden: int | tuple[int, ...] = 20,
        solver: str = "auto",
        constraint: str | None = "tight",
        alpha: float | str = "auto",
        skip: bool = True,
        n_init: int | None = None,
        restarts: int = 1,
        time_limit: float | Clock | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        device: str = "cpu",
        verbose: bool | int = False,
        options: dict[str, Any] | None = None,
    ):
        self.hidden = hidden
        self.solver = solver
        self.constraint = constraint
        self.alpha = alpha
        self.skip = skip
        self.n_init = n_init
        self.restarts = restarts
        self.time_limit = time_limit
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.verbose = verbose
        self.options = options

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> ReLURegressor:
        """Fit the network.

        Args:
            X: (n, d), y: (n,) or (n, m), sample_weight: (n,) non-negative.
        """
        clock = Clock(self.time_limit)
        hidden = self._checked()
        try:
            X, y = validate_data(self, X, y, multi_output=True, y_numeric=True, dtype=np.float64)
        except (TypeError, ValueError) as error:
            _name_text_columns(X, error)
            raise
        weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        x, y, weight = np.asarray(X), np.asarray(y, dtype=np.float64), np.asarray(weight)
        self._single = y.ndim == 1
        y = y.reshape(len(y), -1)
        if not (weight > 0).any():
            raise InvalidInputError("every sample weight is zero; at least one must be positive")
        # by a power of two, which rounds nothing: sums of huge weights would overflow
        weight = np.ldexp(weight, -int(np.frexp(weight.max())[1]))
        penalty = None if isinstance(self.alpha, str) else float(self.alpha)
        columns = varying(x if weight.all() else x[weight > 0])
        inputs = max(1, len(columns))
        self.solver_ = self.solver
        if self.solver == "auto":
            self.solver_ = suitable(len(x), inputs, y.shape[1], hidden, penalty)
            if self.solver_ == "exact" and not len(columns):
                self.solver_ = "greedy"
        check_options(self.options or {})
        check_size(self.solver_, len(x), inputs, hidden)
        if self.solver_ == "adam":
            keep = weight > 0
            if not keep.all():
                x, y, weight = x[keep], y[keep], weight[keep]
        else:
            x, y, weight = merge_rows(x, y, weight)
        self._solve((x, y, weight), columns, hidden, penalty, clock)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Outputs (n,) or (n, m), as the target was given."""
        check_is_fitted(self, "network_")
        X = validate_data(self, X, reset=False, dtype=np.float64)
        result = self.network_(np.asarray(X))
        return result[:, 0] if self._single else result

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def to_torch(self):
        """The fitted network as a plain ``torch.nn.Module`` in float64."""
        from relunorm.io.torch_write import to_torch

        check_is_fitted(self, "network_")
        return to_torch(self.network_)

    def to_onnx(self, **arguments: Any):
        """The network as an ``onnx.ModelProto``; a fit cut short is marked in its metadata."""
        from relunorm.io.onnx_write import to_onnx

        check_is_fitted(self, "network_")
        return to_onnx(self.network_, stopped=self.stopped_, **arguments)

    def _solve(
        self,
        rows: tuple[NDArray[np.float64], ...],
        columns: NDArray[np.intp],
        hidden: tuple[int, ...],
        penalty: float | None,
        clock: Clock,
    ) -> None:
        import torch

        from relunorm.train.restarts import best_fit
        from relunorm.train.task import Task

        x, y, weight = rows
        used = columns if len(columns) else np.zeros(1, np.intp)
        names = getattr(self, "feature_names_in_", None)
        table = x if len(used) == x.shape[1] else x[:, used]
        names = used if names is None else names[used]
        inputs = Scaling.of(table, weight, "X", names, robust=self.solver_ in _ROBUST)
        targets = Scaling.of(y, weight, "y")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))

        undecided = self.solver == "auto" and self.solver_ == "exact" and penalty is None
        name = "exact or greedy" if undecided else self.solver_
        # mini-batches are float32 anyway, and a large table is not held twice
        dtype = np.float32 if self.solver_ == "adam" else np.float64

        def tensor(array: NDArray[Any]) -> torch.Tensor:
            return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

        with _threads(self.n_jobs), _progress(bool(self.verbose), self.solver_) as progress:
            task = Task(
                x=tensor(inputs.apply(table, dtype)),
                y=tensor(targets.apply(y, dtype)),
                weight=tensor(weight / weight.mean()),
                hidden=hidden,
                constraint=self.constraint,  # type: ignore[arg-type]
                alpha=0.0 if penalty is None and name in _UNPENALIZED else penalty,
                skip=bool(self.skip),
                rounds=self.n_init,
                clock=clock,
                seed=seed,
                progress=progress,
                options=dict(self.options or {}),
            )
            fit, self.restart_losses_ = best_fit(name, task, self.restarts, self.n_jobs)
        if undecided and "spike" not in fit.facts:
            self.solver_ = "greedy"
        fit, inputs = widened(fit, inputs, columns, x.shape[1])
        self.network_: Network = network_of(fit, inputs, targets, f"ReLURegressor({self.solver_})")
        self.loss_curve_ = [float(value) for value in fit.curve]
        self.n_iter_ = max(1, fit.iterations)
        self.alpha_ = fit.alpha
        self.affine_alpha_ = fit.affine
        self.stopped_ = fit.stopped
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
            warnings.warn(message, RuntimeWarning, stacklevel=3)
        if fit.stopped == "interrupted":
            message = "the fit was interrupted; the model is the best one found until then"
            warnings.warn(message, RuntimeWarning, stacklevel=3)

    def _checked(self) -> tuple[int, ...]:
        """Hidden widths, after every argument has been looked at."""
        hidden = self.hidden.tolist() if isinstance(self.hidden, np.ndarray) else self.hidden
        widths = hidden if isinstance(hidden, tuple | list) else (hidden,)
        sound = all(_whole(k, 1) for k in widths)
        if not widths or not sound:
            raise InvalidInputError(
                f"hidden={self.hidden!r}: expected a positive number of units, or a tuple of them"
            )
        if self.solver != "auto" and self.solver not in SOLVERS:
            solver(str(self.solver))
        if self.constraint not in ("tight", "bounded", "unit", None):
            raise InvalidInputError(
                f"constraint={self.constraint!r}: use 'tight', 'bounded', 'unit' or None"
            )
        if isinstance(self.alpha, str):
            valid = self.alpha == "auto"
        else:
            real = isinstance(self.alpha, numbers.Real) and not isinstance(self.alpha, bool)
            valid = real and 0 <= float(self.alpha) < np.inf
        if not valid:
            raise InvalidInputError(f"alpha={self.alpha!r}: expected 'auto' or a number >= 0")
        if not isinstance(self.skip, bool | np.bool_):
            raise InvalidInputError(f"skip={self.skip!r}: expected True or False")
        if self.n_init is not None and not _whole(self.n_init, 1):
            raise InvalidInputError(
                f"n_init={self.n_init!r}: expected a whole number >= 1, or None"
            )
        if not _whole(self.restarts, 1):
            raise InvalidInputError(f"restarts={self.restarts!r}: expected a whole number >= 1")
        if self.n_jobs is not None and (not _whole(self.n_jobs, -(2**31)) or self.n_jobs == 0):
            raise InvalidInputError(
                f"n_jobs={self.n_jobs!r}: expected a whole number other than 0, or None"
            )
        if self.options is not None and not isinstance(self.options, dict):
            raise InvalidInputError(f"options={self.options!r}: expected a dict, or None")
        _check_device(self.device)
        return tuple(int(k) for k in widths)


#: Solvers for which ``alpha='auto'`` means no penalty: a certificate, or the papers' own runs.
_UNPENALIZED = ("exact", "slsqp", "bfgs", "lbfgs")


#: Solvers whose inputs are scaled by their bulk where a few values are far away; not the papers'
#: own runs, and not steps of a fixed size.
_ROBUST = ("exact", "greedy", "deep")


def merge_rows(
    x: NDArray[np.float64], y: NDArray[np.float64], weight: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Distinct rows of (x, y) in sorted order with their total weights; zero weights are dropped.

    After this a repeated row and a row of doubled weight are the same input, and so is any order.
    """
    keep = weight > 0
    table = np.column_stack([x, y])[keep] + 0.0
    rows, where = np.unique(table, axis=0, return_inverse=True)
    total = np.bincount(where.ravel(), weights=weight[keep], minlength=len(rows))
    return rows[:, : x.shape[1]], rows[:, x.shape[1] :], total.astype(np.float64)


def _whole(value: Any, least: int) -> bool:
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    return whole and int(value) >= least


def _check_device(device: Any) -> None:
    if device == "cpu":
        return
    import torch

    try:
        if torch.empty(0, device=device).is_meta:
            raise InvalidInputError(f"device={device!r} holds no numbers; use 'cpu' or 'cuda'")
    # torch says that a device is missing by whichever of these its build prefers
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidInputError(f"device={device!r} cannot be used: {reason}") from error


def _name_text_columns(table: Any, error: Exception) -> None:
    """A table with columns that are not numbers deserves their names."""
    kinds = getattr(table, "dtypes", None)
    if kinds is None or not hasattr(kinds, "items"):
        return
    names = [str(name) for name, kind in kinds.items() if getattr(kind, "kind", "O") not in "biuf"]
    if names:
        shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        raise InvalidInputError(
            f"columns that are not numbers: {shown} ({error}); encode or drop them first"
        ) from error


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


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count if count > 0 else max(1, before))
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _progress(wanted: bool, title: str) -> Iterator[Any]:
    """A rich progress bar as the solvers' listener, or None."""
    if not wanted:
        yield None
        return
    from relunorm.train.progress import progress_bar

    with progress_bar(title) as listener:
        yield listener
