"""The domain of a certificate: as JSON, and whether it holds another one.

What proves a polytope's box is written with it, so that a certificate stands alone. Whether a
domain holds another is decided in rational arithmetic, never up to a tolerance.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np

from relunorm.domain import Ball, Box, Domain, NormBall, Polytope
from relunorm.domain.reach import Reach, reach_of
from relunorm.errors import InvalidDomainError


def domain_to_dict(reach: Reach) -> dict[str, Any]:
    """A domain as numbers; every float64 survives the round trip."""
    domain = reach.domain
    if isinstance(domain, Box):
        return {"kind": "box", "lo": domain.lo.tolist(), "hi": domain.hi.tolist()}
    if isinstance(domain, Ball):
        return {"kind": "ball", "center": domain.middle.tolist(), "radius": domain.reach}
    if isinstance(domain, NormBall):
        return {
            "kind": "norm-ball",
            "center": domain.middle.tolist(),
            "radius": domain.reach,
            "norm": domain.norm,
            "lo": domain.box.lo.tolist(),
            "hi": domain.box.hi.tolist(),
        }
    if isinstance(domain, Polytope):
        duals = reach.box_duals
        return {
            "kind": "polytope",
            "A": domain.A.tolist(),
            "b": domain.b.tolist(),
            "box_duals": None if duals is None else duals.tolist(),
        }
    raise InvalidDomainError(f"a domain of type {type(domain).__name__} cannot be written as JSON")


def reach_from_dict(document: dict[str, Any]) -> Reach:
    """The domain of a certificate, its box proved again without a solver."""
    kind = document.get("kind")
    try:
        if kind == "box":
            return reach_of(Box(document["lo"], document["hi"]))
        if kind == "ball":
            return reach_of(Ball(document["center"], document["radius"]))
        if kind == "norm-ball":
            box = Box(document["lo"], document["hi"])
            return reach_of(NormBall(document["center"], document["radius"], document["norm"], box))
        if kind == "polytope":
            domain: Domain = Polytope(document["A"], document["b"])
            return reach_of(domain, np.asarray(document["box_duals"], dtype=np.float64))
    except (KeyError, TypeError) as error:
        raise InvalidDomainError(f"the certificate's {kind} domain is damaged: {error}") from None
    raise InvalidDomainError(f"the certificate's domain is of kind {kind!r}, which is not known")


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
    if isinstance(inner, Polytope | NormBall):
        reach = reach_of(inner)
        inner = Box(reach.lo, reach.hi)
    if isinstance(outer, Ball):
        return _in_ball(outer, inner)
    if isinstance(outer, Box):
        rows = [(j, sign, end) for sign, ends in ((1, outer.hi), (-1, -outer.lo))
                for j, end in enumerate(ends)]  # fmt: skip
        return all(_below({j: Fraction(sign)}, end, inner) for j, sign, end in rows)
    if isinstance(outer, Polytope):
        return all(
            _below({j: Fraction(a) for j, a in enumerate(row) if a}, end, inner)
            for row, end in zip(outer.A.tolist(), outer.b, strict=True)
        )
    return False


def _below(row: dict[int, Fraction], end: float, inner: Domain) -> bool:
    """Whether row.x <= end for all x of a box or a ball."""
    limit = Fraction(float(end))
    if isinstance(inner, Box):
        ends = {j: (inner.hi if a > 0 else inner.lo)[j] for j, a in row.items()}
        return sum((a * Fraction(float(ends[j])) for j, a in row.items()), Fraction(0)) <= limit
    if isinstance(inner, Ball):
        middle = (a * Fraction(float(inner.middle[j])) for j, a in row.items())
        room = limit - sum(middle, Fraction(0))
        swing = Fraction(inner.reach) ** 2 * sum((a * a for a in row.values()), Fraction(0))
        return room >= 0 and room * room >= swing
    return False


def _in_ball(outer: Ball, inner: Domain) -> bool:
    """Whether a box or a ball lies in a ball."""
    middle, radius = _exact(outer.middle), Fraction(outer.reach)
    if isinstance(inner, Box):
        corners = zip(_exact(inner.lo), _exact(inner.hi), middle, strict=True)
        far = (max(abs(lo - m), abs(hi - m)) for lo, hi, m in corners)
        return sum((x * x for x in far), Fraction(0)) <= radius * radius
    if isinstance(inner, Ball):
        room = radius - Fraction(inner.reach)
        apart = zip(_exact(inner.middle), middle, strict=True)
        return room >= 0 and sum(((a - m) ** 2 for a, m in apart), Fraction(0)) <= room * room
    return False


def _exact(values: Iterable[float]) -> Numbers:
    return [Fraction(float(value)) for value in values]
