"""Labels of a table that a model does not have, and the `--classes` that would read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relunorm.errors import InvalidInputError

if TYPE_CHECKING:
    from relunorm.io.table import Table
    from relunorm.network import Network

#: Rows that are asked which label stands for which class, at most.
ASKED = 4096


def check_labels(table: Table, network: Network, *, some: bool = True) -> None:
    """Refuse labels that are none of the model's classes, and say what would read them.

    Args:
        some: whether it is enough that some labels are none; else all must be.
    """
    told = foreign_labels(table, network)
    if told and (some or not set(_known(network)) & set(_cells(table))):
        raise InvalidInputError(told)


def foreign_labels(table: Table, network: Network) -> str:
    """What is wrong with labels that the model lacks, with the `--classes` that would read them.

    Empty where all are known, and where no such option could help: then what is wrong is told where
    labels are read. A class that is spelled the same but for upper and lower case is the same; for
    the others the model is asked, and what it answers on most of a label's rows is its class. That
    is a guess, and it is called one.
    """
    known = _known(network)
    if not known or table.labels is None or table.labels.ndim > 1:
        return ""
    cells = _cells(table)
    held, words = set(cells), isinstance(network.head.classes[0], str)
    strange, free = sorted(held - set(known)), [k for k, c in enumerate(known) if c not in held]
    if strange and not words:  # classes 1, 2, 3 and labels 0, 1, 2: none may mean the same
        strange, free = sorted(held), list(range(len(known)))
    if not strange or len(strange) > len(free):
        return ""
    if words and held <= {str(k) for k in range(len(known))}:
        return ""
    pairs = _spelled_alike(strange, free, known) if words else {}
    rest = [label for label in strange if label not in pairs]
    left = [k for k in free if k not in pairs.values()]
    pairs |= _answered(cells, rest, left, table, network)
    from relunorm.questions.classes import Classes

    names = list(known)
    for label, k in pairs.items():
        names[k] = label
    spelled = Classes(tuple(names), (), "given").spelled
    places = sorted(pairs, key=lambda label: pairs[label])
    are = ", ".join(f"{label} is {known[pairs[label]]}" for label in places)
    guess = " (which makes most rows right, a guess)" if rest else ""
    drop = "" if len(strange) == len(held) else "correct or drop such rows, or, "
    return (
        f"the target holds {', '.join(strange)}, but the model's classes are {', '.join(known)}; "
        f"{drop}if {are}{guess}, say --classes {spelled}"
    )


def _known(network: Network) -> list[str]:
    return [_text(name) for name in network.head.classes]


def _cells(table: Table) -> list[str]:
    labels: Any = table.labels
    return [_text(label) for label in labels.tolist()]


def _text(label: Any) -> str:
    """A label as text: 1, 1.0 and true are one."""
    whole = isinstance(label, bool) or (isinstance(label, float) and label.is_integer())
    return str(int(label)) if whole else str(label)


def _spelled_alike(strange: list[str], free: list[int], known: list[str]) -> dict[str, int]:
    """The labels that differ from one class only in case, where that is clear."""
    folded = [known[k].casefold() for k in free]
    wanted = [label.casefold() for label in strange]
    return {
        label: free[folded.index(key)]
        for label, key in zip(strange, wanted, strict=True)
        if folded.count(key) == wanted.count(key) == 1
    }


def _answered(
    cells: list[str], strange: list[str], free: list[int], table: Table, network: Network
) -> dict[str, int]:
    """The classes that are answered most on the rows of these labels, each class once."""
    import numpy as np
    from scipy.optimize import linear_sum_assignment

    if not strange:
        return {}
    rows = [k for k, cell in enumerate(cells) if cell in set(strange)][:ASKED]
    outputs: Any = network(np.nan_to_num(table.x[rows]))
    if outputs.shape[1] == 1:
        outputs = np.concatenate([-outputs, outputs], axis=1)
    decided = outputs[:, free].argmax(axis=1)
    counts = np.zeros((len(strange), len(free)))
    np.add.at(counts, ([strange.index(cells[k]) for k in rows], decided), 1)
    pairs = zip(*linear_sum_assignment(counts, maximize=True), strict=True)
    return {strange[label]: free[place] for label, place in pairs}
