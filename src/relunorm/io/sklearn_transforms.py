"""Steps of a scikit-learn pipeline that are piecewise affine: scalers, projections, quantiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from relunorm.errors import InvalidNetworkError
from relunorm.io.graph.lower import CannotLower, Lowering, Tensor
from relunorm.io.graph.walk import refused
from relunorm.matrix import as_matrix, scale_rows
from relunorm.network import RELU, Activation, Network
from relunorm.network.head import Head, Step
from relunorm.network.layer import Affine

Array = NDArray[np.float64]

#: Quantiles this close together, of the largest one, are one.
CLOSE = 1e-11

#: Transformers that choose columns, by `get_support`.
SELECTIONS = ("SelectKBest", "SelectPercentile", "SelectFromModel", "SelectFpr", "SelectFdr")
SELECTIONS += ("SelectFwe", "VarianceThreshold", "RFE", "RFECV", "SequentialFeatureSelector")


class _Refusal(Exception):
    """Steps that cannot be read, each with its place and name."""

    def __init__(self, found: list[tuple[str, str]]):
        super().__init__()
        self.found = found


def transformed(low: Lowering, x: Tensor, steps: Sequence[tuple[str, Any]], origin: str) -> Tensor:
    """The columns that the steps give, as functions of the columns they were given."""
    found: list[tuple[str, str]] = []
    for name, step in steps:
        try:
            x = _step(low, x, step, f"{origin}.{name}")
        except _Refusal as refusal:
            found += refusal.found
        except (AttributeError, ValueError) as error:
            if found:
                continue  # the columns are unknown after a step that was refused
            raise InvalidNetworkError(f"{origin}: step {name!r}: {error}") from None
    if found:
        raise refused(origin, found)
    return x


def _step(low: Lowering, x: Tensor, step: Any, place: str) -> Tensor:
    """One step; of those that hold others each part is named where it cannot be read."""
    if step is None or str(step) == "passthrough":
        return x
    name = type(step).__name__
    try:
        if not type(step).__module__.startswith("sklearn."):
            raise CannotLower("is not scikit-learn's own")
        if name == "Pipeline":
            for part, each in step.steps:
                x = _step(low, x, each, f"{place}.{part}")
            return x
        if name in ("ColumnTransformer", "FeatureUnion"):
            union = name == "FeatureUnion"
            parts = [(*p, x) for p in step.transformer_list] if union else _chosen(low, x, step)
            return _side_by_side(low, parts, step.transformer_weights or {}, place)
        if name in SELECTIONS:
            return low.rearrange(x, np.flatnonzero(step.get_support())[None])
        if name not in STEPS:
            raise CannotLower
        if not hasattr(step, "n_features_in_") and name != "FunctionTransformer":
            raise InvalidNetworkError(f"{name} is not fitted; call fit first")
        return STEPS[name](low, x, step)
    except CannotLower as reason:
        raise _Refusal([(place, name + (f": {reason}" if str(reason) else ""))]) from None


def _side_by_side(
    low: Lowering, parts: Sequence[tuple[str, Any, Tensor]], weights: dict[str, float], place: str
) -> Tensor:
    results, found = [], []
    for name, part, x in parts:
        if isinstance(part, str) and part == "drop":
            continue
        try:
            result = _step(low, x, part, f"{place}.{name}")
            results.append(
                low.scale(result, np.array(weights[name])) if name in weights else result
            )
        except _Refusal as refusal:
            found += refusal.found
    if found:
        raise _Refusal(found)
    if not results:
        raise InvalidNetworkError("every column is dropped")
    return low.concatenate(results, 1)


def _chosen(low: Lowering, x: Tensor, step: Any) -> list[tuple[str, Any, Tensor]]:
    """The parts of a ColumnTransformer, each with the columns it reads."""
    names = list(getattr(step, "feature_names_in_", []))
    parts = []
    for name, part, columns in step.transformers_:
        chosen = _numbers(columns, names, x.size)
        if len(chosen):
            parts.append((name, part, low.rearrange(x, chosen[None])))
    return parts


def _centred(low: Lowering, x: Tensor, centre: Any, scale: Any) -> Tensor:
    """(x - centre) / scale; None stands for no centre or scale."""
    if centre is not None:
        x = low.shift(x, -np.asarray(centre))
    return x if scale is None else low.scale(x, 1.0 / np.asarray(scale))


def _around(step: Any) -> tuple[Any, Any]:
    """The centre and the scale of a scaler; None for none."""
    if type(step).__name__ == "StandardScaler":
        return step.mean_ if step.with_mean else None, step.scale_
    if type(step).__name__ == "MaxAbsScaler":
        return None, step.scale_
    centre = step.center_ if step.with_centering else None
    return centre, step.scale_ if step.with_scaling else None


def _scaler(low: Lowering, x: Tensor, step: Any) -> Tensor:
    x = _centred(low, x, *_around(step))
    return low.clip(x, -1.0, 1.0, "MaxAbsScaler") if getattr(step, "clip", False) else x


def _min_max(low: Lowering, x: Tensor, step: Any) -> Tensor:
    x = low.shift(low.scale(x, np.asarray(step.scale_)), np.asarray(step.min_))
    if not step.clip:
        return x
    first, last = (float(end) for end in step.feature_range)
    return low.clip(x, first, last, "MinMaxScaler")


def _projection(low: Lowering, x: Tensor, step: Any) -> Tensor:
    components = np.asarray(step.components_, dtype=np.float64)
    if getattr(step, "whiten", False):
        components = components / np.sqrt(step.explained_variance_)[:, None]
    x = _centred(low, x, getattr(step, "mean_", None), None)
    return low.linear(x, components, None)


def _imputer(low: Lowering, x: Tensor, step: Any) -> Tensor:
    """Complete rows, the only ones a network reads, pass as they are."""
    kept = np.isfinite(np.asarray(step.statistics_, dtype=np.float64)).all()
    if step.add_indicator or not kept:
        raise CannotLower("adds or drops columns")
    if isinstance(step.missing_values, int | float) and not np.isnan(step.missing_values):
        raise CannotLower("replaces a number, not what is missing")
    return x


def fills(first: Any, names: list[str]) -> dict[str, float]:
    """What imputers that come before all else put into the gaps of named columns."""
    parts = [("", first, names)]
    if type(first).__name__ == "ColumnTransformer":
        parts = first.transformers_
    found: dict[str, float | None] = {}
    for _, part, columns in parts if names else ():
        step = part.steps[0][1] if hasattr(part, "steps") else part
        for k, column in enumerate(_numbers(columns, names, len(names)).tolist()):
            fill = float(step.statistics_[k]) if type(step).__name__ == "SimpleImputer" else None
            # a column that is read twice may be filled in two ways
            found[names[column]] = None if names[column] in found else fill
    return {name: fill for name, fill in found.items() if fill is not None}


def _function(low: Lowering, x: Tensor, step: Any) -> Tensor:
    if step.func is not None:
        named = getattr(step.func, "__name__", "")
        raise CannotLower(f"with the function {named}" if named else "with a function")
    return x


def _binarizer(low: Lowering, x: Tensor, step: Any) -> Tensor:
    over = low.shift(x, np.array(-float(step.threshold)))
    return low.activate(over, Activation("step", at_zero=0.0), "Binarizer")


def _quantiles(low: Lowering, x: Tensor, step: Any) -> Tensor:
    """The share of the data below a value: linear between quantiles, with a jump at repeated ones.

    Of a step with the value v at 0 there are two parts, 1 - v of it still 0 there and v already 1.
    """
    if step.output_distribution != "uniform":
        raise CannotLower("to a normal distribution; output_distribution='uniform' is read")
    references = np.asarray(step.references_, dtype=np.float64)
    quantiles = np.asarray(step.quantiles_, dtype=np.float64).T
    knots = [
        (k, *knot) for k, column in enumerate(quantiles) for knot in _knots(column, references)
    ]
    columns, places, changes, below, above = (np.array(each) for each in zip(*knots, strict=True))
    over = low.shift(low.rearrange(x, columns[None]), -places)
    halves = np.where(below == above, 2 * below, 0.0)
    kinds = [(RELU, changes), (Activation("step", at_zero=0.5), halves)]
    kinds += [(Activation("step", at_zero=at), np.where(halves == 0, part, 0.0))
              for at, part in ((0.0, above), (1.0, below))]  # fmt: skip
    parts = []
    for activation, weights in kinds:
        used = np.flatnonzero(weights)
        if len(used):
            units = low.activate(low.rearrange(over, used[None]), activation, "QuantileTransformer")
            entries = (weights[used], (columns[used], np.arange(len(used))))
            table = as_matrix(csr_array(entries, shape=(x.size, len(used))))
            parts.append(low.map(units, table, None, (1, x.size)))
    return reduce(low.add, parts)


def _knots(column: Array, references: Array) -> list[tuple[float, float, float, float]]:
    """Where the share of one column bends or jumps: the place, by how much its slope changes, and
    by how much it jumps up to the value at the place, and from it on.

    Quantiles that differ in their last digits only were the same value before scikit-learn
    interpolated between them.
    """
    group = np.cumsum(np.diff(column, prepend=column[:1]) > CLOSE * np.abs(column).max())
    found = []
    for number in range(int(group[-1]) + 1):
        members = np.flatnonzero(group == number)
        values, counts = np.unique(column[members], return_counts=True)
        at = float(values[counts.argmax()])
        same = np.flatnonzero(column == at)
        value = (references[same[0]] + references[same[-1]]) / 2
        if at == column[-1]:
            value = references[-1]
        if at == column[0]:
            value = references[0]
        found.append((at, references[members[0]], value, references[members[-1]]))
    at, before, value, after = (np.array(each) for each in zip(*found, strict=True))
    slopes = np.concatenate([[0.0], (before[1:] - after[:-1]) / np.diff(at), [0.0]])
    return list(zip(at, np.diff(slopes), value - before, after - value, strict=True))


def _numbers(columns: Any, names: list[str], count: int) -> NDArray[np.intp]:
    """The numbers of columns, however they were named."""
    if isinstance(columns, slice):
        ends = [names.index(e) if isinstance(e, str) else e for e in (columns.start, columns.stop)]
        if isinstance(columns.stop, str):
            ends[1] += 1  # a slice of names includes its end
        return np.arange(count)[slice(ends[0], ends[1], columns.step)]
    listed: list[Any] = [columns] if isinstance(columns, str | int) else list(columns)
    if listed and all(isinstance(c, str) for c in listed):
        return np.array([names.index(c) for c in listed], dtype=np.intp)
    array = np.asarray(listed)
    if array.dtype == bool:
        return np.flatnonzero(array)
    return np.arange(count)[array.astype(np.intp)]


STEPS: dict[str, Callable[[Lowering, Tensor, Any], Tensor]] = {
    "StandardScaler": _scaler,
    "RobustScaler": _scaler,
    "MaxAbsScaler": _scaler,
    "MinMaxScaler": _min_max,
    "PCA": _projection,
    "IncrementalPCA": _projection,
    "TruncatedSVD": _projection,
    "SimpleImputer": _imputer,
    "FunctionTransformer": _function,
    "Binarizer": _binarizer,
    "QuantileTransformer": _quantiles,
}


def unscaled(network: Network, transformer: Any) -> Network:
    """The network behind the inverse of a transformer of its target."""
    name = type(transformer).__name__
    if name == "FunctionTransformer" and transformer.inverse_func in _INVERSES:
        steps = _INVERSES[transformer.inverse_func]
        return network.replace(head=Head((*network.head.steps, *steps)))
    if name in ("StandardScaler", "RobustScaler", "MaxAbsScaler"):
        offset, factor = _around(transformer)
    elif name == "MinMaxScaler":
        factor = 1.0 / transformer.scale_
        offset = -transformer.min_ / transformer.scale_
    else:
        inverse = getattr(transformer, "inverse_func", None)
        shown = f" with the inverse {getattr(inverse, '__name__', inverse)}" if inverse else ""
        raise refused(network.origin, [("TransformedTargetRegressor.transformer_", name + shown)])
    size = network.output_size
    factors = np.broadcast_to(np.ones(1) if factor is None else np.asarray(factor), size)
    offsets = np.broadcast_to(np.zeros(1) if offset is None else np.asarray(offset), size)
    if network.head:
        step = Step("scale", 0, (*factors.tolist(), *offsets.tolist()))
        return network.replace(head=Head((*network.head.steps, step)))
    terms = {source: scale_rows(m, factors) for source, m in network.output.terms.items()}
    return network.replace(output=Affine(terms, network.output.bias * factors + offsets))


#: The inverses of a target's function that are steps of a head.
_INVERSES: dict[Any, tuple[Step, ...]] = {
    None: (),
    np.exp: (Step("exp"),),
    np.expm1: (Step("exp"), Step("scale", 0, (1.0, -1.0))),
}
