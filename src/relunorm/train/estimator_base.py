"""What the two estimators share: arguments, tables, and the way from a table to a network."""

from __future__ import annotations

import math
import numbers
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

# the checker reads stubs of an older scikit-learn
from sklearn.utils.validation import (
    _check_sample_weight,  # pyrefly: ignore[missing-module-attribute]
    check_is_fitted,
    validate_data,  # pyrefly: ignore[missing-module-attribute]
)

from relunorm.clock import INTERRUPTED, Clock, Log, Progress
from relunorm.errors import InvalidInputError
from relunorm.network import Network
from relunorm.network.columns import Column
from relunorm.network.head import Head
from relunorm.train.scaling import Scaling, network_of, start_of, varying, widened
from relunorm.train.solve.by_name import check_options, check_size, described

if TYPE_CHECKING:
    from relunorm.train.problem.task import Fit, Start, Task

Floats = NDArray[np.float64]

#: Weights that are a smaller share of the largest one are none: what such rows say has no float64
#: beside what the others do.
NO_WEIGHT = 1e-100

#: Fewest rows that early stopping holds out.
FEWEST_WATCHED = 5


@dataclass(kw_only=True, eq=False, repr=False)
class ReLUEstimator(BaseEstimator):
    """Base of `ReLURegressor` and `ReLUClassifier`, with the arguments of both; not for use by
    itself."""

    hidden: int | tuple[int, ...] = 20
    solver: str = "auto"
    constraint: str | None = "tight"
    alpha: float | str = "auto"
    skip: bool = True
    n_init: int | None = None
    time_limit: float | Clock | None = None
    random_state: Any = None
    n_jobs: int | None = None
    device: str = "cpu"
    verbose: bool | int = False
    missing: str = "refuse"
    early_stopping: bool = False
    validation_fraction: float = 0.1
    n_iter_no_change: int = 10
    warm_start: bool = False
    options: dict[str, Any] | None = None

    n_features_in_: int = field(init=False)
    network_: Network = field(init=False)
    solver_: str = field(init=False)
    stopped_: str = field(init=False)
    imputed_: Floats = field(init=False)

    #: Solvers that may be asked for by name.
    _solvers: ClassVar[tuple[str, ...]] = ()

    def to_torch(self):
        """The fitted network as a plain ``torch.nn.Module`` in float64."""
        from relunorm.io.torch.write import to_torch

        check_is_fitted(self, "network_")
        return to_torch(self.network_.without_head())

    def to_onnx(self, **arguments: Any):
        """The network as an ``onnx.ModelProto``; a fit cut short is marked in its metadata."""
        from relunorm.io.onnx.write import to_onnx

        check_is_fitted(self, "network_")
        return to_onnx(self.network_.without_head(), stopped=self.stopped_, **arguments)

    def _outputs(self, X: Any) -> Floats:
        """The network's outputs (n, m)."""
        check_is_fitted(self, "network_")
        return self.network_(self._filled(self._validated(X, reset=False)))

    def _training_rows(
        self, X: Any, y: Any, sample_weight: Any, **rules: Any
    ) -> tuple[Floats, Any, Floats]:
        """Checked inputs, targets and weights; missing inputs are refused or filled."""
        X, y = self._validated(X, y=y, **rules)
        weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        x, weight = np.asarray(X), np.asarray(weight, dtype=np.float64)
        if not (weight > 0).any():
            raise InvalidInputError("every sample weight is zero; at least one must be positive")
        # by a power of two, which rounds nothing: sums of huge weights would overflow
        weight = np.ldexp(weight, -int(np.frexp(weight.max())[1]))
        weight[weight < NO_WEIGHT] = 0.0
        if self.missing == "median":
            self.imputed_ = _medians(x[weight > 0])
        return self._filled(x), np.asarray(y), weight

    def _validated(self, X: Any, **rules: Any) -> Any:
        finite = True if self.missing == "refuse" else "allow-nan"
        _refuse_dates(X)
        try:
            return validate_data(self, X, dtype=np.float64, ensure_all_finite=finite, **rules)
        except (TypeError, ValueError) as error:
            _name_columns(X, error)
            raise

    def _filled(self, X: Any) -> Floats:
        """X with missing values replaced by the medians of the rows that were fitted."""
        x = np.asarray(X)
        if self.missing == "refuse":
            return x
        gaps = np.isnan(x)
        return np.where(gaps, self.imputed_, x) if gaps.any() else x

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()  # pyrefly: ignore[missing-attribute]
        tags.input_tags.allow_nan = self.missing != "refuse"
        return tags

    def _task(
        self,
        rows: tuple[Floats, Floats, Floats],
        scalings: tuple[Scaling, Scaling],
        columns: NDArray[np.intp],
        hidden: tuple[int, ...],
        penalty: tuple[float | None, float],
        clock: Clock,
        **rest: Any,
    ) -> Task:
        """The problem in normalized units; rows for early stopping are held out of it."""
        import torch

        from relunorm.train.problem.task import Task, Watch

        (x, y, weight), (inputs, targets) = rows, scalings
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        # mini-batches are float32 anyway, and a large table is not held twice
        dtype = np.float32 if described(self.solver_).batches else np.float64

        def tensor(array: NDArray[Any]) -> torch.Tensor:
            return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

        table = x if len(columns) == x.shape[1] else x[:, columns]
        task = Task(
            x=tensor(inputs.apply(table, dtype)),
            y=tensor(targets.apply(y, dtype)),
            weight=tensor(weight / weight.mean()),
            hidden=hidden,
            constraint=self.constraint,  # type: ignore[arg-type]
            alpha=penalty[0],
            affine=penalty[1],
            skip=bool(self.skip),
            rounds=self.n_init,
            clock=clock,
            seed=seed,
            start=self._former(inputs, targets, columns, hidden),
            options=dict(self.options or {}),
            **rest,
        )
        if not self.early_stopping:
            return task
        count = max(FEWEST_WATCHED, round(self.validation_fraction * len(x)))
        if len(x) < 2 * count:
            raise InvalidInputError(
                f"early_stopping: {count} of {len(x)} different rows would be held out; too few to "
                "fit and to check: leave it out"
            )
        return Watch.over(task, count, self.n_iter_no_change)

    def _former(
        self, inputs: Scaling, targets: Scaling, columns: NDArray[np.intp], hidden: tuple[int, ...]
    ) -> Start | None:
        """The network there is, in the units of this fit."""
        if not self.warm_start or not hasattr(self, "network_"):
            return None
        known = self.network_.input_size, self.network_.output.size
        now = self.n_features_in_, len(targets.scale)
        if known != now:
            raise InvalidInputError(
                f"warm_start: the fitted network has {known[0]} inputs and {known[1]} outputs, the "
                f"data {now[0]} and {now[1]}; fit a new estimator"
            )
        start = start_of(self.network_, inputs, targets, columns)
        widths = tuple(len(b) for _, b in start.layers)
        # these place fewer units where rows are few, and fill up
        fits = len(widths) == 1 == len(hidden) and self.solver_ in ("greedy", "exact")
        if widths != hidden and not fits:
            raise InvalidInputError(
                f"warm_start: the fitted network has hidden layers {widths}, but "
                f"hidden={self.hidden!r}; fit a new estimator"
            )
        return start

    def _adopt(
        self, fit: Fit, inputs: Scaling, targets: Scaling, columns: NDArray[np.intp], width: int
    ) -> None:
        """Keep a solver's answer as a network in the user's units."""
        fit, inputs = widened(fit, inputs, columns, width)
        name = f"{type(self).__name__}({self.solver_})"
        network = network_of(fit, inputs, targets, name)
        self.network_ = network.replace(columns=self._columns(), head=self._head(network))
        self.loss_curve_ = [float(value) for value in fit.curve]
        self.validation_curve_ = [float(value) for value in fit.watched]
        self.n_iter_ = max(1, fit.iterations)
        self.alpha_, self.affine_alpha_ = fit.alpha, fit.affine
        self.stopped_ = fit.stopped
        if fit.stopped == INTERRUPTED:
            message = "the fit was interrupted; the model is the best one found until then"
            warnings.warn(message, RuntimeWarning, stacklevel=4)

    def _columns(self) -> list[Column]:
        """The columns of the DataFrame that was fitted, and what fills their gaps."""
        names = getattr(self, "feature_names_in_", ())
        fills = [None] * len(names) if self.missing == "refuse" else self.imputed_.tolist()
        return [Column(str(name), fill=fill) for name, fill in zip(names, fills, strict=False)]

    def _head(self, network: Network) -> Head:
        """What turns the outputs into the answer."""
        return network.head

    def _scaled_inputs(self, x: Floats, weight: Floats, columns: NDArray[np.intp]) -> Scaling:
        names = getattr(self, "feature_names_in_", None)
        names = columns if names is None else names[columns]
        table = x if len(columns) == x.shape[1] else x[:, columns]
        return Scaling.of(table, weight, "X", names, robust=described(self.solver_).robust)

    def _ask(self, name: str, fine: bool, wanted: str) -> None:
        """Refuse an argument that is not fine."""
        if not fine:
            raise InvalidInputError(f"{name}={getattr(self, name)!r}: {wanted}")

    def _checked(self) -> tuple[int, ...]:
        """Hidden widths, after every argument has been looked at."""
        hidden = self.hidden.tolist() if isinstance(self.hidden, np.ndarray) else self.hidden
        widths = hidden if isinstance(hidden, tuple | list) else (hidden,)
        sound = bool(widths) and all(whole_number(k, 1) for k in widths)
        self._ask("hidden", sound, "expected a positive number of units, or a tuple of them")
        if self.solver not in ("auto", *self._solvers):
            known = ", ".join(self._solvers)
            raise InvalidInputError(f"solver {self.solver!r} is not known; use auto, {known}")
        known = self.constraint in ("tight", "bounded", "unit", None)
        self._ask("constraint", known, "use 'tight', 'bounded', 'unit' or None")
        if isinstance(self.alpha, str):
            valid = self.alpha == "auto"
        else:
            valid = real_number(self.alpha) and 0 <= float(self.alpha) < np.inf
        self._ask("alpha", valid, "expected 'auto' or a number >= 0")
        for name in ("skip", "early_stopping", "warm_start"):
            self._ask(
                name, isinstance(getattr(self, name), bool | np.bool_), "expected True or False"
            )
        starts = self.n_init is None or whole_number(self.n_init, 1)
        self._ask("n_init", starts, "expected a whole number >= 1, or None")
        jobs = self.n_jobs is None or (whole_number(self.n_jobs, -(2**31)) and self.n_jobs != 0)
        self._ask("n_jobs", jobs, "expected a whole number other than 0, or None")
        plain = self.options is None or isinstance(self.options, dict)
        self._ask("options", plain, "expected a dict, or None")
        self._ask("missing", self.missing in ("refuse", "median"), "use 'refuse' or 'median'")
        share = self.validation_fraction
        part = real_number(share) and 0 < float(share) < 1
        self._ask("validation_fraction", part, "expected a share from 0 to 1")
        patient = whole_number(self.n_iter_no_change, 1)
        self._ask("n_iter_no_change", patient, "expected a whole number >= 1")
        check_options(self.options or {})
        _check_device(self.device)
        return tuple(int(k) for k in widths)

    def _prepared(
        self, x: Floats, y: Floats, weight: Floats, hidden: tuple[int, ...], inputs: int
    ) -> tuple[Floats, Floats, Floats]:
        """Rows with weight, as the solver takes them (`Solver.batches`)."""
        check_size(self.solver_, len(x), inputs, hidden)
        if not described(self.solver_).batches:
            return merge_rows(x, y, weight)
        keep = weight > 0
        return (x, y, weight) if keep.all() else (x[keep], y[keep], weight[keep])


def merge_rows(x: Floats, y: Floats, weight: Floats) -> tuple[Floats, Floats, Floats]:
    """Distinct rows of (x, y) in sorted order with their total weights; zero weights are dropped.

    After this a repeated row and a row of doubled weight are the same input, and so is any order.
    """
    keep = weight > 0
    table = np.column_stack([x, y])[keep] + 0.0
    rows, where = np.unique(table, axis=0, return_inverse=True)
    total = np.bincount(where.ravel(), weights=weight[keep], minlength=len(rows))
    return rows[:, : x.shape[1]], rows[:, x.shape[1] :], total.astype(np.float64)


def used_columns(x: Floats, weight: Floats) -> NDArray[np.intp]:
    """The inputs that vary among rows with weight."""
    return varying(x if weight.all() else x[weight > 0])


def _medians(x: Floats) -> Floats:
    """Median of what is there, column by column."""
    empty = np.flatnonzero(np.isnan(x).all(axis=0))
    if len(empty):
        shown = ", ".join(map(str, empty[:10]))
        raise InvalidInputError(f"columns without a single value: {shown}; drop them first")
    return np.nanmedian(x, axis=0)


def whole_number(value: Any, least: int) -> bool:
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    return whole and int(value) >= least


def real_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


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


def _refuse_dates(table: Any) -> None:
    """NumPy would read them as nanoseconds."""
    kinds = (
        table.dtypes.items() if hasattr(table, "columns") else [("X", getattr(table, "dtype", 0))]
    )
    names = [str(name) for name, kind in kinds if getattr(kind, "kind", "f") in "mM"]
    if names:
        raise InvalidInputError(
            f"columns that are not numbers: {_listed(names)} (dates or times); give days or hours "
            "since a start"
        )


def _name_columns(table: Any, error: Exception) -> None:
    """A table with columns that are not numbers, or with gaps, deserves their names."""
    kinds = getattr(table, "dtypes", None)
    if kinds is None or not hasattr(kinds, "items"):
        if "Input X contains NaN" in str(error):
            gaps = np.flatnonzero(np.isnan(np.asarray(table, dtype=np.float64)).any(axis=0))
            _refuse_gaps(list(map(str, gaps)), error)
        return
    twice = [str(name) for k, name in enumerate(table.columns) if name in table.columns[:k]]
    if twice:
        raise InvalidInputError(
            f"two columns have the same name {twice[0]!r}; rename or drop one of them"
        ) from error
    names = [str(name) for name, kind in kinds.items() if getattr(kind, "kind", "O") not in "biuf"]
    if names:
        raise InvalidInputError(
            f"columns that are not numbers: {_listed(names)} ({error}); encode or drop them first"
        ) from error
    gaps = [str(name) for name in table.columns if bool(table[name].isna().any())]
    if gaps and "NaN" in str(error):
        _refuse_gaps(gaps, error)


def _refuse_gaps(columns: list[str], error: Exception) -> None:
    raise InvalidInputError(
        f"columns with missing values (NaN): {_listed(columns)}; drop or fill them, or fill them "
        "with the column's median by missing='median'"
    ) from error


def _listed(names: list[str]) -> str:
    return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """torch with that many threads; None leaves them as they are."""
    import torch

    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count if count > 0 else max(1, before))
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def progress_bar(wanted: bool, title: str) -> Iterator[Any]:
    """A listener that draws stage, share done, best loss and times on stderr; None if unwanted.

    Where stderr is no terminal it writes a line now and then.
    """
    if not wanted:
        yield None
        return
    if not sys.stderr.isatty():
        yield Log(f"fitting by {title}", lambda line: print(line, file=sys.stderr, flush=True))
        return
    from rich import progress as rich
    from rich.console import Console

    columns = (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.TextColumn("loss {task.fields[loss]}"),
        rich.TimeElapsedColumn(),
        rich.TimeRemainingColumn(),
    )
    with rich.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        item = bar.add_task(title, total=1.0, loss="-")

        def listen(said: Progress) -> None:
            loss = said.facts.get("loss", math.nan)
            shown = f"{loss:.3e}" if math.isfinite(loss) else "-"
            text = f"{title}: {said.message}"
            bar.update(item, description=text, completed=said.done, total=said.total, loss=shown)

        yield listen
