"""The network as an integer program in C: what it takes on a board, and what integers lose."""

from __future__ import annotations

from typing import Any

import numpy as np

from relunorm.clock import Clock
from relunorm.display.shown import plain
from relunorm.embedded import to_c
from relunorm.embedded.arithmetic.integers import chosen
from relunorm.errors import InvalidInputError
from relunorm.matrix import nnz
from relunorm.report.case import Case
from relunorm.report.numbers import quantity
from relunorm.report.registry import NEEDS_TIME

WIDTHS = (8, 16)
#: Boxes the domain is cut into for the bound, and points the search starts from: a first look.
PARTS, SAMPLES = 16, 500
#: Products of a program that a second is enough for: `to_c` does not look at the clock.
PACE = 8_000


def compute(case: Case, seconds: float) -> dict[str, Any]:
    """`to_c` with 8 and 16 bits, nothing removed first; its proofs, and its outputs on the data."""
    terms = (matrix for affine in case.network.maps for matrix in affine.terms.values())
    products = sum(map(nnz, terms))  # of a convolution more than it has parameters
    if products > PACE * max(seconds, 0.1):
        raise InvalidInputError(
            f"{NEEDS_TIME} than the {seconds:.2g} s it was given, for {products:,} multiplications"
        )
    clock = Clock(seconds)
    rows, cut = [], False
    for bits in WIDTHS:
        if rows and clock.expired():
            cut = True
            break
        rows.append(_row(case, bits))
    programs = {"kind": "exact", "rows": rows}
    return {"programs": programs, "partial": "only 8 bits were tried" if cut else ""}


def _row(case: Case, bits: int) -> dict[str, Any]:
    try:
        made = to_c(
            case.network, case.domain, bits=bits, shrink=False, parts=PARTS, samples=SAMPLES
        )
    except InvalidInputError as error:
        return {"bits": bits, "why": str(error), "sizes": None, "moves": None, "on_data": None}
    found = made.certificate.document["found"]["of_floats"]
    return {
        "bits": bits,
        "why": "",
        "sizes": {
            "kind": "exact",
            "tables": made.flash,
            "buffers": made.ram,
            "multiplications": made.multiplications,
        },
        "moves": {
            "proved": quantity(made.epsilon, "bound", "for every input of the domain", "upper"),
            "found": quantity(found, "estimate", "the largest that a search met"),
        },
        "on_data": _on_data(case, made.program),
    }


def _on_data(case: Case, program: Any) -> dict[str, Any] | None:
    """How the program's outputs differ from the network's on the data, clamping included."""
    if case.x is None:
        return None
    rows = case.x.reshape(len(case.x), -1)
    ours, theirs = program.predict(rows), case.network(rows)
    decides = case.classes is not None and case.network.decides_plainly
    same = int((chosen(ours) == chosen(theirs)).sum()) if decides else None
    return {
        "kind": "exact",
        "rows": len(rows),
        "largest": plain(np.abs(ours - theirs).max()),
        "same_class": same,
    }
