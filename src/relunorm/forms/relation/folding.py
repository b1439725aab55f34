"""What multiplying linear stages out can change: `Network.folded` rounds."""

from __future__ import annotations

import numpy as np

from relunorm.clock import NO_LIMIT, Clock
from relunorm.forms.outward import Range
from relunorm.forms.relation.match import relate
from relunorm.matrix import Vector
from relunorm.network import Network
from relunorm.stability.reach import Reach


def folding_error(network: Network, reach: Reach, clock: Clock = NO_LIMIT) -> Vector:
    """A bound on |f - f.folded()| over the domain, output by output; 0 without linear stages.

    Both are walked over one basis, as two networks are when they are compared. Sound. A clock
    that ends before raises `TimeLimitError`.

    >>> from relunorm import Box
    >>> from relunorm.stability.reach import reach_of
    >>> net = Network.from_weights([[[1.0]], [[1.0]]])
    >>> folding_error(net, reach_of(Box([0.0], [1.0]))).tolist()
    [0.0]
    """
    folded = network.folded()
    if folded is network:
        return np.zeros(network.output_size)
    ends = [[np.full(x.width, np.inf) for x in n.layers] for n in (network, folded)]
    first, second = ([Range(-e, e) for e in side] for side in ends)
    return relate(network, folded, reach, first, second, clock=clock).difference.largest
