"""Targets that are classes: their names, in the order of the network's outputs."""

from __future__ import annotations

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
        source: where the order is from: ``given`` by the user, the ``model`` (a scikit-learn
            classifier keeps it), or ``sorted``.
    """

    names: tuple[str, ...]
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

    def to_dict(self, codes: NDArray[np.float64], exact: bool) -> dict[str, Any]:
        """Names and how many of the rows each has, JSON-safe; the first `MAX_LISTED`."""
        counts = np.bincount(codes.astype(np.intp), minlength=len(self.names))
        return {
            "kind": "exact" if exact else "estimate",
            "names": list(self.names[:MAX_LISTED]),
            "counts": counts[:MAX_LISTED].tolist(),
            "of": len(self.names),
            "from": self.source,
        }


def as_classes(
    target: ArrayLike, given: ArrayLike | None = None, model: Any = None
) -> tuple[NDArray[np.float64], Classes] | None:
    """The class number of every row and the classes; None for a target of plain numbers.

    A target is one of classes if it holds text, or if the classes are known: ``given``, or kept by
    the ``model`` as ``classes_``.

    >>> codes, classes = as_classes(["b", "a", "b"])
    >>> codes.tolist(), classes.names
    ([1.0, 0.0, 1.0], ('a', 'b'))
    """
    try:
        rows = np.asarray(target)
    except (TypeError, ValueError, RuntimeError):  # ragged, or a tensor with a gradient
        return None
    if rows.ndim == 2 and rows.shape[1] == 1:
        rows = rows[:, 0]
    known = getattr(model, "classes_", None) if given is None else given
    text = _holds_text(rows)
    if rows.ndim != 1 or not (text or known is not None):
        return None
    labels = [_label(value, row) for row, value in enumerate(rows.tolist())]
    if known is None:
        order, source = sorted(set(labels)), "sorted"
    else:
        order, source = _order(known, labels), "model" if given is None else "given"
    number = {label: k for k, label in enumerate(order)}
    strange = next((label for label in labels if label not in number), None)
    if strange is not None:
        shown = ", ".join(map(repr, order[:10])) + (", ..." if len(order) > 10 else "")
        raise InvalidInputError(
            f"the target holds {strange!r}, which is none of the classes {shown}; list every class "
            "in the order of the outputs"
        )
    codes = np.array([number[label] for label in labels], dtype=np.float64)
    return codes, Classes(tuple(map(str, order)), source)  # type: ignore[arg-type]


def _holds_text(rows: NDArray[Any]) -> bool:
    if rows.dtype.kind not in "USTO":
        return False
    return any(isinstance(value, str | bytes) for value in rows.ravel().tolist())


def _label(value: Any, row: int) -> Any:
    """A label as Python compares it: 1 and 1.0 are one, text is text."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, str):
        value = value.strip()
    if value is None or value == "" or value != value or not isinstance(value, str | int | float):
        raise InvalidInputError(
            f"row {row} of the target holds {value!r}, expected a class; fill or drop such rows"
        )
    return value


def _order(known: ArrayLike, labels: list[Any]) -> list[Any]:
    """The classes in the order given, as numbers where the labels are numbers."""
    listed = np.asarray(known)
    if listed.ndim != 1 or not len(listed):
        raise InvalidInputError(f"classes have shape {listed.shape}, expected a list of labels")
    order = [_label(value, k) for k, value in enumerate(listed.tolist())]
    if all(not isinstance(label, str) for label in labels):
        try:
            order = [label if not isinstance(label, str) else float(label) for label in order]
        except ValueError:
            raise InvalidInputError(
                f"the target holds numbers, but the classes are {', '.join(map(repr, order[:10]))}"
            ) from None
        order = [int(v) if float(v).is_integer() else v for v in order]
    if len(set(order)) != len(order):
        raise InvalidInputError(f"two classes are the same in {order!r}")
    return order
