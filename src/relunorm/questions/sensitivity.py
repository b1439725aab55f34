"""`sensitivity`: how steep every output can be in every input, anywhere on a domain."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relunorm.arguments import whole_number
from relunorm.clock import Clock, Listener, Teller
from relunorm.display.pictures import new_axes
from relunorm.display.shown import Shown, entries
from relunorm.domain import Domain
from relunorm.errors import InvalidDomainError, InvalidInputError
from relunorm.io.border import Model, Place, accepts
from relunorm.lipschitz.kinks import near_kink
from relunorm.lipschitz.search.climb import Climb, compile_kernels
from relunorm.lipschitz.search.proof import Claim, SlopeProof
from relunorm.lipschitz.search.setting import Setting
from relunorm.lipschitz.search.slopes import Slopes
from relunorm.matrix import Array, Vector
from relunorm.network import Network
from relunorm.network.head import of_words
from relunorm.search.proofs.tape import Tape

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


#: An interval counts as exact if what is proved and what is attained differ by this, relative to
#: the largest slope of the output.
EXACT = 1e-7

#: Points at which the Jacobian is looked at first.
SAMPLES = 2048

#: How often at most a steep point is moved and a way up is searched again before a search, for how
#: much of the proof of the search before it once, and how far it is moved, in half-widths.
KICKS, BYTES, KICK = 24, 3300, 0.4

#: Seconds for one slope before it is the turn of the next, and numbers that the searches of all
#: slopes may keep.
TURN, MOST_KEPT = 0.25, 1 << 24

#: How far down from what is proved to what was seen the next search looks for more, and how often
#: at most, before one for everything, which comes as soon as they differ by this share.
HALFWAY, PASSES, NEAR = 0.5, 8, 0.15

#: Inputs and changing units up to which regions are searched.
MOST_INPUTS, MOST_UNITS = 64, 2000


@dataclass(frozen=True, eq=False, repr=False)
class Sensitivity(Shown):
    """The range of every partial derivative over a domain.

    Args:
        lower, upper: (outputs, inputs): d f_i / d x_j lies between them wherever it exists; bounds
            in real arithmetic.
        least, most: the smallest and largest values seen, as computed in float64; NaN where an
            input does not vary on the domain.
        exact: where the two agree to 1e-7, relative to the largest slope of the output.
        points: inputs where these values occur.
        at_least, at_most: (outputs, inputs), rows of ``points``.
        complete: whether every entry is exact or was searched to the end.
        seconds: wall time without compiling.
        names: of the inputs.
        of: what f is: the model's outputs, or what comes before its head.
        certificate: a proof of ``lower`` and ``upper`` that replays without a solver; None where
            time ran out before the search, and after an interrupt.
    """

    lower: Array
    upper: Array
    least: Array
    most: Array
    exact: NDArray[np.bool_]
    points: Array
    at_least: NDArray[np.intp]
    at_most: NDArray[np.intp]
    complete: bool
    seconds: float
    names: tuple[str, ...]
    of: str = "outputs"
    certificate: SlopeProof | None = None

    @cached_property
    def direction(self) -> NDArray[np.str_]:
        """(outputs, inputs): what is certain of an input.

        ``unused`` (the derivative is 0 everywhere), ``increasing`` (never negative),
        ``decreasing`` (never positive), ``fixed`` (it does not vary on the domain), or ``""``.
        Increasing and decreasing hold up to 1e-7 of the largest slope of the output, so that an
        input counts whose derivative is 0 in some region.
        """
        size = np.where(np.isnan(self.least), 0.0, np.maximum(np.abs(self.lower), abs(self.upper)))
        largest = size.max(axis=1, keepdims=True)
        near = np.where(np.isfinite(largest), EXACT * largest, 0.0)
        words = np.where(self.upper <= near, "decreasing", "")
        words = np.where(self.lower >= -near, "increasing", words)
        words = np.where((self.lower == 0) & (self.upper == 0), "unused", words)
        return np.where(np.isnan(self.least), "fixed", words)

    def steepest(self, count: int = 5) -> list[dict[str, Any]]:
        """The largest slopes that were seen, and where they occur; those beyond float64 are not."""
        size = np.maximum(np.abs(self.least), np.abs(self.most))
        order = np.argsort(-np.where(np.isfinite(size), size, -1.0), axis=None, kind="stable")
        found = []
        for at in order[:count]:
            i, j = (int(k) for k in np.unravel_index(at, size.shape))
            if not math.isfinite(size[i, j]):
                continue
            up = abs(self.most[i, j]) >= abs(self.least[i, j])
            found.append(
                {
                    "output": i,
                    "input": j,
                    "name": self.names[j],
                    "slope": float((self.most if up else self.least)[i, j]),
                    "exact": bool(self.exact[i, j]),
                    "point": self.points[(self.at_most if up else self.at_least)[i, j]].tolist(),
                }
            )
        return found

    def plot(self, ax: Axes | None = None) -> Figure:
        """A heat map of the largest absolute slope of every output in every input."""
        wide, high = 1.5 + 0.5 * len(self.names), 1.5 + 0.4 * len(self.lower)
        figure, axes = new_axes(ax, figsize=(wide, high))
        size = np.maximum(np.abs(self.lower), np.abs(self.upper))
        image = axes.imshow(size, aspect="auto", cmap="viridis")
        axes.set_xticks(range(len(self.names)), self.names, rotation=45, ha="right")
        axes.set_yticks(range(len(size)))
        axes.set_xlabel("input")
        axes.set_ylabel("output")
        if size.size <= 200:
            for i, j in np.ndindex(*size.shape):
                sign = {"increasing": "+", "decreasing": "-", "unused": "0"}
                axes.text(j, i, sign.get(str(self.direction[i, j]), ""), ha="center", color="white")
        figure.colorbar(image, ax=axes, label="largest |slope|")
        return figure

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return {
            "schema": "relunorm.sensitivity/1",
            **entries(self, "names lower upper least most exact direction"),
            "steepest": self.steepest(),
            **entries(self, "complete seconds of"),
        }

    def __repr__(self) -> str:
        return (
            f"Sensitivity({self.lower.shape[0]} outputs, {self.lower.shape[1]} inputs, "
            f"{int(self.exact.sum())} of {self.exact.size} intervals exact{of_words(self.of)})"
        )


@accepts("model", domains=("domain",))
def sensitivity(
    model: Model,
    domain: Place,
    time_limit: float | Clock | None = 60.0,
    random_state: int = 0,
    progress: Listener | None = None,
    names: tuple[str, ...] | None = None,
) -> Sensitivity:
    """The range of every partial derivative d f_i / d x_j over a domain.

    A piecewise affine network has one Jacobian in every region. Intervals of slopes bound them all
    (`jacobian_interval`); points of the domain show what is attained; for what lies between, a
    search of the regions, one output and input at a time, closes the gap: exact where it ends.

    Args:
        model: a `Network`, or anything `load` reads; relu or leaky units.
        domain: a box, a ball or a polytope; on a clipped ball (`NormBall`) the intervals are sound,
            and may be wider than what is attained.
        time_limit: wall seconds; None for no limit.
        random_state: seed of the points.
        progress: called with a `Progress`.
        names: of the inputs; x0, x1, ... by default.

    An interrupt (Ctrl-C) ends the work and keeps the bounds found by then, without a proof.

    >>> from relunorm import Box
    >>> net = Network.from_weights([[[1.0, 0.0], [-1.0, 0.0]], [[1.0, 2.0]]])  # -2 x, then x
    >>> found = sensitivity(net, Box.cube(2))
    >>> found.least.tolist(), found.most.tolist(), found.direction.tolist()
    ([[-2.0, 0.0]], [[1.0, 0.0]], [['', 'unused']])
    """
    network: Network = model
    network.check_continuous("they have no slope")
    if not (domain.bounding_box.halfwidth > 0).any():
        raise InvalidDomainError("the domain is a single point, where nothing varies")
    if names is None:
        names = tuple(f"x{j}" for j in range(network.input_size))
    if len(names) != network.input_size:
        raise InvalidInputError(f"{len(names)} names for {network.input_size} inputs")
    random_state = whole_number("random_state", random_state, 0)
    clock = Clock(time_limit)
    tell = Teller(progress, clock)
    with np.errstate(over="ignore", invalid="ignore"):
        search = _Search(network, domain, clock, random_state)
        try:
            tell("sampling")
            search.sample()
            search.close(tell)
        except KeyboardInterrupt:  # bounds hold; what would prove them was being written
            search.whole = False
        return search.result(tuple(str(name) for name in names))


class _Search:
    """What is proved and what is attained, over the coordinates that vary."""

    def __init__(self, network: Network, domain: Domain, clock: Clock, random_state: int):
        self.original, self.domain, self.clock = network, domain, clock
        self.rng = np.random.default_rng(random_state)
        part = clock.part(share=0.2)
        self.setting = Setting.of(network, domain, part)
        self.whole = not part.expired()  # else a proof could not fold the same units
        self.local = self.setting.local
        self.network = self.local.network
        place = self.setting.domain
        assert place is not None
        self.place: Domain = place
        low, high = self.setting.intervals
        self.low, self.high = low.copy(), high.copy()
        shape = low.shape
        self.least, self.most = np.full(shape, np.inf), np.full(shape, -np.inf)
        self.points: list[Vector] = []
        self.at_least = np.zeros(shape, dtype=np.intp)
        self.at_most = np.zeros(shape, dtype=np.intp)
        self.searched = np.zeros((2, *shape), dtype=bool)
        self.passes = np.zeros((2, *shape), dtype=int)
        self.searches: dict[tuple[int, int, int], Slopes] = {}
        self.climbs: dict[tuple[int, int, int], Climb] = {}
        self.tapes: dict[tuple[int, int, int], tuple[float, Tape]] = {}

    def offer(self, points: Array) -> None:
        """Keep what the Jacobians inside regions show."""
        points = points[~near_kink(self.network, points, self.place)]
        if not len(points):
            return
        jacobians = self.network.jacobian(points)
        for values, kept, at, sign in (
            (jacobians, self.most, self.at_most, 1.0),
            (-jacobians, self.least, self.at_least, -1.0),
        ):
            top = values.argmax(axis=0)
            best = np.take_along_axis(values, top[None], axis=0)[0]
            better = best > sign * kept
            kept[better] = sign * best[better]
            for i in np.unique(top[better]).tolist():
                self.points.append(self.local.lift(points[i]))
                at[better & (top == i)] = len(self.points) - 1

    def sample(self) -> None:
        """Random points, then points that differ from the best in a few coordinates."""
        entries = self.network.input_size * max(self.network.output_size, *self.network.widths)
        count = int(np.clip((1 << 22) // entries, 16, SAMPLES))
        for round_ in range(8):
            points = self.place.sample(count, self.rng)
            if round_ and self.points:
                kept = np.array(self.points)[:, self.local.free]
                base = kept[self.rng.integers(len(kept), size=count)]
                fresh = self.rng.random(points.shape) < self.rng.uniform(0.05, 0.5, (count, 1))
                mixed = np.where(fresh, points, base)
                points = np.where(self.place.contains(mixed)[:, None], mixed, base)
            self.offer(points)
            if self.clock.expired():
                return

    @property
    def scale(self) -> Array:
        """The largest slope of every output, (outputs, 1)."""
        return np.maximum(np.abs(self.low), np.abs(self.high)).max(axis=1, keepdims=True)

    def open_ends(self) -> list[tuple[int, int, int]]:
        """Ends (side, output, input) that are not settled, the widest gap first."""
        gaps = np.array([self.least - self.low, self.high - self.most])
        unsettled = (gaps > EXACT * np.maximum(self.scale, 1e-300)) & ~self.searched
        order = np.argwhere(unsettled)
        return [tuple(int(k) for k in at) for at in order[np.argsort(-gaps[unsettled])]]  # type: ignore[misc]

    def close(self, tell: Teller) -> None:
        """Search the regions for every open end."""
        network = self.network
        ends = self.open_ends()
        if not ends or network.input_size > MOST_INPUTS or network.units > MOST_UNITS:
            return
        compile_kernels(tell)
        total = len(ends)
        # in turns, so that none waits for one that takes long, if all fit into memory
        keep = self.clock.limited and network.units * network.input_size * total <= MOST_KEPT
        while ends and not self.clock.expired():
            for done, (side, i, j) in enumerate(ends):
                if self.clock.expired():
                    break
                tell("searching", total - len(ends) + done, total)
                turn = TURN if keep else math.inf
                part = self.clock.part(seconds=turn, share=1 / (len(ends) - done))
                self._close((side, i, j), part)
                if not keep:
                    self._keep_all()
            left = self.open_ends()
            ends = left if keep or (self.clock.limited and len(left) < len(ends)) else []
        self._keep_all()

    def _keep_all(self) -> None:
        for end in list(self.searches):
            self._keep(end)

    def _keep(self, end: tuple[int, int, int]) -> None:
        """Keep the proof of a search, unless an earlier one proves more, and let the search go."""
        search = self.searches.pop(end)
        if end not in self.tapes or search.bound < self.tapes[end][0]:
            self.tapes[end] = search.bound, search.proof()

    def _close(self, end: tuple[int, int, int], clock: Clock) -> None:
        """Bound d f_i / d x_j, or its negative, by searches for ever less than is proved."""
        side, i, j = end
        while not (self.searched[end] or clock.expired()):
            if end not in self.searches:
                self.searches[end] = self._new_search(end, clock)
            search = self.searches[end]
            search.run(self._seen(end), clock)
            top = self.setting.entry_bound(i, j, search.bound)
            if side:
                self.high[i, j] = min(self.high[i, j], top)
            else:
                self.low[i, j] = max(self.low[i, j], -top)
            self.searched[end] = search.finished and search.bound > search.target
            if search.finished:
                self._keep(end)

    def _new_search(self, end: tuple[int, int, int], clock: Clock) -> Slopes:
        """For more than lies halfway between what was seen and what is proved, then for all."""
        side, i, j = end
        setting, goal = self.setting, (i, j, 1.0 if side else -1.0)
        window = setting.windows[0]
        if end not in self.climbs:
            self.climbs[end] = Climb(window, goal, setting.margin)
        climb = self.climbs[end]
        before = self.tapes[end][1].bytes if end in self.tapes else 0
        self._climb(climb, end, min(KICKS, before // BYTES), clock)
        self.passes[end] += 1
        rate, best = float(window.rates[j]), self._seen(end)
        top = float(self.high[i, j] if side else -self.low[i, j]) / rate
        reach = float(max(abs(self.low[i, j]), abs(self.high[i, j]))) / rate
        target = best + HALFWAY * (top - best)
        if self.passes[end] > PASSES or not NEAR * reach < top - best < math.inf:
            target = -math.inf

        def check(x: Vector) -> float:
            if self._offer_one(x):
                self._climb(climb, end, 0, clock)
            return self._seen(end)

        return Slopes(window, goal, setting.margin, reach, setting.contacts, check, target=target)

    def _seen(self, end: tuple[int, int, int]) -> float:
        """The largest slope seen, in the window."""
        side, i, j = end
        seen = self.most[i, j] if side else -self.least[i, j]
        return float(seen) / float(self.setting.windows[0].rates[j])

    def _offer_one(self, x: Vector) -> bool:
        """Offer a point if it lies in the domain."""
        x = self.place.project(x) if self.place.as_box is not None else x
        inside = bool(self.place.contains(x)[0])
        if inside:
            self.offer(x[None])
        return inside

    def _climb(self, climb: Climb, end: tuple[int, int, int], kicks: int, clock: Clock) -> None:
        """Up from the steepest point seen, then from points around it."""
        side, i, j = end
        half = self.place.bounding_box.halfwidth
        for kick in range(kicks + 1):
            at = (self.at_most if side else self.at_least)[i, j]
            if clock.expired() or not np.isfinite(self._seen(end)):
                return
            start = self.points[at][self.local.free]
            if kick:
                start = start + KICK * half * self.rng.standard_normal(len(half))
            top = climb(start, clock)
            if top is not None:
                self._offer_one(top)

    def certificate(self) -> SlopeProof | None:
        """The proof of every end."""
        if not self.whole:
            return None
        claims = []
        for side, i, j in np.ndindex(2, *self.low.shape):
            upper = float(self.high[i, j] if side else -self.low[i, j])
            goal = (i, int(self.local.free[j]), 1.0 if side else -1.0)
            if math.isfinite(upper):
                claims.append(Claim(goal, upper, self.tapes.get((side, i, j), (0.0,))[1:]))
        duals = self.setting.box_duals
        return SlopeProof(self.original.digest, self.domain, tuple(claims), duals)

    def result(self, names: tuple[str, ...]) -> Sensitivity:
        """Everything in the coordinates of the network as it was given."""
        shape = (self.original.output_size, self.original.input_size)
        free = self.local.free

        def whole(values: NDArray[Any], fill: Any) -> NDArray[Any]:
            full = np.full(shape, fill, dtype=values.dtype)
            full[:, free] = values
            return full

        seen = self.least <= self.most
        low, high = self.low, self.high
        gap = np.maximum(self.least - low, high - self.most)
        exact = seen & (gap <= EXACT * np.maximum(self.scale, 1e-300))
        settled = exact | self.searched.all(axis=0)
        points = np.array(self.points) if self.points else np.array([self.domain.center])
        return Sensitivity(
            whole(low, -np.inf),
            whole(high, np.inf),
            whole(np.where(seen, self.least, np.nan), np.nan),
            whole(np.where(seen, self.most, np.nan), np.nan),
            whole(exact, False),
            points,
            whole(self.at_least, 0),
            whole(self.at_most, 0),
            bool(settled.all()),
            self.clock.elapsed(),
            names,
            self.original.head.of,
            self.certificate(),
        )
