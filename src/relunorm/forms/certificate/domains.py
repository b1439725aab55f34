"""Domains as JSON, with what proves a polytope's box, so that a certificate stands alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from relunorm.domain import Ball, Box, Domain, NormBall, Polytope
from relunorm.errors import InvalidDomainError
from relunorm.stability.reach import Reach, reach_of


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
    raise InvalidDomainError(f"the certificate's domain is of kind {kind!r}; expected box or ball")
