"""Targets that are classes: their names, in the order of the network's outputs.

Which label an output stands for is known where the user or the model says so, where the target is
one-hot, and where labels are the numbers 0, 1, ... of the outputs. Otherwise the data are asked:
the labels are matched to the outputs so that most rows come out right, if that is more than chance
(a model that answers one class for all rows says nothing). That is a guess, and it is called one.
"""

from __future__ import annotations

import csv
import math
from contextlib import suppress
from dataclasses import dataclass
from io import StringIO
from shlex import quote
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunorm.errors import InvalidInputError
from relunorm.network.head import Head

#: Classes that are listed by name, at most.
MAX_LISTED = 200

Source = Literal["given", "model", "columns", "numbers", "data", "sorted"]


@dataclass(frozen=True)
class Classes:
    """The classes of a target.

    Attributes:
        names: one per class; class k is what output k speaks for, where there are as many outputs.
        counts: how many of all rows that were given each class has.
        source: where the order is from: ``given`` by the user; the ``model``; the ``columns`` of a
            one-hot target; the labels themselves, where they are the ``numbers`` of the outputs;
            the ``data`` (the order in which most rows come out right); or ``sorted``.
    """

    names: tuple[str, ...]
    counts: tuple[int, ...]
    source: Source

    @property
    def spelled(self) -> str:
        """The names as a command line takes them: one row of csv, quoted for a shell."""
        written = StringIO()
        csv.writer(written, lineterminator="").writerow(self.names)
        return quote(written.getvalue())

    @property
    def guessed(self) -> bool:
        """Whether nobody said which label belongs to which output."""
        return self.source in ("data", "sorted")

    def decided(self, outputs: NDArray[np.float64]) -> NDArray[np.intp] | None:
        """The class each row of outputs stands for; None where outputs and classes do not match.

        The largest output names the class; of two classes and one output, the sign does.
        """
        if outputs.shape[1] == len(self.names) > 1:
            return outputs.argmax(axis=1)
        if outputs.shape[1] == 1 and len(self.names) == 2:
            return (outputs[:, 0] > 0).astype(np.intp)
        return None

    def to_dict(self) -> dict[str, Any]:
        """Names and how many rows each has, JSON-safe; the first `MAX_LISTED`."""
        return {
            "kind": "exact",
            "names": list(self.names[:MAX_LISTED]),
            "counts": list(self.counts[:MAX_LISTED]),
            "of": len(self.names),
            "from": self.source,
        }


def as_classes(
    target: ArrayLike,
    given: ArrayLike | None = None,
    model: Any = None,
    outputs: NDArray[np.float64] | None = None,
    *,
    others: bool = False,
    surely: bool = False,
) -> tuple[NDArray[np.float64], Classes] | None:
    """The class number of every row and the classes; None for a target of plain numbers.

    A target is one of classes if it holds text, if it is one-hot, if it holds as many whole numbers
    as there are outputs, or if the classes are known: ``given``, or those of the ``model``. For a
    model of one output it is so if it holds true and false, or two numbers that its last step
    decides between (0 and 1 after a sigmoid); without such a step if they are 0 and 1, -1 and 1 or
    1 and 2 and the output is further from them than their mean is, as logits are. Text is compared
    with text and numbers with numbers; where one side is text and the other is not, the text is
    read as numbers (true and false as 1 and 0).

    Args:
        target: one label for each row, or one-hot rows.
        given: the labels in the order of the outputs.
        model: what may know its classes: an estimator with ``classes_``, or a network's head.
        outputs: what the network computes on the rows (or on the first of them), (n, outputs).
        others: whether a label that is none of the known classes is NaN, instead of an error.
        surely: whether two different numbers are classes of one output, whatever they are.

    >>> codes, classes = as_classes(["b", "a", "b"])
    >>> codes.tolist(), classes.names, classes.counts
    ([1.0, 0.0, 1.0], ('a', 'b'), (1, 2))
    >>> as_classes([4, 9, 4], outputs=np.array([[0.0, 1.0], [2.0, 1.0], [0.0, 3.0]]))[1]
    Classes(names=('9', '4'), counts=(1, 2), source='data')
    """
    known = _known(model) if given is None else given
    try:
        rows = np.asarray(target)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged, or a tensor with a gradient
        if known is None:
            return None
        raise InvalidInputError(f"the target: not an array of labels: {error}") from None
    if given is not None and (own := _known(model)) is not None:
        _check_order(_order(given), _order(own))
    count = 0 if outputs is None else outputs.shape[1]
    if _one_hot(rows, count):
        return _from_columns(rows, known, "given" if given is not None else "model")
    if rows.ndim == 2 and rows.shape[1] == 1:
        rows = rows[:, 0]
    numbered = known is None and (
        _numbered(rows, count) if count != 1 else _two_sided(rows, model, outputs[:, 0], surely)  # type: ignore[index]
    )
    if rows.ndim != 1 or not (known is not None or numbered or _holds_text(rows)):
        return None
    others = others and known is not None
    labels = _labels(rows, "row {} of the target", others)
    source: Source
    if known is not None:
        order, source = _order(known), "model" if given is None else "given"
        if given is None and isinstance(order[0], str) and _are_numbers(labels, order, count):
            _check_numbers(labels, order, outputs)
            source = "numbers" if len(order) > 2 else "sorted"
            labels = [order[int(label)] for label in labels]
    elif numbered and (usual := _usual(labels, count)):
        order, source = usual, "numbers"
    else:
        order, source = sorted(set(labels)), "sorted"
        if outputs is not None:
            order, source = _asked(labels, order, outputs)
    codes = _codes(labels, order, others)
    counts = np.bincount(codes[codes >= 0], minlength=len(order)).tolist()
    names = tuple(map(_name, order))
    return np.where(codes < 0, np.nan, codes), Classes(names, tuple(counts), source)


def _known(model: Any) -> Any:
    """The classes an estimator or a head names, or None."""
    for name in ("classes_", "classes"):
        found = getattr(model, name, None)
        if found is not None and not callable(found) and len(found):
            return found
    return None


def _are_numbers(labels: list[Any], order: list[Any], count: int) -> bool:
    """Whether labels are the numbers of outputs that the model has names for."""
    within = {*range(count), *range(2 if count == 1 else 0)}
    return len(order) == len(within) and all(
        not isinstance(label, str) and label in within for label in labels
    )


def _check_numbers(
    labels: list[Any], names: list[str], outputs: NDArray[np.float64] | None
) -> None:
    """Refuse what nobody said to be numbers of outputs that have names: true and false, and
    numbers by which far fewer rows are right than in another order (three standard errors)."""
    found = f"the labels are {{}}, but the model's classes are {_some(names)}"
    option = "give their names, or the labels in that order, such as --classes 1,0"
    if any(isinstance(label, bool) for label in labels):
        raise InvalidInputError(f"{found.format('true and false')}: {option}")
    within = set(range(len(names)))
    kept = [
        k
        for k, label in enumerate(labels[: 0 if outputs is None else len(outputs)])
        if label in within
    ]
    if outputs is None or not kept:
        return
    table = _agreement([labels[k] for k in kept], sorted(within), outputs[kept])
    right, best = int(np.trace(table)), int(_assigned(table)[0])
    if best - right > 3 * math.sqrt(len(kept)):
        raise InvalidInputError(
            f"{found.format('numbers')}; as numbers of outputs {right:,} of {len(kept):,} rows are "
            f"right, in another order {best:,}: {option}"
        )


def _check_order(given: list[Any], own: list[Any]) -> None:
    """Refuse the classes of the model in another order than the model's."""
    names, said = [_name(label) for label in given], [_name(label) for label in own]
    if names != said and sorted(names) == sorted(said):
        raise InvalidInputError(
            f"classes are given as {_some(names)}, but the model's order is {_some(said)}: "
            "leave them out, or, if the model is wrong, load it and correct its head.classes"
        )


def _one_hot(rows: NDArray[Any], count: int) -> bool:
    if rows.ndim != 2 or rows.shape[1] != count or count < 2 or rows.dtype.kind not in "fiub":
        return False
    return bool(np.isin(rows, (0, 1)).all() and (rows.sum(axis=1) == 1).all())


def _from_columns(
    rows: NDArray[Any], known: Any, said: Source
) -> tuple[NDArray[np.float64], Classes]:
    """Of a one-hot target: the columns are the outputs."""
    codes = rows.argmax(axis=1)
    order = None if known is None else _order(known)
    if order is not None and len(order) != rows.shape[1]:
        raise InvalidInputError(f"{len(order)} classes, but the target has {rows.shape[1]} columns")
    names = tuple(map(_name, range(rows.shape[1]) if order is None else order))
    counts = tuple(np.bincount(codes, minlength=len(names)).tolist())
    return codes.astype(np.float64), Classes(names, counts, "columns" if order is None else said)


def _numbered(rows: NDArray[Any], count: int) -> bool:
    """Whether labels are whole numbers, of the outputs or as many as there are outputs."""
    if rows.ndim != 1 or count < 2 or not len(rows) or rows.dtype.kind not in "fiub":
        return False
    values = np.unique(rows)
    if not np.isfinite(values).all() or (values != np.round(values)).any():
        return False
    return len(values) == count or bool(values[0] >= 0 and values[-1] < count)


def _usual(labels: list[Any], count: int) -> list[Any]:
    """The numbers by which outputs, or the two sides of one output, are commonly called."""
    pairs = [[False, True]] if isinstance(labels[0], bool) else [[0, 1], [-1, 1]]
    orders = pairs if count == 1 else [list(range(count))]
    return next((order for order in orders if set(labels) <= set(order)), [])


def _two_sided(rows: NDArray[Any], model: Any, value: NDArray[np.float64], surely: bool) -> bool:
    """Whether labels are the two sides of one output."""
    if rows.ndim != 1 or not len(rows) or rows.dtype.kind not in "fiub":
        return False
    values = np.unique(rows).tolist()
    if (
        rows.dtype.kind == "b"
        or len(values) > 2
        or not all(math.isfinite(v) and v == round(v) for v in values)
    ):
        return rows.dtype.kind == "b"
    last = {step.kind for step in model.steps} if isinstance(model, Head) else set()
    if surely or last & {"sigmoid", "log_sigmoid", "greater", "round"}:
        return len(values) == 2 or bool(_usual(values, 1))
    if last:
        return last == {"tanh"} and set(values) <= {-1, 1}
    truth = rows[: len(value)].astype(np.float64)
    far = np.mean((value - truth) ** 2) > truth.var()
    return values in ([0, 1], [-1, 1], [1, 2]) and bool(far)


def label_numbers(
    label: ArrayLike, head: Head, outputs: NDArray[np.float64]
) -> tuple[NDArray[Any], Classes | None]:
    """Labels as the numbers of the classes a model decides between, and how they were found.

    What is none of them is kept, or NaN; it is an error if that is so of every label.
    """
    rows = np.atleast_1d(np.asarray(label))
    known, count = head.classes, max(outputs.shape[1], 2)
    plain = rows.ndim == 1 and rows.dtype.kind in "fiub"
    if plain and known and not isinstance(known[0], str):
        number = {value: k for k, value in enumerate(known)}
        codes = np.array([number.get(value, np.nan) for value in rows.tolist()])
        return codes, Classes(tuple(map(str, known)), (), "model")
    codes = rows
    if plain and outputs.shape[1] == 1 and (rows == -1).any():
        # the sign itself; what is neither stays out of range
        codes = np.where(np.abs(rows) == 1, rows > 0, np.nan)
    from_one = plain and set(rows.tolist()) == set(range(1, count + 1))
    if plain and not from_one and (not len(rows) or np.isin(codes, np.arange(count)).any()):
        if len(known) != count:
            return codes, None
        _check_numbers(codes.tolist(), [*map(str, known)], outputs)
        return codes, Classes((*map(str, known),), (), "numbers" if count > 2 else "sorted")
    found = as_classes(rows, None, head, outputs, others=True, surely=True)
    if found is None:
        if plain:
            raise InvalidInputError(
                f"no label is one of the classes 0 to {count - 1} (the first is {rows[0]:g}); for "
                "a regression say how far outputs may move: delta (--delta)"
            )
        return rows, None
    if len(found[1].names) != count:
        raise InvalidInputError(
            f"the labels are {len(found[1].names)} different ones, but the model decides "
            f"between {count} classes and does not name them; give labels as numbers of outputs"
        )
    return found


def _asked(
    labels: list[Any], order: list[Any], outputs: NDArray[np.float64]
) -> tuple[list[Any], Source]:
    """The order in which most rows come out right, by an assignment of labels to outputs."""
    if len(order) != (outputs.shape[1] if outputs.shape[1] > 1 else 2):
        return order, "sorted"
    table = _agreement(labels[: len(outputs)], order, outputs)
    right, chosen = _assigned(table)
    if right <= np.trace(table) or not _supported(table[:, chosen]):
        return order, "sorted"
    return [order[k] for k in chosen], "data"


def _supported(table: NDArray[np.float64]) -> bool:
    """Whether more rows are right than labels dealt out at random would make right.

    By two standard deviations of that number (Hoeffding 1951, A combinatorial central limit
    theorem), or all of them. Where the model answers one class for all rows, no order is.
    """
    rows, right = table.sum(), np.trace(table)
    answers, labels = table.sum(axis=1) / rows, table.sum(axis=0) / rows
    by_chance = answers @ labels
    centred = np.eye(len(table)) - labels[:, None] - answers + by_chance
    variance = rows**2 / max(rows - 1, 1) * (answers[:, None] * labels * centred**2).sum()
    return bool(right == rows or right - rows * by_chance > 2 * math.sqrt(variance))


def _agreement(
    labels: list[Any], order: list[Any], outputs: NDArray[np.float64]
) -> NDArray[np.float64]:
    """How many rows each output (or side of the only one) decides that have each label."""
    sides = outputs.shape[1] == 1
    decided = (outputs[:, 0] > 0).astype(np.intp) if sides else outputs.argmax(axis=1)
    table = np.zeros((len(order), len(order)))
    np.add.at(table, (decided, _codes(labels, order)), 1)
    return table


def _assigned(table: NDArray[np.float64]) -> tuple[float, NDArray[np.intp]]:
    """Most rows that come out right, and the label of each output for that."""
    from scipy.optimize import linear_sum_assignment

    places, chosen = linear_sum_assignment(table, maximize=True)
    return float(table[places, chosen].sum()), chosen


def _holds_text(rows: NDArray[Any]) -> bool:
    if rows.dtype.kind not in "USTO":
        return False
    return any(isinstance(value, str | bytes) for value in rows.ravel().tolist())


def _labels(values: NDArray[Any], place: str, gaps: bool = False) -> list[Any]:
    """The labels as Python compares them: all text, or all numbers; empty text for a gap."""
    if values.dtype.kind in "mM":
        raise InvalidInputError(
            f"{place.format(0)} is a date or a time ({values.dtype}), expected a class; name such "
            "classes by text"
        )
    found = [_label(value, place.format(k), gaps) for k, value in enumerate(values.tolist())]
    if any(isinstance(label, str) for label in found):
        return [_name(label) for label in found]
    return found


def _label(value: Any, place: str, gaps: bool) -> Any:
    """Text without spaces around it, or a number, of which 1 and 1.0 are one."""
    if isinstance(value, np.generic) and value.dtype.kind not in "mM":
        value = value.item()
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, str):
        value = value.strip()
    if isinstance(value, int) and value.bit_length() > 1024:
        raise InvalidInputError(f"{place} holds a number beyond float64; name it by text")
    if not isinstance(value, str | int | float) or value == "" or value != value:
        if gaps:
            return ""
        raise InvalidInputError(
            f"{place} holds {value!r}, expected a class; fill or drop what is missing"
        )
    return value


def _name(label: str | float) -> str:
    if isinstance(label, float) and label.is_integer():
        return str(int(label))
    return str(label)


def _order(known: ArrayLike) -> list[Any]:
    """The classes in the order given."""
    listed = np.asarray(known)
    if listed.ndim != 1 or not len(listed):
        raise InvalidInputError(f"classes have shape {listed.shape}, expected a list of labels")
    return _labels(listed, "class {} of the list")


def _codes(labels: list[Any], order: list[Any], others: bool = False) -> NDArray[np.intp]:
    """The place of every label in the order; -1 for one that is not in it, or an error."""
    text = [isinstance(side[0], str) for side in (labels or order, order)]
    keys = order
    if text == [False, True]:
        try:
            keys = [_number(label) for label in order]
        except ValueError:
            raise InvalidInputError(
                f"the target holds numbers, but the classes are {_some(order)}; give their names, "
                "or the numbers in that order, as --classes 0,1"
            ) from None
    number = {key: k for k, key in enumerate(keys)}
    if len(number) != len(keys):
        raise InvalidInputError(f"two classes are the same in {_some(keys)}")
    read = {label: label for label in set(labels)}
    if text == [True, False]:
        for label in read:
            with suppress(ValueError):  # text that is no number is told below
                read[label] = _number(label)
    strange = next((label for label in labels if read[label] not in number), None)
    if strange is not None and not others:
        raise InvalidInputError(
            f"the target holds {strange!r}, which is none of the classes {_some(order)}; correct "
            "or drop such rows, or name all labels in the order of the outputs: --classes "
            "(classes= in Python)"
        )
    return np.array([number.get(read[label], -1) for label in labels], dtype=np.intp)


def _number(text: str) -> float:
    """Text as the number it stands for; true and false are 1 and 0, as in tables."""
    truth = {"true": 1, "false": 0}.get(text.lower())
    if truth is not None:
        return truth
    try:
        return int(text)  # not through float: numbers of customers and the like are long
    except ValueError:
        return float(text)


def _some(labels: list[Any]) -> str:
    return ", ".join(map(repr, labels[:10])) + (", ..." if len(labels) > 10 else "")
