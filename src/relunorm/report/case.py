"""What a report is about: the network, where it is looked at, and the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunorm.domain import Box, Domain
from relunorm.errors import InvalidInputError
from relunorm.io import framework_of
from relunorm.io.border import Place, as_domain
from relunorm.network import Affine, Network
from relunorm.network.columns import arranged, input_names
from relunorm.questions.classes import Classes, as_classes

if TYPE_CHECKING:
    from relunorm.io.table import Table
    from relunorm.stability.verdicts import Stability

Array = NDArray[np.float64]

#: Rows of data that are used, at most.
MAX_ROWS = 4096
#: Values of one layer on the rows that are used, at most.
MAX_VALUES = 1 << 24
#: Outputs whose maps are listed, at most.
MAX_OUTPUTS = 4
#: Points of the domain that stand in where no data is given.
SAMPLES = 1000


@dataclass(frozen=True, eq=False)
class Case:
    """One network to report on.

    Attributes:
        domain_from: ``given``, ``data`` (the box around it) or ``default`` (the box [-1, 1]^d).
        x, y: the rows of data that are used, and their targets (of classes, their numbers).
        target: the target's name; of several, with commas between them.
        plane: what `--slice` asked for: two coordinates, three inputs as rows, or None.
        index: the place of every row that is used among those that were given.
        table: what the rows were read from, where a file is known: for commands.
        outputs: what the target's columns are called, where it has several and they have names.
        framework: of the model, where it was given as an object; empty for a file.
    """

    network: Network
    name: str
    domain: Domain
    domain_from: Literal["given", "data", "default"]
    x: Array | None = None
    y: Array | None = None
    rows: int = 0
    target: str = ""
    classes: Classes | None = None
    plane: Any = None
    names: tuple[str, ...] = ()
    named: bool = False
    index: NDArray[np.intp] | None = None
    outputs: tuple[str, ...] = ()
    framework: str = ""
    table: Table | None = None
    _analyses: list[Stability] = field(default_factory=list, init=False, repr=False)

    @property
    def trainable(self) -> bool:
        """Whether the model was given as a module, which may still be in training."""
        return self.framework in ("torch", "keras")

    @property
    def scale(self) -> Array | None:
        """The target where its scale means something: numbers, not classes."""
        return self.y if self.classes is None else None

    def stability(self, seconds: float) -> Stability:
        """Which units change sign on the domain, found once for all sections.

        An analysis that ran out of time is begun anew with the time of the next section that asks.
        """
        if not any(known.complete for known in self._analyses):
            from relunorm.stability import stability

            found = stability(self.network.folded(), self.domain, time_limit=seconds)
            self._analyses[:] = [found]
        return self._analyses[0]

    @property
    def is_point(self) -> bool:
        """Whether the domain is one input only, as the box around one row is."""
        return not self.domain.bounding_box.halfwidth.any()

    def row(self, k: int) -> int:
        """The number of a row that is used among those that were given, counted from 0."""
        assert self.index is not None
        return int(self.index[k])

    def output_name(self, k: int) -> str:
        """What column ``k`` of the target is called; empty where nobody said."""
        return self.outputs[k] if k < len(self.outputs) else ""

    @property
    def all_rows(self) -> bool:
        """Whether every row of the data is used."""
        return self.x is not None and len(self.x) == self.rows

    @cached_property
    def few_outputs(self) -> Network:
        """The network with its first outputs only, for everything that lists maps."""
        return first_outputs(self.network, MAX_OUTPUTS)

    @cached_property
    def inputs(self) -> Array:
        """The data, or points of the domain where there is none."""
        if self.x is not None:
            return self.x
        return self.domain.sample(_affordable(self.network, SAMPLES), 0)

    @property
    def inputs_in_words(self) -> str:
        """What `inputs` are."""
        if self.x is None:
            return f"{len(self.inputs):,} random points of the domain (no data was given)"
        rows = f"row{'' if self.rows == 1 else 's'} of data"
        if self.all_rows:
            return f"all {self.rows:,} {rows}" if self.rows > 1 else f"one {rows}"
        return f"{len(self.x):,} of {self.rows:,} {rows}"


def first_outputs(network: Network, count: int) -> Network:
    """The network with only so many of its outputs."""
    output = network.output
    if output.size <= count:
        return network
    kept = {source: matrix[:count] for source, matrix in output.terms.items()}
    return network.replace(output=Affine(kept, output.bias[:count]))


def make_case(
    network: Network,
    data: ArrayLike | None,
    target: ArrayLike | None,
    domain: Place | None,
    *,
    name: str,
    target_name: str = "",
    classes: ArrayLike | None = None,
    model: Any = None,
    plane: Any = None,
    names: Sequence[str] | None = None,
    table: Table | None = None,
) -> Case:
    """Check what was given and choose what was not; ``model`` may know classes and names."""
    if classes is not None and target is None:
        raise InvalidInputError("classes without a target: pass the labels of the rows, too")
    data, found = arranged(data, network.columns), None
    if target is not None:
        said = model if hasattr(model, "classes_") else network.head
        found = as_classes(target, classes, said, _asked_outputs(network, data))
    if classes is not None and found is None:
        raise InvalidInputError("classes need a target with one label for each row of data")
    x, y, rows, index = _rows(network, data, target if found is None else found[0])
    where, source = None if domain is None else as_domain(domain, network), "given"
    if where is None and x is not None:
        where, source = Box.around(np.asarray(data, dtype=np.float64).reshape(rows, -1)), "data"
    elif where is None:
        where, source = Box.cube(network.input_size, -1.0, 1.0), "default"
    where.check_dimension(network.input_size)
    called = _input_names(network, names, data)
    named = called is not None
    called = called or tuple(f"x{k}" for k in range(network.input_size))
    if plane is not None:
        plane = _check_plane(plane, called)
    label = name or Path(network.origin).name or "A network"
    kinds = None if found is None else found[1]
    return Case(
        network, label, where, source, x, y, rows, target_name, kinds, plane, called, named, index,
        _output_names(target, y, target_name), framework_of(model), table,
    )  # type: ignore[arg-type]  # fmt: skip


def _output_names(target: Any, y: Array | None, name: str) -> tuple[str, ...]:
    """The names of a target's columns: of a DataFrame, or the parts of ``a, b, c``."""
    if y is None or y.ndim != 2 or y.shape[1] < 2:
        return ()
    for names in (getattr(target, "columns", ()), name.split(", ")):
        if len(names) == y.shape[1]:
            return tuple(map(str, names))
    return ()


def _input_names(
    network: Network, given: Sequence[str] | None, data: Any
) -> tuple[str, ...] | None:
    """The names of the inputs: given, or those of a table's columns, or kept by the model."""
    size = network.input_size
    for source in (
        given,
        getattr(data, "columns", None),
        input_names(network.columns) or None,
    ):
        names = None if source is None else tuple(str(name) for name in source)
        if names is not None and len(names) == size:
            return names
        if names is not None and source is given:
            raise InvalidInputError(f"{len(names)} names of inputs, but there are {size} inputs")
    return None


def _asked_outputs(network: Network, data: ArrayLike | None) -> Array | None:
    """What the network computes on the first rows, for the order of its classes."""
    if data is None:
        return None
    x, _ = network._batch(as_numbers(data, "the data"))
    x = x[: _affordable(network, MAX_ROWS)]
    if not len(x) or not np.isfinite(x).all():
        return None
    with np.errstate(all="ignore"):  # the largest output of a row may be an infinite one
        return network(x)


def _affordable(network: Network, rows: int) -> int:
    return max(1, min(rows, MAX_VALUES // max(network.widths)))


def _rows(
    network: Network, data: ArrayLike | None, target: ArrayLike | None
) -> tuple[Array | None, Array | None, int, NDArray[np.intp] | None]:
    if data is None:
        if target is not None:
            raise InvalidInputError("a target without data: pass the inputs it belongs to, too")
        return None, None, 0, None
    x, single = network._batch(as_numbers(data, "the data"))
    if single or not len(x):
        raise InvalidInputError(f"data has shape {np.shape(data)}: a report needs rows of inputs")
    if not np.isfinite(x).all():
        raise InvalidInputError("the data holds NaN or infinite entries; fill or drop those rows")
    y = None if target is None else as_numbers(target, "the target")
    if y is not None and (y.ndim not in (1, 2) or len(y) != len(x)):
        raise InvalidInputError(f"{len(x)} rows of data but a target of shape {y.shape}")
    if y is not None and not np.isfinite(y).all():
        raise InvalidInputError("the target holds NaN or infinite entries; drop those rows")
    count = _affordable(network, min(len(x), MAX_ROWS))
    if count == len(x):
        return x, y, len(x), np.arange(len(x))
    picks = np.sort(np.random.default_rng(0).choice(len(x), count, replace=False))
    return x[picks], None if y is None else y[picks], len(x), picks


def as_numbers(values: ArrayLike, what: str) -> Array:
    """An array of float64, or an error that says what is none."""
    try:
        array = np.asarray(values)
        numbers = array.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise InvalidInputError(f"{what}: not an array of numbers: {error}") from None
    if _holds_dates(array):  # numpy takes them for numbers without a word
        raise InvalidInputError(
            f"{what}: holds dates or times; expected numbers, such as days since the first"
        )
    return numbers


def _holds_dates(array: NDArray[Any]) -> bool:
    if array.dtype.kind != "O":
        return array.dtype.kind in "mM"
    return any(isinstance(value, np.datetime64 | np.timedelta64) for value in array.flat)


def _check_plane(plane: Any, names: tuple[str, ...]) -> Any:
    """Two coordinates (numbers or names), or three inputs as rows."""
    size = len(names)
    if isinstance(plane, tuple | list) and len(plane) == 2:
        missing = [p for p in plane if isinstance(p, str) and p not in names]
        if missing:
            raise InvalidInputError(f"slice: no input is called {missing[0]!r}")
        plane = [names.index(p) if isinstance(p, str) else p for p in plane]
    array = as_numbers(plane, "slice")
    if array.shape == (2,):
        first, second = (int(v) for v in array)
        whole = bool((array == [first, second]).all())
        if whole and first != second and all(0 <= k < size for k in (first, second)):
            return first, second
        raise InvalidInputError(
            f"slice {tuple(array.tolist())}: expected two different coordinates, 0 to {size - 1}"
        )
    if array.shape == (3, size) and np.isfinite(array).all():
        return array
    raise InvalidInputError(
        f"slice of shape {array.shape}: expected two coordinates or three inputs of {size} numbers"
    )
