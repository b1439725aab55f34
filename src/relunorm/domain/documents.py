"""The domain of a certificate: as JSON, and whether it holds another one.

What proves a polytope's box is written with it, so that a certificate stands alone. Whether a
domain holds another is decided in rational arithmetic, never up to a tolerance.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np

from relunorm.domain import KINDS, Ball, Box, Domain
from relunorm.domain.reach import Reach, reach_of
from relunorm.errors import InvalidDomainError


def domain_to_dict(reach: Reach) -> dict[str, Any]:
    """A domain as numbers, with what proves its box."""
    found = reach.domain.to_dict()
    return found if reach.box_duals is None else {**found, "box_duals": reach.box_duals.tolist()}


def domain_from_dict(document: dict[str, Any], where: str = "the certificate") -> Domain:
    """The domain that `Domain.to_dict` wrote."""
    kind = document.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise InvalidDomainError(f"{where}'s domain is of kind {kind!r}, which is not known")
    try:
        return KINDS[kind].from_dict(document)
    except (KeyError, TypeError) as error:
        raise InvalidDomainError(f"{where}'s {kind} domain is damaged: {error}") from None


def reach_from_dict(document: dict[str, Any]) -> Reach:
    """The domain of a certificate, its box proved again without a solver."""
    domain = domain_from_dict(document)
    if not domain.only_rows:
        return reach_of(domain)
    try:
        return reach_of(domain, np.asarray(document["box_duals"], dtype=np.float64))
    except (KeyError, TypeError) as error:
        kind = domain.kind
        raise InvalidDomainError(f"the certificate's {kind} domain is damaged: {error}") from None


Numbers = list[Fraction]


def holds(outer: Domain, inner: Domain) -> bool:
    """Whether every point of ``inner`` lies in ``outer``, for certain.

    Exact, except that a polytope or a clipped ball in another domain is replaced by a box around
    it: True is always right, False may only mean that this was too coarse.

    >>> square = Box.cube(2, -1, 1)
    >>> holds(Ball([0.0, 0.0], 1.5), square), holds(Ball([0.0, 0.0], 1.4), square)
    (True, False)
    >>> holds(square, Ball([0.0, 0.0], 1.0)), holds(square, Ball([0.0, 0.0], 1.0 + 2**-52))
    (True, False)
    """
    if outer.dimension != inner.dimension:
        return False
    if outer.digest == inner.digest:
        return True
    if not inner.rational:
        reach = reach_of(inner)
        inner = Box(reach.lo, reach.hi)
    if outer.as_ball is not None:
        return _in_ball(outer.as_ball, inner)
    if not outer.flat_sided:
        return False
    A, b = outer.sides
    rows = ({int(j): Fraction(row[j]) for j in np.flatnonzero(row)} for row in A)
    return all(
        inner.end_signs(row, -Fraction(end))[1] <= 0
        for row, end in zip(rows, b.tolist(), strict=True)
    )


def _in_ball(outer: Ball, inner: Domain) -> bool:
    """Whether a box or a ball lies in a ball."""
    middle, radius = _exact(outer.middle), Fraction(outer.reach)
    if inner.as_box is not None:
        box = inner.as_box
        corners = zip(_exact(box.lo), _exact(box.hi), middle, strict=True)
        far = (max(abs(lo - m), abs(hi - m)) for lo, hi, m in corners)
        return sum((x * x for x in far), Fraction(0)) <= radius * radius
    if inner.as_ball is not None:
        ball = inner.as_ball
        room = radius - Fraction(ball.reach)
        apart = zip(_exact(ball.middle), middle, strict=True)
        return room >= 0 and sum(((a - m) ** 2 for a, m in apart), Fraction(0)) <= room * room
    return False


def _exact(values: Iterable[float]) -> Numbers:
    return [Fraction(float(value)) for value in values]
