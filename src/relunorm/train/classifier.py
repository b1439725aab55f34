"""`ReLUClassifier`: log-loss on the same networks, behind scikit-learn's interface."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from relunorm.clock import Clock
from relunorm.errors import InvalidInputError
from relunorm.network import Network
from relunorm.network.head import Head, Step, StepKind
from relunorm.train.estimator_base import (
    Floats,
    ReLUEstimator,
    progress_bar,
    real_number,
    threads,
    used_columns,
)
from relunorm.train.scaling import Scaling
from relunorm.train.solve.by_name import CLASSIFIERS, solver

#: Multiplications of one evaluation of all rows above which mini-batches are used instead.
FULL_BATCH = 3e8


@dataclass(kw_only=True, eq=False, repr=False)
class ReLUClassifier(ClassifierMixin, ReLUEstimator):
    """Classification with a small ReLU network, its outputs calibrated log-odds.

    Two classes have one output f(x) = a + S x + V h(x), the log-odds of the second one; more
    classes have one output each, whose softmax is the probability. The mean log-loss plus
    alpha (|W|^2 + |V|^2) + affine |S|^2 is minimized by L-BFGS from units chosen one by one; in the
    reduced space that penalty is a sum of units' weights and leaves only units that help. Penalties
    are chosen by cross-validation, logistic regression among the choices, and the margins are
    stretched as the held-out rows ask for.

    Args:
        hidden: ReLU units, a number or one number per hidden layer.
        solver: ``auto``, ``logistic`` (L-BFGS on all rows) or ``adam`` (mini-batches, for many
            rows).
        constraint: for ``adam``: ``tight``, ``bounded``, ``unit`` or None, as in `ReLURegressor`.
        alpha: the units' penalty, in normalized units; ``auto`` chooses it and the slopes'.
        skip: whether the affine part is a connection of its own.
        class_weight: None, ``balanced``, or a dict from class to weight; multiplies the sample
            weights. Probabilities are then those of the reweighted classes.
        calibrate: whether the outputs are stretched by cross-validation to be log-odds.
        n_init: starts of one fit.
        time_limit: seconds after which the best network so far is returned.
        random_state: seed of every random choice.
        n_jobs: threads of ``adam``; None leaves torch's own setting.
        device: where ``adam`` computes, for example ``cuda``.
        verbose: show a progress bar on stderr.
        missing: ``refuse`` NaN in X, or fill it with the ``median`` of its column.
        early_stopping, validation_fraction, n_iter_no_change, warm_start: as in `ReLURegressor`.
        options: of ``adam``: ``batch``, ``epochs``, ``lr``.

    Attributes:
        classes_: the labels, sorted.
        network_: the `Network` in the user's units, hidden rows of unit length; its outputs are
            `decision_function`, its head has the sigmoid or softmax that follows, and the classes.
        stretch_: what the outputs were multiplied by to be log-odds.
        alpha_, affine_alpha_, solver_: what ``auto`` became.
        loss_curve_, n_iter_, validation_curve_, imputed_, stopped_: as in `ReLURegressor`.

    >>> x = np.linspace(-1, 1, 100)[:, None]
    >>> model = ReLUClassifier(hidden=4, random_state=0).fit(x, np.abs(x[:, 0]) < 0.5)
    >>> model.predict([[0.0], [0.9]])
    array([ True, False])
    """

    class_weight: dict[Any, float] | str | None = None
    calibrate: bool = True
    _solvers = tuple(CLASSIFIERS)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> ReLUClassifier:
        """Fit the network.

        Args:
            X: (n, d), y: (n,) labels, sample_weight: (n,) non-negative.
        """
        clock = Clock(self.time_limit)
        hidden = self._checked()
        x, y, weight = self._training_rows(X, y, sample_weight)
        try:
            check_classification_targets(y)
            found = np.unique(y, return_inverse=True)
        except TypeError as error:
            raise InvalidInputError(
                f"labels of several kinds cannot be sorted ({error}); give all as text or "
                "all as numbers"
            ) from error
        except ValueError as error:  # numbers with fractions, or a label of several columns
            raise InvalidInputError(
                f"{error} (classes are one column of whole numbers or words; to predict a number "
                "fit a ReLURegressor)"
            ) from error
        former = getattr(self, "classes_", None) if self.warm_start else None
        self.classes_, label = found
        if len(self.classes_) < 2:
            raise InvalidInputError(
                f"y holds one class only, {self.classes_[0]}; a classifier needs two"
            )
        if former is not None and not np.array_equal(former, self.classes_):
            raise InvalidInputError(
                f"warm_start: the classes were {former.tolist()}, now {self.classes_.tolist()}; "
                "fit a new estimator"
            )
        weight = weight * self._class_weights(y)[label]
        targets = np.eye(len(self.classes_))[label]
        targets = targets[:, 1:] if len(self.classes_) == 2 else targets
        self._fit_rows(x, targets, weight, hidden, clock)
        return self

    def decision_function(self, X: Any) -> Floats:
        """Calibrated margins: log-odds (n,) of the second of two classes, else (n, classes)."""
        outputs = self._outputs(X)
        return outputs[:, 0] if len(self.classes_) == 2 else outputs

    def predict_proba(self, X: Any) -> Floats:
        """(n, classes) probabilities, in the order of ``classes_``."""
        outputs = self._outputs(X)
        if len(self.classes_) > 2:
            return softmax(outputs, axis=1)
        return np.column_stack([expit(-outputs), expit(outputs)])

    def predict(self, X: Any):
        """The likeliest class of every row."""
        outputs = self._outputs(X)
        if len(self.classes_) == 2:
            return self.classes_[(outputs[:, 0] > 0).astype(np.intp)]
        return self.classes_[outputs.argmax(axis=1)]

    def _fit_rows(
        self, x: Floats, y: Floats, weight: Floats, hidden: tuple[int, ...], clock: Clock
    ) -> None:

        columns = used_columns(x, weight)
        widths = (max(1, len(columns)), *hidden, y.shape[1])
        size = sum(a * b for a, b in pairwise(widths))
        self.solver_ = self.solver
        if self.solver == "auto":
            self.solver_ = "adam" if 6 * len(x) * size > FULL_BATCH else "logistic"
        x, y, weight = self._prepared(x, y, weight, hidden, widths[0])
        used = columns if len(columns) else np.zeros(1, np.intp)
        inputs = self._scaled_inputs(x, weight, used)
        penalty = (None if isinstance(self.alpha, str) else float(self.alpha), 0.0)
        if self.warm_start and hasattr(self, "network_"):
            penalty = (self.alpha_, self.affine_alpha_)
        plain = Scaling(np.zeros(y.shape[1]), np.ones(y.shape[1]))
        with threads(self.n_jobs), progress_bar(bool(self.verbose), self.solver_) as progress:
            rest = {"progress": progress, "logistic": True}
            rows, scalings = (x, y, weight), (inputs, plain)
            task = self._task(rows, scalings, used, hidden, penalty, clock, **rest)
            solve = solver(self.solver_)
            fit = solve(task, bool(self.calibrate))
        self._adopt(fit, inputs, plain, columns, x.shape[1])
        self.stretch_ = fit.facts["stretch"]

    def _head(self, network: Network) -> Head:
        kind: StepKind = "sigmoid" if network.output_size == 1 else "softmax"
        return Head((Step(kind),), tuple(self.classes_.tolist()))

    def _checked(self) -> tuple[int, ...]:
        hidden = super()._checked()
        self._ask(
            "calibrate", isinstance(self.calibrate, bool | np.bool_), "expected True or False"
        )
        return hidden

    def _class_weights(self, y: Any) -> Floats:
        """One weight a class."""
        given = self.class_weight
        if given is not None and not isinstance(given, dict) and given != "balanced":
            raise InvalidInputError(
                f"class_weight={given!r}: use None, 'balanced' or a dict from class to weight"
            )
        if isinstance(given, dict) and not all(
            real_number(w) and 0 <= float(w) < np.inf for w in given.values()
        ):
            raise InvalidInputError(f"class_weight={given!r}: expected weights >= 0")
        return compute_class_weight(given, classes=self.classes_, y=y)
