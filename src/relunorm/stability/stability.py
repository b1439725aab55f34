"""Which units can change sign over a domain: cheap bounds first, dear ones for what is left."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from numpy.typing import NDArray

from relunorm.bounds.layers.linear import linear_upper
from relunorm.bounds.layers.lp import relaxation
from relunorm.bounds.layers.slopes import optimize
from relunorm.bounds.problem import Bounds, Problem, few_threads
from relunorm.clock import LAST_MOMENT, Clock, Listener, Teller
from relunorm.domain import Domain
from relunorm.domain.reach import reach_of
from relunorm.matrix import Array, Vector
from relunorm.network import Network
from relunorm.stability.bound_proofs import Proof, Proofs, SlopeProof
from relunorm.stability.bound_replay import apply, rule_bounds
from relunorm.stability.verdicts import LayerStability, Stability, layer_verdicts
from relunorm.stability.witness import Witnesses

#: Nodes of the first search of a side, and of the last one on a ball, whose parts get ever smaller.
FIRST_NODES, CURVED_NODES = 100, 20_000

#: Slopes of all open units of a layer are tuned while this many multiplications suffice.
TUNING_WORK = 4e10

#: Rows of one batch of tuning times units of the network, at most.
TUNING_DOUBLES = 1 << 23

#: Descent steps from the fixed rule; 20 come within a percent of the linear programme.
STEPS = 20

#: The triangle relaxation is solved while it has at most this many columns.
LP_COLUMNS = 1_200

Sides = tuple[NDArray[np.intp], Vector]


def stability(
    network: Network,
    domain: Domain,
    *,
    time_limit: float | Clock | None = None,
    progress: Listener | None = None,
    random_state: int = 0,
) -> Stability:
    """Decide for every unit whether it is dead, always active or unstable over the domain.

    A verdict ``dead`` or ``active`` rests on a bound that holds in real arithmetic and that
    `replay` recomputes without a solver; ``unstable`` rests on two points whose signs survive
    rounding. What neither shows within the time is ``undecided``.

    Args:
        network: relu, leaky, step and linear stages, with any skips.
        domain: a box, a ball or a polytope.
        time_limit: seconds; what is open then stays undecided. None for no limit.
        progress: called with a `Progress`; its facts are the ``layer``, how many sides of its units
            are ``open`` and the ``stage``. May raise KeyboardInterrupt to stop.
        random_state: seed of the witness search.

    Exact up to what is listed as undecided. KeyboardInterrupt stops the search and keeps what was
    found. Cost: a few forward passes per unit when bounds and witnesses suffice, exponential in
    the number of open units in the worst case.

    >>> from relunorm import Box
    >>> net = Network.from_weights([[[1.0], [1.0], [1.0]], [[1.0] * 3]], [[1.0, 0.0, -1.0], [0.0]])
    >>> stability(net, Box([-1.0], [1.0])).layers[0].verdict.tolist()
    ['active', 'unstable', 'dead']
    """
    domain.check_dimension(network.input_size)
    clock = Clock(time_limit)
    search = _Search(network, domain, clock, progress, random_state)
    with few_threads(network), np.errstate(over="ignore", invalid="ignore"):
        return search.run()


class _Search:
    """The state of one call: bounds and witnesses so far, proofs, the clock."""

    def __init__(
        self,
        network: Network,
        domain: Domain,
        clock: Clock,
        progress: Listener | None,
        random_state: int,
    ):
        self.clock, self.tell = clock, Teller(progress, clock)
        self.problem = Problem(network, reach_of(domain))
        self.bounds = Bounds(self.problem)
        self.witnesses = Witnesses(self.problem, clock)
        self.rng = np.random.default_rng(random_state)
        self.random_state = random_state
        self.items: list[Proof] = []
        self.method: NDArray[np.str_] = np.empty(0, dtype="<U8")
        self.stopped = False

    def _stop(self) -> None:
        """Interrupted: what is left to do for an answer gets a moment."""
        self.stopped, self.clock = True, self.clock.part(LAST_MOMENT)

    def run(self) -> Stability:
        network = self.problem.network
        self.witnesses.start(512, self.rng)
        layers: list[LayerStability] = []
        for index, layer in enumerate(network.layers):
            try:
                lower, upper = rule_bounds(self.problem, self.bounds, index, clock=self.clock)
            except KeyboardInterrupt:
                self._stop()
                lower, upper = rule_bounds(self.problem, self.bounds, index, clock=self.clock)
            self.bounds.append(lower, upper)
            if not layer.has_units:
                continue
            self.method = np.full(layer.width, "linear" if index else "interval", dtype="<U8")
            if not (self.stopped or self.clock.expired()):
                try:
                    self._search_layer(index)
                except KeyboardInterrupt:
                    self._stop()
            layers.append(
                layer_verdicts(self.problem, self.bounds, self.witnesses, index, self.method)
            )
        proofs = Proofs(tuple(self.items), self.problem.reach.box_duals, network.digest)
        return Stability(
            layers=tuple(layers),
            domain=repr(self.problem.reach.domain),
            domain_digest=self.problem.reach.domain.digest,
            seconds=self.clock.elapsed(),
            complete=not any(layer.counts["undecided"] for layer in layers),
            random_state=self.random_state,
            proofs=proofs,
        )

    def _search_layer(self, index: int) -> None:
        """Witnesses, then ever dearer bounds, until every side of the layer is decided."""
        self._climb(index, 8)
        if self.problem.reach.rows:
            self._linear_programmes(index, self._free(index))
        if not index:
            return  # The support function is exact: what is open now is open by rounding alone.
        self._tune(index)
        for stage, run in (("climb", partial(self._climb, starts=24)), ("search", self._ask)):
            if not len(self._open(index)[0]) or self.clock.expired():
                return
            self._tell(index, stage)
            run(index)

    def _tell(self, index: int, stage: str, at_once: bool = True) -> None:
        if not (self.tell.listener is not None and (at_once or self.tell.due)):
            return
        count, layers = len(self._open(index)[0]), len(self.problem.network.layers)
        text = f"layer {index + 1} of {layers}, {count} open, {stage}"
        self.tell(text, index, layers, layer=index, open=count, stage=stage)

    def _free(self, index: int) -> Sides:
        """Both sides of every unit whose bounds leave the sign open."""
        units = np.flatnonzero(self.bounds.bent(index))
        return np.tile(units, 2), np.repeat([1.0, -1.0], len(units))

    def _open(self, index: int) -> Sides:
        """Sides that neither a bound excludes nor a witness shows."""
        units, signs = self._free(index)
        unseen = ~(self.witnesses.most[index][(signs > 0).astype(int), units] > 0)
        return units[unseen], signs[unseen]

    def _is_open(self, index: int, unit: int, sign: int) -> bool:
        """Whether a side is still open."""
        free = self.bounds.lower[index][unit] < 0 < self.bounds.upper[index][unit]
        return bool(free) and not self.witnesses.shows(index, unit, sign)

    def _use(self, item: Proof) -> None:
        """Apply a proof, keep it, and note the units it decided."""
        index = item.layer
        was = self.bounds.bent(index)
        # Kept before it is applied: an interruption in between must not leave a bound unproved.
        self.items.append(item)
        apply(self.problem, self.bounds, item, fresh=True)
        now = self.bounds.bent(index)
        self.method[was & ~now] = item.method

    def _climb(self, index: int, starts: int) -> None:
        units, signs = self._open(index)
        self.witnesses.climb(index, units, signs, starts, self.rng)

    def _tune(self, index: int) -> None:
        """Tuned slopes: for all free units when later layers gain from it, else for open sides."""
        units, signs = self._free(index)
        deeper = any(layer.has_units for layer in self.problem.network.layers[index + 1 :])
        entries = sum(a.nnz for a in self.problem.maps[:index])
        tighten = deeper and 2 * STEPS * len(units) * entries < TUNING_WORK
        if not tighten:
            units, signs = self._open(index)
        step = max(1, TUNING_DOUBLES // sum(self.problem.network.widths))
        for start in range(0, len(units), step):
            if self.clock.expired():
                return
            some, side = units[start : start + step], signs[start : start + step]
            found = optimize(
                self.problem, self.bounds, index, some, side,
                iterations=STEPS, goal=None if tighten else 0.0, clock=self.clock,
            )  # fmt: skip
            value = linear_upper(self.problem, self.bounds, index, some, side, found.slopes)
            now = self.bounds.sides(index, some, side)
            width = (self.bounds.upper[index] - self.bounds.lower[index])[some]
            keep = np.flatnonzero((value < now - 1e-3 * width) if tighten else (value <= 0))
            if len(keep):
                self._use(SlopeProof(index, some[keep], side[keep], found.slopes.take(keep)))
            self.witnesses.add(found.point)

    def _linear_programmes(self, index: int, sides: Sides) -> None:
        """The triangle relaxation of each side, one model with changing objectives."""
        units, signs = sides
        if not len(units):
            return
        open_units = sum(len(self._free(layer)[0]) // 2 for layer in range(index))
        if self.problem.reach.size + open_units > LP_COLUMNS:
            return
        model = relaxation(self.problem, self.bounds, index)
        points = []
        for unit, sign in zip(units.tolist(), signs.tolist(), strict=True):
            if self.clock.expired():
                break
            best = model.maximize(unit, sign, self.clock.left_or_none())
            if best is None:
                continue
            points.append(best.point)
            item = SlopeProof(index, np.array([unit]), np.array([sign]), best.slopes, "lp")
            value = linear_upper(
                self.problem, self.bounds, index, item.units, item.signs, item.slopes
            )
            now = self.bounds.sides(index, unit, sign)
            if value[0] <= 0 or (self.problem.reach.rows and value[0] < now):
                self._use(item)
        if points:
            self.witnesses.add(inward(self.problem.reach.domain, np.array(points)))

    def _ask(self, index: int) -> None:
        """One search a side: first a few nodes for each, then as many as it takes."""
        from relunorm.search.engine import warm_up
        from relunorm.stability.sides import ask, ask_in_fractions

        self.tell.compile("the search", warm_up)
        flat = self.problem.reach.domain.flat_sided
        tied: set[tuple[int, int]] = set()
        for nodes in (FIRST_NODES, math.inf if flat else CURVED_NODES):
            units, signs = self._open(index)
            sides = [(int(u), int(s)) for u, s in zip(units, signs, strict=True)]
            for turn, (unit, sign) in enumerate(sides):
                if self.clock.expired():
                    return
                if not self._is_open(index, unit, sign):
                    continue
                self._tell(index, "search", at_once=False)
                found = ask(
                    self.problem, self.bounds, index, unit, sign,
                    shown=partial(self._shows, index, unit, sign),
                    clock=self.clock.part(share=1 / (len(sides) - turn)),
                    nodes=nodes, random_state=self.random_state,
                )  # fmt: skip
                if found.proof is not None:
                    self._use(found.proof)
                elif found.tied and (unit, sign) not in tied:
                    tied.add((unit, sign))
                    proof, point = ask_in_fractions(self.problem, index, unit, sign, self.clock)
                    if proof is not None:
                        self._use(proof)
                    elif point is not None:
                        self._shows(index, unit, sign, point)

    def _shows(self, index: int, unit: int, sign: int, point: Vector) -> bool:
        """Whether a point, or one beside it, is a witness of a side; it is kept if so."""
        self.witnesses.add(inward(self.problem.reach.domain, point[None]))
        return self.witnesses.shows(index, unit, sign)


def inward(domain: Domain, points: Array) -> Array:
    """A solver's points and copies moved slightly to the centre, so that some surely lie inside."""
    if domain.as_box is not None:
        return points
    moved = [points + share * (domain.center - points) for share in (1e-12, 1e-9, 1e-6)]
    return np.concatenate([points, *moved])
