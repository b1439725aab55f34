"""Where inputs live: box, ball or polytope, each with its exact support function.

``domain.support(W)`` gives, for every row w of W, the minimum and maximum of w.x over the domain:
in closed form for a box and a ball, by one linear programme a side for a polytope. Everything
that needs "what can reach this unit" asks here.
"""

from relunorm.domain.ball import Ball, NormBall
from relunorm.domain.base import Domain, RandomState
from relunorm.domain.box import Box
from relunorm.domain.polytope import Polytope

#: Every domain by the word for it in files and on the command line.
KINDS: dict[str, type[Domain]] = {kind.kind: kind for kind in (Box, Ball, NormBall, Polytope)}

__all__ = ["KINDS", "Ball", "Box", "Domain", "NormBall", "Polytope", "RandomState"]
