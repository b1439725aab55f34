"""Targets that are classes: their names, in the order of the network's outputs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunorm.errors import InvalidInputError

#: Classes that are listed by name, at most.
MAX_LISTED = 200


@dataclass(frozen=True)
class Classes:
    """The classes of a target.

    Attributes:
        names: one per class; class k is what output k speaks for, where there are as many outputs.
        counts: how many of all rows that were given each class has.
        source: where the order is from: ``given`` by the user, the ``model`` (a scikit-learn
            classifier keeps it), or ``sorted``.
    """

    names: tuple[str, ...]
    counts: tuple[int, ...]
    source: Literal["given", "model", "sorted"]

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
    target: ArrayLike, given: ArrayLike | None = None, model: Any = None
) -> tuple[NDArray[np.float64], Classes] | None:
    """The class number of every row and the classes; None for a target of plain numbers.

    A target is one of classes if it holds text, or if the classes are known: ``given``, or kept by
    the ``model`` as ``classes_``. Text is compared with text and numbers with numbers; where one
    side is text and the other is not, the text is read as numbers (true and false as 1 and 0).

    >>> codes, classes = as_classes(["b", "a", "b"])
    >>> codes.tolist(), classes.names, classes.counts
    ([1.0, 0.0, 1.0], ('a', 'b'), (1, 2))
    """
    known = getattr(model, "classes_", None) if given is None else given
    try:
        rows = np.asarray(target)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged, or a tensor with a gradient
        if known is None:
            return None
        raise InvalidInputError(f"the target: not an array of labels: {error}") from None
    if rows.ndim == 2 and rows.shape[1] == 1:
        rows = rows[:, 0]
    if rows.ndim != 1 or not (known is not None or _holds_text(rows)):
        return None
    labels = _labels(rows, "row {} of the target")
    if known is None:
        order, source = sorted(set(labels)), "sorted"
    else:
        order, source = _order(known), "model" if given is None else "given"
    codes = _codes(labels, order)
    counts = np.bincount(codes, minlength=len(order)).tolist()
    names = tuple(map(_name, order))
    return codes.astype(np.float64), Classes(names, tuple(counts), source)  # type: ignore[arg-type]


def _holds_text(rows: NDArray[Any]) -> bool:
    if rows.dtype.kind not in "USTO":
        return False
    return any(isinstance(value, str | bytes) for value in rows.ravel().tolist())


def _labels(values: NDArray[Any], place: str) -> list[Any]:
    """The labels as Python compares them: all text, or all numbers."""
    if values.dtype.kind in "mM":
        raise InvalidInputError(
            f"{place.format(0)} is a date or a time ({values.dtype}), expected a class; name such "
            "classes by text"
        )
    found = [_label(value, place.format(k)) for k, value in enumerate(values.tolist())]
    if any(isinstance(label, str) for label in found):
        return [_name(label) for label in found]
    return found


def _label(value: Any, place: str) -> Any:
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


def _codes(labels: list[Any], order: list[Any]) -> NDArray[np.intp]:
    """The place of every label in the order."""
    text = [isinstance(side[0], str) for side in (labels or order, order)]
    keys = order
    if text == [False, True]:
        try:
            keys = [_number(label) for label in order]
        except ValueError:
            raise InvalidInputError(
                f"the target holds numbers, but the classes are {_some(order)}"
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
    if strange is not None:
        raise InvalidInputError(
            f"the target holds {strange!r}, which is none of the classes {_some(order)}; list "
            "every class in the order of the outputs"
        )
    return np.array([number[read[label]] for label in labels], dtype=np.intp)


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
