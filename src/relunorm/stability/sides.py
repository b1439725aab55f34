"""Sides that simple bounds leave open, put to the branch and bound of `relunorm.search`.

A side is a unit of a layer and a sign: can sign * z be positive somewhere on the domain? That is a
question about the largest output of a smaller network, of what the unit reads. The search starts
from the bounds that earlier layers have, so its root costs no more than a few products, and it ends
with a point, or with a tape from which every bound of its tree is computed again.

A maximum that is 0 up to rounding it can neither exclude nor show. Small networks are then searched
in fractions (`relunorm.search.rational.maxima`), where ties are decided like everything else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.bounds.nodes.form import TooLarge, fits, triangular
from relunorm.bounds.problem import Bounds, Group, Problem
from relunorm.clock import NO_LIMIT, Clock, Teller
from relunorm.domain import Box, Domain
from relunorm.domain.reach import Reach
from relunorm.errors import InvalidInputError
from relunorm.matrix import Vector
from relunorm.network import Affine, Layer, Network
from relunorm.search.engine import Search
from relunorm.search.folding import Start
from relunorm.search.proofs.replay import replay
from relunorm.search.proofs.tape import BrokenTape, Tape
from relunorm.search.rational.maxima import largest
from relunorm.search.root import ROOT_SPEED
from relunorm.stability.bound_proofs import FractionProof, SearchedProof

#: A part is closed when its bound is below minus this share of the unit's range. What rests on a
#: bound may be rounded to single precision, so there is room for that where the unit leaves it; at
#: the least a proof should go through on a machine that adds in another order.
MARGINS = (1e-5, 1e-12)

#: Nodes of a search that has met what it cannot settle: it may still find a point.
TIED_NODES = 4_096

#: Values above 0 by less than this are 0 for a search in fractions.
LEAST = Fraction(1, 2**1200)

#: Weights and biases of a network that is searched in fractions, and parts it may be cut into.
MOST_WEIGHTS, MOST_PARTS = 2_000, 256


@dataclass(frozen=True, eq=False)
class Cone:
    """The network of one unit: its pre-activation is the only output.

    Attributes:
        network: what the unit reads, and nothing else.
        reach: the domain; a box only in the inputs that are read.
        inputs: the numbers of those inputs.
        units: layer of the whole network -> which of its units are read.
    """

    network: Network
    reach: Reach
    inputs: NDArray[np.intp]
    units: dict[int, NDArray[np.intp]]

    @property
    def domain(self) -> Domain:
        """Of the smaller network."""
        return self.reach.domain

    def goal(self, sign: int) -> Group:
        """The side as a goal b - A f of a search."""
        return np.array([[-float(sign)]]), np.zeros(1)

    def lift(self, point: Vector, whole: Vector) -> Vector:
        """A point of the whole domain: ``whole`` in the inputs that are not read."""
        full = np.array(whole)
        full[self.inputs] = point
        return full

    def own(self, bounds: Bounds) -> Bounds:
        """Bounds of the smaller network, from those of the whole one."""
        own = Bounds(Problem(self.network, self.reach))
        for layer, kept in self.units.items():
            own.append(bounds.lower[layer][kept], bounds.upper[layer][kept])
        return own

    def open(self, bounds: Bounds) -> int:
        """How many inputs it reads, and units whose sign is open."""
        pairs = ((bounds.lower[k][kept], bounds.upper[k][kept]) for k, kept in self.units.items())
        return len(self.inputs) + sum(int(((a < 0) & (b > 0)).sum()) for a, b in pairs)

    def start(self, bounds: Bounds, sign: int) -> Start | None:
        """Where a search begins; None where too many units are open, or numbers overflow."""
        own = self.own(bounds)
        folds = None if fits(self.network) else own
        if folds is not None and not fits(self.network, folds):
            return None
        try:
            form = triangular(self.network, self.reach, [self.goal(sign)], folds)
        except TooLarge:
            return None
        return Start.of(form, self.network, own)


def cone_of(problem: Problem, index: int, unit: int) -> Cone:
    """What row ``unit`` of map ``index`` reads, directly or through earlier layers.

    >>> from relunorm.domain.reach import reach_of
    >>> net = Network.from_weights([np.eye(3), [[1.0, 2.0, 0.0]], [[1.0]]])
    >>> cone = cone_of(Problem(net, reach_of(Box.cube(3))), 1, 0)
    >>> cone.network.widths, cone.inputs.tolist()
    ((2, 2, 1), [0, 1])
    """
    maps, layers = problem.maps, problem.network.layers
    read = [np.zeros(problem.reach.size, dtype=bool)]
    read += [np.zeros(layer.width, dtype=bool) for layer in layers[:index]]
    _mark(read, maps[index], np.array([unit]))
    for layer in range(index - 1, -1, -1):
        _mark(read, maps[layer], np.flatnonzero(read[layer + 1]))
    reach = problem.reach
    boxed = reach.domain.as_box is not None
    if not (boxed and read[0].any()):
        read[0][:] = True
    kept = [np.flatnonzero(mask) for mask in read]
    if boxed:
        lo, hi = reach.lo[kept[0]], reach.hi[kept[0]]
        reach = Reach(Box(lo, hi), lo, hi)
    number, smaller = {0: 0}, []
    for layer in range(index):
        if len(kept[layer + 1]):
            part = _part(maps[layer], kept[layer + 1], kept, number)
            smaller.append(Layer(part, layers[layer].activation))
            number[layer + 1] = len(smaller)
    output = _part(maps[index], np.array([unit]), kept, number)
    network = Network(smaller, output, input_shape=len(kept[0]))
    return Cone(network, reach, kept[0], {k - 1: kept[k] for k in number if k})


def _mark(read: list[NDArray[np.bool_]], affine: Affine, rows: NDArray[np.intp]) -> None:
    """Note what some rows of a map read."""
    for source, matrix in affine.terms.items():
        if len(rows):
            read[source][mx.csr_parts(matrix[rows])[1]] = True


def _part(
    affine: Affine, rows: NDArray[np.intp], kept: list[NDArray[np.intp]], number: dict[int, int]
) -> Affine:
    """Rows of a map over the values that are kept."""
    terms = {
        number[source]: mx.compact(matrix[rows][:, kept[source]])
        for source, matrix in affine.terms.items()
        if source in number
    }
    return Affine(terms, affine.bias[rows])


@dataclass(frozen=True, eq=False)
class Asked:
    """What a search found of a side: a proof that excludes it, if any.

    ``tied`` if it met a part whose maximum is 0 up to rounding: no such search proves the side.
    """

    proof: SearchedProof | None = None
    tied: bool = False


@np.errstate(over="ignore", invalid="ignore")
def ask(
    problem: Problem,
    bounds: Bounds,
    index: int,
    unit: int,
    sign: int,
    *,
    shown: Callable[[Vector], bool],
    clock: Clock,
    nodes: float = math.inf,
    random_state: int = 0,
) -> Asked:
    """Search for a point with sign * z[unit] > 0 in layer ``index``, or prove that there is none.

    Args:
        shown: whether a point of the domain, where floats say so, is a witness for certain.
        nodes: of the search, at most.
    """
    cone = cone_of(problem, index, unit)
    size = sum(cone.network.widths) if fits(cone.network) else cone.open(bounds)
    if size**3 / ROOT_SPEED > clock.left():
        return Asked()  # there is no time for the first node
    start = cone.start(bounds, sign)
    width = bounds.upper[index][unit] - bounds.lower[index][unit]
    if start is None or not math.isfinite(width):
        return Asked()
    tied = False
    for margin in MARGINS:
        search = Search(
            cone.network, cone.domain, [cone.goal(sign)],
            target=math.ulp(0.0), below=-margin * width, random_state=random_state,
            proof=Tape(), attacks=0, start=start,
        )  # fmt: skip
        if _ran(search, lambda x: shown(cone.lift(x, problem.reach.domain.center)), clock, nodes):
            return Asked()
        tied = search.lost > 0
        if not tied:
            break
    if not search.complete or tied or not search.upper <= search.below:
        return Asked(tied=tied)
    assert search.proof is not None
    tape = np.concatenate([np.zeros(0), *search.proof])
    top = search.upper + MARGINS[-1] * width  # parts are often closed well below what is asked
    limit = min(search.below, top) if math.isfinite(top) else search.below
    return Asked(SearchedProof(index, unit, sign, limit, tape))


def _ran(search: Search, shown: Callable[[Vector], bool], clock: Clock, nodes: float) -> bool:
    """Run a search; True if it ended with a witness, or with numbers that overflow."""
    tell = Teller(None, clock)
    while True:
        search.run(clock, tell, min(TIED_NODES, nodes - search.nodes))
        if search.reached:
            if shown(search.point):
                return True
            # what floats took for a witness is none: only a clearly better point will do
            search.target = max(2.0 * search.target, 4.0 * search.value)
            if not math.isfinite(search.target):
                return True
            continue
        most = min(nodes, TIED_NODES) if search.lost else nodes
        if search.complete or search.nodes >= most or clock.expired():
            return False


@np.errstate(over="ignore", invalid="ignore")
def searched_bound(problem: Problem, bounds: Bounds, item: SearchedProof) -> float:
    """The bound on sign * z that a tape proves.

    Raises:
        InvalidInputError: it does not prove it.
    """
    place = f"the search proof of unit {item.unit} in layer {item.layer}"
    start = cone_of(problem, item.layer, item.unit).start(bounds, item.sign)
    if start is None:
        raise InvalidInputError(f"{place} is of a network that is not searched")
    try:
        found = replay(start.form, -1, [item.tape], item.limit, True, start)
    except BrokenTape as error:
        raise InvalidInputError(f"{place} is damaged: {error}") from None
    if not found.holds:
        raise InvalidInputError(f"{place} does not go through: {found.reason}")
    return item.limit


def ask_in_fractions(
    problem: Problem, index: int, unit: int, sign: int, clock: Clock = NO_LIMIT
) -> tuple[FractionProof | None, Vector | None]:
    """Decide a side without rounding where the network is small: a proof, or a point above 0."""
    cone = cone_of(problem, index, unit)
    small = sum(a.nnz for a in cone.network.maps) <= MOST_WEIGHTS
    steps = any(layer.activation.kind == "step" for layer in cone.network.layers)
    if steps or not small or not cone.domain.flat_sided:
        return None, None
    found = largest(
        cone.network, cone.domain, [cone.goal(sign)], clock, target=LEAST, parts=MOST_PARTS
    )
    if found.value is None or not found.complete:
        return None, None
    if found.value > 0:
        point = np.array([float(x) for x in found.point])
        return None, cone.lift(point, problem.reach.domain.center)
    return FractionProof(index, unit, sign, found.parts), None


def fraction_bound(problem: Problem, item: FractionProof) -> float:
    """0, once a side is decided again in fractions.

    Raises:
        InvalidInputError: it is not excluded, or not in about as many parts as before.
    """
    cone = cone_of(problem, item.layer, item.unit)
    place = f"the proof in fractions of unit {item.unit} in layer {item.layer}"
    if not cone.domain.flat_sided or not 0 < item.parts <= MOST_PARTS:
        raise InvalidInputError(f"{place} is of a domain or a size that is not searched so")
    found = largest(
        cone.network, cone.domain, [cone.goal(item.sign)], NO_LIMIT, target=LEAST,
        parts=2 * item.parts + 16,
    )  # fmt: skip
    if found.value is None or not found.complete or found.value > 0:
        raise InvalidInputError(f"{place} does not go through")
    return 0.0
