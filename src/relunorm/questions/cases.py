"""The assertions of a property file as questions to the search: domains, and goals on each.

Alternatives with the same constraints on inputs become one question. A constraint that mixes inputs
and outputs is one on the outputs of a network that also hands out the inputs it speaks of.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from relunorm.bounds.problem import Group
from relunorm.domain import Box, Domain, Polytope
from relunorm.errors import InvalidDomainError, PropertyFileError
from relunorm.matrix import dense
from relunorm.network import Affine, Network
from relunorm.questions.vnnlib import LARGEST, Assertions, Linear


@dataclass(frozen=True, eq=False)
class Case:
    """Is there an x of the domain with A f(x) <= b for one of the groups (A, b)?

    Args:
        domain, groups: with every ``<`` read as ``<=``; a proof that nothing is found holds for
            the file too.
        inner: the same with every ``<`` moved inward by one float, so that what is found satisfies
            the file; None where nothing is strict.
    """

    domain: Domain
    groups: tuple[Group, ...]
    inner: Case | None = None


#: An atom, and whether ``<`` is to be moved inward.
Read = tuple[Linear, bool]


class _Side:
    """One alternative: bounds of the inputs with their lines, rows over inputs, other atoms."""

    def __init__(self, size: int):
        self.lo, self.hi = np.full(size, -np.inf), np.full(size, np.inf)
        self.lines: dict[tuple[int, bool], int] = {}
        self.open: set[tuple[int, bool]] = set()  # ends that are not reached
        self.rows: list[Read] = []
        self.outputs: list[Read] = []
        self.possible = True

    def with_atoms(self, atoms: tuple[Linear, ...], inward: bool) -> _Side:
        """A copy with further atoms."""
        other = _Side(len(self.lo))
        other.lo, other.hi, other.lines = self.lo.copy(), self.hi.copy(), dict(self.lines)
        other.rows, other.outputs = list(self.rows), list(self.outputs)
        other.open = set(self.open)
        other.possible = self.possible
        for atom in atoms:
            kinds = {kind for kind, _ in atom.weights}
            if not kinds:
                holds = atom.constant < 0 or (atom.constant == 0 and not atom.strict)
                other.possible &= holds
            elif "Y" in kinds:
                other.outputs.append((atom, inward))
            elif len(atom.weights) > 1:
                other.rows.append((atom, inward))
            else:
                other.bound(atom, inward)
        return other

    def bound(self, atom: Linear, inward: bool) -> None:
        """Take over a constraint on one input."""
        (((_, number), weight),) = atom.weights.items()
        limit, top = -atom.constant / weight, weight > 0
        sign = 1.0 if top else -1.0
        end = sign * _end(limit if top else -limit, atom.strict and inward)
        ends = self.hi if top else self.lo
        if sign * end > sign * ends[number]:
            return
        excluded = atom.strict and not inward  # inward, the end is one that is reached
        if end != ends[number]:
            self.open.discard((number, top))
        elif not excluded:
            return
        ends[number] = end
        self.lines[number, top] = atom.line
        if excluded:
            self.open.add((number, top))

    def crossed(self) -> int | None:
        """A coordinate whose bounds contradict each other."""
        found = np.flatnonzero(self.lo > self.hi).tolist()
        found += [i for i, _ in sorted(self.open) if self.lo[i] == self.hi[i]]
        return found[0] if found else None

    def key(self) -> tuple[object, ...]:
        """What the domain depends on."""
        rows = [(*a.weights.items(), a.constant, a.strict and inward) for a, inward in self.rows]
        return (self.lo.tobytes(), self.hi.tobytes(), *rows)

    def domain(self) -> Domain | None:
        """The box or polytope; None for a polytope that a solver calls empty."""
        if not self.rows:
            return Box(self.lo, self.hi)
        size = len(self.lo)
        own = np.eye(size)
        A = [*own[np.isfinite(self.hi)], *-own[np.isfinite(self.lo)]]
        b = [*self.hi[np.isfinite(self.hi)], *-self.lo[np.isfinite(self.lo)]]
        for atom, inward in self.rows:
            row = np.zeros(size)
            for (_, number), weight in atom.weights.items():
                row[number] = float(weight)
            A.append(row)
            b.append(_end(-atom.constant, atom.strict and inward))
        try:
            return Polytope(np.array(A), np.array(b))
        except InvalidDomainError as error:
            if "is empty" in str(error):
                return None
            raise


def _end(limit: Fraction, inward: bool) -> float:
    """An upper end as a float, one less if it must not be reached; infinite if too large."""
    end = float(limit) if abs(limit) <= LARGEST else math.copysign(math.inf, limit)
    return float(np.nextafter(end, -np.inf)) if inward else end


def make_cases(assertions: Assertions, network: Network) -> tuple[Network, list[Case]]:
    """The network, with some inputs as further outputs where a constraint needs them, and what to
    ask of it: nothing if bounds or constants rule every alternative out."""
    _check_sizes(assertions, network)
    atoms = [*assertions.common, *(a for part in assertions.alternatives for a in part)]
    readings = (False, True) if any(atom.strict for atom in atoms) else (False,)
    bases = [_Side(assertions.inputs).with_atoms(assertions.common, r) for r in readings]
    together: dict[object, list[list[_Side]]] = {}
    contradiction = None
    for part in assertions.alternatives:
        sides = [base.with_atoms(part, r) for base, r in zip(bases, readings, strict=True)]
        crossed = sides[0].crossed()
        if crossed is not None and contradiction is None:
            contradiction = _contradiction(assertions, sides[0], crossed)
        if crossed is None and sides[0].possible:
            _check_bounded(assertions, sides[0])
            together.setdefault(tuple(side.key() for side in sides), []).append(sides)
    if not together and contradiction is not None:
        raise contradiction
    places = [(_place(assertions, alike), alike) for alike in together.values()]
    both = [side for _, alike in places for sides in alike for side in sides]
    read = {name for side in both for atom, _ in side.outputs for name in atom.weights}
    mixed = sorted(number for kind, number in read if kind == "X")
    cases = [_case(place, alike, network.output_size, mixed) for place, alike in places]
    return _with_inputs(network, mixed), cases


def _place(assertions: Assertions, alike: list[list[_Side]]) -> list[Domain | None]:
    """The domain in each reading.

    A polytope that a solver calls empty becomes the box around it, and its rows become constraints
    for the search, which proves what the solver only says.
    """
    domains = [side.domain() if side.crossed() is None else None for side in alike[0]]
    if domains[0] is None:
        for sides in alike:
            for side in sides:
                side.outputs += side.rows
                side.rows = []
            _check_bounded(assertions, sides[0])
        domains = [side.domain() if side.crossed() is None else None for side in alike[0]]
    return domains


def _case(
    place: list[Domain | None], alike: list[list[_Side]], outputs: int, mixed: list[int]
) -> Case:
    """One question from alternatives with the same domain."""
    readings: list[Case | None] = []
    for number, domain in enumerate(place):
        groups = tuple(_group(sides[number].outputs, outputs, mixed) for sides in alike)
        readings.append(None if domain is None else Case(domain, groups))
    closed = readings[0]
    assert closed is not None
    if len(readings) == 1:
        return closed
    inner = readings[1] or Case(closed.domain, ())  # between the bounds there is no float
    return Case(closed.domain, closed.groups, inner)


def _group(atoms: list[Read], outputs: int, mixed: list[int]) -> Group:
    """Rows A, b of atoms on the outputs and on the inputs that are handed out."""
    if not atoms:  # every input of the domain will do
        return np.zeros((1, outputs + len(mixed))), np.zeros(1)
    A, b = np.zeros((len(atoms), outputs + len(mixed))), np.zeros(len(atoms))
    for row, (atom, inward) in enumerate(atoms):
        for (kind, number), weight in atom.weights.items():
            A[row, number if kind == "Y" else outputs + mixed.index(number)] = float(weight)
        b[row] = _end(-atom.constant, atom.strict and inward)
    return A, b


def _with_inputs(network: Network, coordinates: list[int]) -> Network:
    """The network with some of its inputs as further outputs."""
    if not coordinates:
        return network
    count, more = network.output_size, len(coordinates)
    terms = {
        source: np.vstack([dense(matrix), np.zeros((more, matrix.shape[1]))])
        for source, matrix in network.output.terms.items()
    }
    own = terms.get(0, np.zeros((count + more, network.input_size))).copy()
    own[np.arange(count, count + more), coordinates] = 1.0
    terms[0] = own
    bias = np.concatenate([network.output.bias, np.zeros(more)])
    return network.replace(output=Affine(terms, bias))


def _check_sizes(assertions: Assertions, network: Network) -> None:
    declared = (assertions.inputs, assertions.outputs)
    if declared != (network.input_size, network.output_size):
        raise PropertyFileError(
            f"{assertions.name}, line {assertions.line}: the property speaks of {declared[0]} "
            f"inputs and {declared[1]} outputs, the network has {network.input_size} and "
            f"{network.output_size}"
        )


def _check_bounded(assertions: Assertions, side: _Side) -> None:
    if side.rows:
        return  # a polytope is checked where it is made
    for ends, which in ((side.lo, "lower"), (side.hi, "upper")):
        open_ = np.flatnonzero(~np.isfinite(ends))
        if len(open_):
            raise PropertyFileError(
                f"{assertions.name}, line {assertions.line}: input {open_[0]} has no {which} "
                "bound; every input needs both"
            )


def _contradiction(assertions: Assertions, side: _Side, at: int) -> PropertyFileError:
    low, high = side.lines[at, False], side.lines[at, True]
    least = "above" if (at, False) in side.open else "at least"
    most = "below" if (at, True) in side.open else "at most"
    return PropertyFileError(
        f"{assertions.name}, line {max(low, high)}: input {at} has to be {least} "
        f"{side.lo[at]:g} (line {low}) and {most} {side.hi[at]:g} (line {high})"
    )
