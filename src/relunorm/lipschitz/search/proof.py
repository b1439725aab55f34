"""Proofs about slopes: what a search wrote down, replayed without a solver and without a search.

A claim is an upper bound on a partial derivative, on its negative, or on a norm of the Jacobian.
Its tape tells how nodes are split and what holds on them (`slopes`); a replay computes forms, walls
and bounds again and takes multipliers as they are, with all rounding outward. Sides of units that a
cell only touches are excluded in rational arithmetic.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar, TextIO

import numpy as np

from relunorm.arithmetic.floats import scaled_up
from relunorm.clock import compiling
from relunorm.compiled.jit import kernel, kernel_part
from relunorm.domain import Box, Domain
from relunorm.domain.documents import domain_to_dict, reach_from_dict
from relunorm.domain.reach import reach_of
from relunorm.lipschitz.norms import NORMS
from relunorm.lipschitz.search.cells import (
    COUNT,
    FORMS,
    LOW,
    NEED,
    NO_MARK,
    NOTHING,
    OUTPUT,
    REACH,
    SHUT,
    SPLIT,
    TOUCH,
    WALLS,
    aim,
    dual_bound,
    keep,
    new_nodes,
    steepness,
    walls,
)
from relunorm.lipschitz.search.setting import Setting
from relunorm.lipschitz.search.signs import tighten
from relunorm.lipschitz.search.slopes import is_empty, new_place
from relunorm.lipschitz.search.splits import halve, is_low
from relunorm.lipschitz.search.windows import Window
from relunorm.matrix import Array
from relunorm.network import Network
from relunorm.regions.balance import to_size
from relunorm.search.proofs.document import Document, decoded, encoded, finite
from relunorm.search.proofs.replay import Replayed
from relunorm.search.proofs.tape import Tape

CLAIM_KEYS = {"goal", "upper", "tapes"}

# What `_replay` says: the piece is read, a side is touched, or why it fails.
READ, ASKED, DAMAGED, NOT_FORMED, POSSIBLE, DECIDED, TOUCHED, STEEP, UNFINISHED = range(9)
REASONS = {
    DAMAGED: "the tape is damaged",
    NOT_FORMED: "a node is used before its forms are made",
    POSSIBLE: "a cell that the proof calls empty is not",
    DECIDED: "a sign is decided twice",
    TOUCHED: "a side that the proof calls empty is not, in rational arithmetic",
    STEEP: "a node may be steeper than the proof says",
    UNFINISHED: "a part is neither closed nor split",
}


class _Refused(ValueError):
    """Why a proof does not hold."""


@dataclass(frozen=True, eq=False)
class Claim:
    """An upper bound on slopes.

    Args:
        goal: output, input and sign, for a partial derivative or its negative; or a norm.
        upper: the bound, on the network as it was given.
        tapes: of a norm, one for every window of every part of the domain; of a derivative one, or
            none where intervals of slopes are enough.
    """

    goal: tuple[int, int, float] | float
    upper: float
    tapes: tuple[Tape, ...]


@dataclass(frozen=True, eq=False)
class SlopeProof(Document):
    """That slopes of a network are nowhere on a domain above what is claimed.

    Args:
        digest: of the network.
        domain: a box, a ball or a polytope; None for the whole space.
        claims: what is proved.
        box_duals: multipliers that prove the box around a polytope.
    """

    SCHEMA: ClassVar[str] = "relunorm.slopes/4"
    KEYS: ClassVar[frozenset[str]] = frozenset(("network", "domain", "claims"))

    digest: str
    domain: Domain | None
    claims: tuple[Claim, ...]
    box_duals: Array | None = None

    def verify(self, network: Network) -> Replayed:
        """Compute every bound again, from the network and the tapes alone."""
        if network.digest != self.digest:
            return Replayed(False, np.inf, 0, "the proof is about another network")
        compiling("the replay of slopes")
        top, nodes = -np.inf, 0
        for claim in self.claims:
            try:
                if isinstance(claim.goal, tuple):
                    upper, count = self._entry(network, claim.goal, claim.tapes)
                else:
                    upper, count = self._norm(network, claim.goal, claim.tapes)
            except _Refused as refused:
                return Replayed(False, np.inf, nodes, str(refused))
            top, nodes = max(top, upper), nodes + count
            if not upper <= claim.upper:
                return Replayed(False, top, nodes, "a bound on a slope is above what is claimed")
        return Replayed(True, top, nodes, "")

    def _norm(self, network: Network, norm: float, tapes: tuple[Tape, ...]) -> tuple[float, int]:
        """The bound on a norm that tapes prove, and how many nodes they close."""
        small, exponent = to_size(network)
        parts = Setting.of(small, self.domain, box_duals=self.box_duals).parts(self.domain)
        windows = [(part, window) for part in parts for window in part.windows]
        if len(windows) != len(tapes):
            raise _Refused("there is not one tape for every window")
        upper, nodes = 0.0, 0
        for (part, window), tape in zip(windows, tapes, strict=True):
            bound, count = replay(part, window, norm, tape)
            upper, nodes = max(upper, part.norm_bound(norm, bound, replayed=True)), nodes + count
        return scaled_up(upper, exponent), nodes

    def _entry(
        self, network: Network, goal: tuple[int, int, float], tapes: tuple[Tape, ...]
    ) -> tuple[float, int]:
        """The bound on an entry, or on its negative."""
        setting = self._setting(network)
        output, column, sign = goal
        place = np.flatnonzero(setting.local.free == column)
        if not (0 <= output < network.output_size and len(place) and abs(sign) == 1.0):
            raise _Refused("a claim speaks of an entry that does not exist or does not vary")
        if len(tapes) > 1:
            raise _Refused("a claim has more than one tape")
        axis = int(place[0])
        low, high = setting.intervals
        upper, nodes = float(high[output, axis] if sign > 0 else -low[output, axis]), 0
        for tape in tapes:
            bound, nodes = replay(setting, setting.windows[0], (output, axis, sign), tape)
            upper = min(upper, setting.entry_bound(output, axis, bound, replayed=True))
        return upper, nodes

    def _setting(self, network: Network) -> Setting:
        """Of all claims about entries."""
        if "setting" not in self.__dict__:
            duals = self.box_duals
            self.__dict__["setting"] = Setting.of(network, self.domain, box_duals=duals)
        return self.__dict__["setting"]

    def write(self, file: TextIO) -> None:
        """See `Document`."""
        file.write(json.dumps(self.to_dict()) + "\n")

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        where = None if self.domain is None else reach_of(self.domain, self.box_duals)
        domain = None if where is None else domain_to_dict(where)
        claims = [
            {
                "goal": list(claim.goal) if isinstance(claim.goal, tuple) else str(claim.goal),
                "upper": claim.upper,
                "tapes": [list(encoded(tape)) for tape in claim.tapes],
            }
            for claim in self.claims
        ]
        return {"schema": self.SCHEMA, "network": self.digest, "domain": domain, "claims": claims}

    @classmethod
    def read(cls, document: dict[str, Any]) -> SlopeProof:
        """See `Document`."""
        where = document["domain"]
        reach = None if where is None else reach_from_dict(where)
        claims = tuple(_claim(claim) for claim in document["claims"])
        if reach is None:
            return cls(str(document["network"]), None, claims)
        return cls(str(document["network"]), reach.domain, claims, reach.box_duals)


def _claim(document: dict[str, Any]) -> Claim:
    if set(document) != CLAIM_KEYS:
        raise ValueError("a claim has keys too many or too few")
    goal, upper = document["goal"], finite(document["upper"])
    known: tuple[int, int, float] | float
    if isinstance(goal, str):
        if goal not in map(str, NORMS.values()):
            raise ValueError(f"the norm {goal} is not known")
        known = float(goal)
    else:
        output, column, sign = goal
        if not (isinstance(output, int) and isinstance(column, int)):
            raise ValueError("a claim speaks of an entry that does not exist")
        known = (output, column, float(sign))
    return Claim(known, upper, tuple(decoded(tape) for tape in document["tapes"]))


def compile_kernels() -> None:
    """Compile the replay (or load it from the cache)."""
    network, tape = Network.from_weights([[[1.0]], [[1.0]]]), Tape()
    setting = Setting.of(network, Box.cube(1))
    tape.write(np.array([SHUT, NO_MARK], np.float32).view(float))
    replay(setting, setting.windows[0], (0, 0, 1.0), tape)


def replay(
    setting: Setting, window: Window, goal: tuple[int, int, float] | float, tape: Tape
) -> tuple[float, int]:
    """The bound that a tape proves, in the window, and how many nodes were closed."""
    contacts = setting.contacts
    window = contacts.seen_through(window)
    nodes, place = new_nodes(window), new_place(window, goal, setting.margin)
    # position, whether the top node has its forms, nodes closed, unit and side asked about
    at, top = np.zeros(5, np.int64), np.full(1, -np.inf)
    for pairs in tape:
        piece = pairs.view(np.float32).astype(np.float64)
        if not np.isfinite(piece).all():
            raise _Refused(REASONS[DAMAGED])
        at[0], code = 0, ASKED
        while code == ASKED:
            code = _replay(window.net, nodes, place, piece, at, top)
            if code == ASKED:
                unit, side, basis = int(at[3]), int(at[4]), nodes.work.basis.tolist()
                if not is_empty(contacts, window, nodes, unit, side, basis):
                    raise _Refused(REASONS[TOUCHED])
                _exclude(nodes, at, unit, side)
        if code != READ:
            raise _Refused(REASONS[code])
    if nodes.whole[COUNT]:
        raise _Refused(REASONS[UNFINISHED])
    return float(top[0]), int(at[2])


def _exclude(nodes: Any, at: Any, unit: int, side: int) -> None:
    here = int(nodes.whole[COUNT]) - 1
    if nodes.bits[here, unit] == side:
        nodes.whole[COUNT] -= 1
        at[1] = 0
        at[2] += 1
    else:
        nodes.bits[here, unit] = 1 - side


@kernel_part
def _whole(value, end):  # type: ignore[no-untyped-def]
    """A number of the tape as an integer from 0 to below ``end``; -1 if it is not one."""
    if not (0.0 <= value < end) or value != np.floor(value):
        return -1
    return np.int64(value)


@kernel_part
def _raise(top, value):  # type: ignore[no-untyped-def]
    """The largest bound used; what is not a number is none."""
    if not value <= top[0]:
        top[0] = value if value > top[0] else np.inf


@kernel_part
def _load(nodes, tape, at):  # type: ignore[no-untyped-def]
    """Take multipliers from the tape; how many, or -1 if they are none."""
    if at[0] >= len(tape):
        return -1
    count = _whole(tape[at[0]], float(len(nodes.picks) + 1))
    if count < 0 or at[0] + 1 + 2 * count > len(tape):
        return -1
    for p in range(count):
        row = _whole(tape[at[0] + 1 + p], float(nodes.whole[WALLS]))
        weight = tape[at[0] + 1 + count + p]
        if row < 0 or not weight >= 0.0:
            return -1
        nodes.picks[p], nodes.weights[p] = row, weight
    at[0] += 1 + 2 * count
    return count


@kernel
def _replay(net, nodes, place, tape, at, top):  # type: ignore[no-untyped-def]
    """Read a piece on: READ, ASKED, or why it fails."""
    d, units, whole = net.shape[0], net.shape[2], nodes.whole
    while at[0] < len(tape):
        mark = tape[at[0]]
        at[0] += 1
        if mark == NO_MARK:
            continue
        here = whole[COUNT] - 1
        if here < 0:
            return DAMAGED
        bits, low, high = nodes.bits[here], nodes.low[here], nodes.high[here]
        if mark == FORMS:
            at[1] = 1
            if not walls(net, nodes, place):
                whole[COUNT], at[1], at[2] = here, 0, at[2] + 1
            else:
                keep(nodes, here, steepness(net, bits, nodes, place))
            continue
        if mark == SHUT:
            if at[1]:
                keep(nodes, here, steepness(net, bits, nodes, place))
            _raise(top, nodes.kept[here])
            whole[COUNT], at[1], at[2] = here, 0, at[2] + 1
            continue
        if not at[1]:
            return NOT_FORMED
        if mark == LOW:
            if at[0] >= len(tape) or place.goal[OUTPUT] < 0.0:
                return DAMAGED
            limit = tape[at[0]]
            at[0] += 1
            if not is_low(net, nodes, bits, place, limit):
                return STEEP
            _raise(top, limit)
            whole[COUNT], at[1], at[2] = here, 0, at[2] + 1
            continue
        if mark == NOTHING:
            count = _load(nodes, tape, at)
            if count < 0:
                return DAMAGED
            for k in range(d):
                nodes.goal[0, k] = 0.0
            if not dual_bound(nodes, place, 0.0, count) < 0.0:
                return POSSIBLE
            whole[COUNT], at[1], at[2] = here, 0, at[2] + 1
            continue
        if at[0] + 2 > len(tape):
            return DAMAGED
        unit, side = _whole(tape[at[0]], float(units)), _whole(tape[at[0] + 1], 2.0)
        at[0] += 2
        if unit < 0 or side < 0:
            return DAMAGED
        if bits[unit] >= 0 and mark != TOUCH:
            return DECIDED
        if mark == REACH:
            count = _load(nodes, tape, at)
            if count < 0:
                return DAMAGED
            constant = aim(net, nodes, unit, side) + place.margin * nodes.size[unit]
            tighten(bits, low, high, unit, side, dual_bound(nodes, place, constant, count))
        elif mark == NEED:
            bits[unit] = 1 - side
            _raise(top, steepness(net, bits, nodes, place))
            bits[unit] = side
        elif mark == SPLIT:
            halve(net, nodes, place, unit, side)
            at[1] = 0
        elif mark == TOUCH:
            if at[0] + d > len(tape) or bits[unit] == 1 - side:
                return DAMAGED
            for k in range(d):
                row = tape[at[0] + k]
                if row != np.floor(row) or not -2.0 * d <= row < whole[WALLS]:
                    return DAMAGED
                nodes.work.basis[k] = np.int64(row)
            at[0] += d
            at[3], at[4] = unit, side
            return ASKED
        else:
            return DAMAGED
    return READ
