"""The border: what public functions take in place of a `Network` and a `Domain`.

Inside the package a network is a `Network` and a domain is a `Domain`. Users have files, modules,
estimators, arrays and texts. A public function is marked with `accepts`, which turns the one into
the other, so that all of them take the same things and complain in the same words.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np

from relunorm.arguments import real_numbers
from relunorm.domain import Box, Domain
from relunorm.errors import (
    InvalidDomainError,
    InvalidInputError,
    RelunormError,
    UnsupportedFormatError,
)
from relunorm.network import Network
from relunorm.network.columns import arranged

P = ParamSpec("P")
R = TypeVar("R")

#: A `Network`, or anything `relunorm.load` reads.
Model = Any
#: A `Domain`, a pair of bounds, a text as on the command line, or rows of data.
Place = Any


def accepts(
    *models: str, domains: tuple[str, ...] = (), data: str = ""
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function take models and domains in every form that `as_network`, `as_domain` read.

    Args:
        models: the parameters that are networks; the first one tells the dimension of a domain.
        domains: the parameters that are domains, None among them staying None.
        data: the parameter whose rows tell the shape of an input where the model leaves it open;
            the columns of a DataFrame are found by name where the model knows them.

    >>> @accepts("network", domains=("domain",))
    ... def volume(network, domain):
    ...     return float(np.prod(domain.hi - domain.lo))
    >>> volume("example:moons", (-1, 1)), volume("example:moons", "box:0,3")
    (4.0, 9.0)
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        parameters = inspect.signature(function).parameters
        ordered = [key for key, one in parameters.items() if one.kind is one.POSITIONAL_OR_KEYWORD]
        needed = [name for name in domains if parameters[name].default is inspect.Parameter.empty]

        @functools.wraps(function)
        def call(*args: P.args, **options: P.kwargs) -> R:
            named = ordered[: len(args)]
            given: dict[str, Any] = {**dict(zip(named, args, strict=False)), **options}
            if len(given) < len(named) + len(options) or models[0] not in given:
                return function(*args, **options)  # raises the error of a wrong call itself
            asked = {name: given[name] for name in models if name in given}
            given.update(_networks(asked, given.get(data)))
            if given.get(data) is not None:
                given[data] = arranged(given[data], given[models[0]].columns)
            for name in domains:
                if name in given and (name in needed or given[name] is not None):
                    given[name] = as_domain(given[name], given[models[0]], name)
            first = [given.pop(name) for name in named]
            return function(*first, *args[len(named) :], **given)  # type: ignore[arg-type]

        return call

    return decorate


def as_network(model: Model, data: Any = None) -> Network:
    """The network of anything `relunorm.load` reads."""
    if isinstance(model, Network):
        return model
    from relunorm.io import load

    rows = None if isinstance(model, str | Path) else _batch(data)
    if rows is None:
        return load(model)
    try:
        return load(model, rows)
    except RelunormError as error:
        with suppress(RelunormError):  # then what is wrong with the rows is said of them
            return load(model)
        raise error


def _networks(models: dict[str, Model], data: Any) -> dict[str, Network]:
    """The networks of several models; one that leaves its input open has the others' shape."""
    found, left = {}, {}
    for name, model in models.items():
        try:
            found[name] = as_network(model, data)
        except UnsupportedFormatError as error:
            left[name] = error
    for name, error in left.items():
        if not found:
            raise error
        from relunorm.io import load

        shape = next(iter(found.values())).input_shape
        try:
            found[name] = load(models[name], shape)
        except RelunormError:
            raise error from None
    return found


def _batch(data: Any) -> Any:
    """A row of a data set, or the shape of one where there is none; None where it is no data."""
    if data is None:
        return None
    try:
        array = np.asarray(data)
    except (TypeError, ValueError, RuntimeError):
        return None
    if array.ndim < 2 or array.dtype.kind not in "fiub":
        return None
    return array[:1] if len(array) else array.shape[1:]


def as_domain(domain: Place, network: Network, name: str = "domain") -> Domain:
    """A domain of a network's inputs.

    Args:
        domain: a `Domain`; (lo, hi), each a number or an array; a text as on the command line, such
            as ``box:-1,1`` or ``data:train.csv``; or rows of data, for the box around them.
        name: the parameter's name, for messages.

    >>> net = Network.from_weights([[[1.0, 2.0]]])
    >>> as_domain((-1, [1, 2]), net)
    Box([-1, -1], [1, 2])
    >>> as_domain(np.array([[0.0, 1.0], [3.0, 0.0], [1.0, 5.0]]), net)
    Box([0, 0], [3, 5])
    """
    if isinstance(domain, Domain):
        domain.check_dimension(network.input_size)
        return domain
    if isinstance(domain, str):
        from relunorm.io.domains import parse_domain

        return parse_domain(domain, network)
    found, domain = None, arranged(domain, network.columns)
    if isinstance(domain, tuple | list) and len(domain) == 2:
        found = _between(domain[0], domain[1], network)
    if found is None:
        found = _around(domain, network)
    if found is None:
        raise InvalidDomainError(
            f"{name} is {_shown(domain)}, expected a Box, Ball or Polytope, a pair (lo, hi) of "
            f"numbers or arrays of {network.input_size}, a text such as 'box:-1,1' or "
            "'data:train.csv', or rows of data"
        )
    return found


def as_rectangle(bounds: Any) -> Box:
    """A box, (s from, s to, t from, t to) or ((s from, s to), (t from, t to)) as a box."""
    if isinstance(bounds, Box):
        return bounds
    try:
        numbers = np.array(bounds, dtype=np.float64)
    except (TypeError, ValueError):
        numbers = np.zeros(0)
    if numbers.shape not in ((4,), (2, 2)):
        raise InvalidInputError(
            f"bounds are {bounds!r}; expected (s from, s to, t from, t to), pairs "
            "((s from, s to), (t from, t to)) or a Box of two coordinates"
        )
    low, high = numbers.reshape(2, 2).T
    return Box(low, high)


def _between(lo: Any, hi: Any, network: Network) -> Box | None:
    """The box of a pair of bounds, or None where the two are no bounds."""
    try:
        ends = [real_numbers("a bound", end) for end in (lo, hi)]
        ends = [_flat(end, network) for end in ends]
    except (TypeError, ValueError, RuntimeError):
        return None
    return Box(*ends)


def _flat(end: np.ndarray[Any, Any], network: Network) -> np.ndarray[Any, Any]:
    if end.shape == network.input_shape or end.ndim == 0:
        end = np.broadcast_to(end, network.input_shape).ravel()
    if end.shape != (network.input_size,):
        raise ValueError("another shape")
    return np.array(end)


def _around(rows: Any, network: Network) -> Box | None:
    """The box around rows of data, or None where they are no inputs of the network."""
    try:
        batch, single = network._batch(rows)
    except InvalidInputError:
        return None
    return None if single or not len(batch) else Box.around(batch)


def _shown(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"a {type(value).__name__} of shape {tuple(shape)}"
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"
