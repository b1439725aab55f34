"""The normal forms by name: which of all equivalent networks is chosen.

A form is a file here and an entry in `FORMS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from relunorm.domain.reach import Reach
from relunorm.forms.shapes.bounded import L1Facts, bounded, check_l1, l1
from relunorm.forms.shapes.rescaling import atoms, pow2, signed, unit
from relunorm.network import Network


@dataclass(frozen=True)
class Shape:
    """A normal form.

    Attributes:
        make: the network in the form; one that needs a domain is also given the ranges of its
            units and the domain's `Reach`. None where removal does it all (`forms.shaping`).
        minimal_first: whether units are removed before, unless that is forbidden (errata of seed
            001: padding makes the constraints of these forms vacuous).
        needs_domain: whether thresholds lie within what reaches a unit over the domain.
        quick: whether it needs no bounds and takes no longer than reading the network.
        options: the settings of `normalize` that it has; `make` is told them (`forms.shaping`).
    """

    make: Callable[..., Network] | None = None
    minimal_first: bool = False
    needs_domain: bool = False
    quick: bool = False
    options: tuple[str, ...] = ()
    facts: Callable[[Network, Reach], L1Facts] | None = None


FORMS = {
    "minimal": Shape(minimal_first=True),
    "signed": Shape(signed, quick=True, options=("split",)),
    "unit": Shape(unit, quick=True, options=("pure",)),
    "bounded": Shape(bounded, minimal_first=True, needs_domain=True, options=("pure",)),
    "l1": Shape(l1, minimal_first=True, needs_domain=True, facts=check_l1),
    "pow2": Shape(pow2, quick=True),
    "atoms": Shape(atoms),
    "canonical": Shape(minimal_first=True, options=("exact",)),
}
