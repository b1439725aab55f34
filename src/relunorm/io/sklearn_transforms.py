"""Steps of a scikit-learn pipeline that are affine: scalers, projections, choices of columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.errors import InvalidNetworkError, UnsupportedOperationError
from relunorm.io.graph.lower import CannotLower, Lowering, Tensor
from relunorm.matrix import scale_rows
from relunorm.network import Network
from relunorm.network.head import Head, Step
from relunorm.network.layer import Affine

Array = NDArray[np.float64]

#: Transformers that choose columns, by `get_support`.
_SELECTIONS = ("SelectKBest", "SelectPercentile", "SelectFromModel", "SelectFpr", "SelectFdr")
_SELECTIONS += ("SelectFwe", "VarianceThreshold", "RFE", "RFECV", "SequentialFeatureSelector")


def transformed(low: Lowering, steps: Sequence[tuple[str, Any]], origin: str) -> Tensor:
    """The columns that the steps give, as functions of the columns they were given."""
    refused: list[tuple[str, str]] = []
    tensor = low.input
    for name, step in steps:
        try:
            tensor = _step(low, tensor, step)
        except CannotLower as reason:
            shown = type(step).__name__ + (f": {reason}" if str(reason) else "")
            refused.append((f"{origin}.{name}", shown))
        except (AttributeError, ValueError) as error:
            if refused:
                continue  # the columns are unknown after a step that was refused
            raise InvalidNetworkError(f"{origin}: step {name!r}: {error}") from None
    if refused:
        raise UnsupportedOperationError(origin, refused)
    return tensor


def _step(low: Lowering, x: Tensor, step: Any) -> Tensor:
    if step is None or str(step) == "passthrough":
        return x
    name = type(step).__name__
    if not type(step).__module__.startswith("sklearn."):
        raise CannotLower("is not scikit-learn's own")
    if name == "Pipeline":
        for _, part in step.steps:
            x = _step(low, x, part)
        return x
    if name in _SELECTIONS:
        return low.rearrange(x, np.flatnonzero(step.get_support())[None])
    if name not in _STEPS:
        raise CannotLower
    if not hasattr(step, "n_features_in_") and name != "FunctionTransformer":
        raise InvalidNetworkError(f"{name} is not fitted; call fit first")
    return _STEPS[name](low, x, step)


def _scaled(low: Lowering, x: Tensor, factor: Any, offset: Any) -> Tensor:
    """factor x + offset; None stands for no factor or offset."""
    if factor is not None:
        x = low.scale(x, np.asarray(factor))
    return x if offset is None else low.shift(x, np.asarray(offset))


def _centred(low: Lowering, x: Tensor, centre: Any, scale: Any) -> Tensor:
    """(x - centre) / scale; None stands for no centre or scale."""
    if centre is not None:
        x = low.shift(x, -np.asarray(centre))
    return x if scale is None else low.scale(x, 1.0 / np.asarray(scale))


def _standard(low: Lowering, x: Tensor, step: Any) -> Tensor:
    return _centred(low, x, step.mean_ if step.with_mean else None, step.scale_)


def _robust(low: Lowering, x: Tensor, step: Any) -> Tensor:
    centre = step.center_ if step.with_centering else None
    return _centred(low, x, centre, step.scale_ if step.with_scaling else None)


def _min_max(low: Lowering, x: Tensor, step: Any) -> Tensor:
    x = _scaled(low, x, step.scale_, step.min_)
    if not step.clip:
        return x
    first, last = (float(end) for end in step.feature_range)
    return low.clip(x, first, last, "MinMaxScaler")


def _max_abs(low: Lowering, x: Tensor, step: Any) -> Tensor:
    x = _centred(low, x, None, step.scale_)
    return low.clip(x, -1.0, 1.0, "MaxAbsScaler") if getattr(step, "clip", False) else x


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
    return x


def _function(low: Lowering, x: Tensor, step: Any) -> Tensor:
    if step.func is not None:
        raise CannotLower("with a function of the user's own")
    return x


def _columns(low: Lowering, x: Tensor, step: Any) -> Tensor:
    parts = []
    names = list(getattr(step, "feature_names_in_", []))
    for name, part, columns in step.transformers_:
        chosen = _numbers(columns, names, x.size)
        if (isinstance(part, str) and part == "drop") or not len(chosen):
            continue
        try:
            parts.append(_step(low, low.rearrange(x, chosen[None]), part))
        except CannotLower as reason:
            why = f", {reason}" if str(reason) else ""
            raise CannotLower(f"its part {name!r}, {type(part).__name__}{why}") from None
    if not parts:
        raise InvalidNetworkError("every column is dropped")
    return low.concatenate(parts, 1)


def columns_read(step: Any, names: list[str]) -> list[int]:
    """The columns of a table that the first step reads; a ColumnTransformer may drop some."""
    if type(step).__name__ != "ColumnTransformer":
        return list(range(len(names)))
    read: set[int] = set()
    for _, part, columns in step.transformers_:
        if not (isinstance(part, str) and part == "drop"):
            read.update(_numbers(columns, names, len(names)).tolist())
    return sorted(read)


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


_STEPS: dict[str, Callable[[Lowering, Tensor, Any], Tensor]] = {
    "StandardScaler": _standard,
    "RobustScaler": _robust,
    "MinMaxScaler": _min_max,
    "MaxAbsScaler": _max_abs,
    "PCA": _projection,
    "IncrementalPCA": _projection,
    "TruncatedSVD": _projection,
    "SimpleImputer": _imputer,
    "FunctionTransformer": _function,
    "ColumnTransformer": _columns,
}


#: What takes a transformed target back, as the end of a model with so many outputs.
_INVERSES: dict[Any, Callable[[int], tuple[Step, ...]]] = {
    None: lambda count: (),
    np.exp: lambda count: (Step("exp"),),
    np.expm1: lambda count: (Step("exp"), Step("scale", 0, (*[1.0] * count, *[-1.0] * count))),
}


def unscaled(network: Network, transformer: Any) -> Network:
    """The network behind the inverse of an affine transformer of its target."""
    name = type(transformer).__name__
    if name == "StandardScaler":
        factor, offset = transformer.scale_, transformer.mean_ if transformer.with_mean else None
    elif name == "RobustScaler":
        factor = transformer.scale_ if transformer.with_scaling else None
        offset = transformer.center_ if transformer.with_centering else None
    elif name == "MaxAbsScaler":
        factor, offset = transformer.scale_, None
    elif name == "MinMaxScaler":
        factor = 1.0 / transformer.scale_
        offset = -transformer.min_ / transformer.scale_
    elif name == "FunctionTransformer" and transformer.inverse_func in _INVERSES:
        steps = _INVERSES[transformer.inverse_func](network.output_size)
        return network.replace(head=Head((*network.head.steps, *steps)))
    else:
        what = name
        if name == "FunctionTransformer":
            what = f"the inverse function {transformer.inverse_func!r} of its target"
        place = "TransformedTargetRegressor.transformer_"
        instead = "The model of the transformed target is its regressor_, which can be loaded."
        raise UnsupportedOperationError(name, [(place, what)], instead)
    size = network.output_size
    factors = np.broadcast_to(np.ones(1) if factor is None else np.asarray(factor), size)
    offsets = np.broadcast_to(np.zeros(1) if offset is None else np.asarray(offset), size)
    if network.head:
        step = Step("scale", 0, (*factors.tolist(), *offsets.tolist()))
        return network.replace(head=Head((*network.head.steps, step)))
    terms = {source: scale_rows(m, factors) for source, m in network.output.terms.items()}
    return network.replace(output=Affine(terms, network.output.bias * factors + offsets))
