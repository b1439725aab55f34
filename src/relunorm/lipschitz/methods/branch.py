"""Exact constants: the search for the steepest region (`slopes`), or a list of all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from relunorm.clock import Clock, Listener, Teller
from relunorm.domain import Domain
from relunorm.lipschitz.methods.points import at_point
from relunorm.lipschitz.norms import matrix_size, operator_norms, round_up
from relunorm.lipschitz.search.setting import Setting
from relunorm.lipschitz.search.slopes import Slopes, compile_kernels
from relunorm.lipschitz.search.windows import Window
from relunorm.matrix import Vector
from relunorm.search.proofs.tape import Tape

BRANCH, ENUMERATION = "branch and bound", "enumeration"

#: Seconds between two reports.
SLICE = 0.1


@dataclass(frozen=True)
class Found:
    """What a search gave.

    Args:
        lower, witness: the largest norm of a Jacobian that was seen, and where.
        upper: a bound on all of them, for the network as it was given.
        tapes: the proof of ``upper``, one for every window of every part of the domain; none where
            some were not begun.
    """

    lower: float
    witness: Vector
    upper: float
    finished: bool
    tapes: tuple[Tape, ...] = field(default=(), repr=False)


def branch_and_bound(
    setting: Setting,
    norm: float = 2.0,
    start: tuple[float, Vector] | None = None,
    time_limit: float | Clock | None = None,
    progress: Listener | None = None,
    domain: Domain | None = None,
    listed: bool = False,
) -> Found:
    """The Lipschitz constant, as an interval.

    Both ends agree to 1e-10 relative when it is finished, unless a region that no float lies in may
    be steeper than all others. Worst case exponential in the units that change sign.

    Args:
        domain: the domain of the setting with all coordinates, to search it part by part.
        listed: whether only regions count that no float lies in.
    """
    clock = Clock(time_limit)
    tell = Teller(progress, clock)
    compile_kernels(tell)
    network, where = setting.local.network, setting.domain
    best = [start if start is not None else (0.0, np.zeros(network.input_size))]

    def check(x: Vector) -> float:
        x = where.project(x) if where is not None and where.as_box is not None else x
        if not listed and (where is None or where.contains(x)[0]):
            value = at_point(network, x, norm, where)
            if value > best[-1][0]:
                best.append((value, x))
        return best[-1][0]

    upper, done, tapes = 0.0, True, []
    with clock.watch():  # those of all slices
        for part, window in _windows(setting.parts(domain, clock), clock):
            if window is None:
                return Found(*best[-1], np.inf, False)
            search = Slopes(window, norm, part.margin, 0.0, part.contacts, check, listed)
            while not (search.finished or clock.expired()):
                search.run(best[-1][0], clock.part(seconds=SLICE))
                bound = max(upper, search.bound)
                text = f"between {best[-1][0]:.6g} and {bound:.6g}"
                tell(text, at_once=False, lower=best[-1][0], upper=bound)
            upper = max(upper, part.norm_bound(norm, search.bound))
            done = done and search.finished
            tapes.append(search.proof())
    return Found(*best[-1], upper, done, tuple(tapes))


def _windows(parts: list[Setting], clock: Clock) -> Iterator[tuple[Setting, Window | None]]:
    """Every window of every part; None once the time is up."""
    for part in parts:
        for window in [None] if clock.expired() else part.windows:
            yield part, None if clock.expired() else window


def enumeration(
    setting: Setting, norm: float = 2.0, time_limit: float | Clock | None = None
) -> Found:
    """The Lipschitz constant, every region visited.

    Exact once finished, for a ball too; before that ``upper`` is infinite, and so it is where cells
    thinner than the tolerance were left out (`Regions.hidden`): their Jacobians are not known.
    Costs one visit and one norm per region (`regions`), and a branch and bound that looks for
    steeper regions in which no float lies.
    """
    from relunorm.regions.enumerate import regions

    clock = Clock(time_limit)
    network, domain = setting.local.network, setting.domain
    nothing = Found(0.0, np.zeros(network.input_size), np.inf, False)
    if clock.expired():  # the bounds before have used it up
        return nothing
    found = regions(network, domain, time_limit=clock)
    values = operator_norms(found.affine()[0], norm)
    if not len(values):
        return nothing
    top = int(np.argmax(values))
    witness = np.array(found.points[top])
    upper = round_up(float(values[top]), 64 * sum(network.widths))
    upper = round_up(upper + matrix_size(setting.error, norm), 2)
    lower = at_point(network, witness, norm, domain)
    if not found.complete or found.hidden:
        return Found(lower, witness, np.inf, found.complete)
    rest = branch_and_bound(setting, norm, (float(values[top]), witness), clock, listed=True)
    return Found(lower, witness, max(upper, rest.upper), rest.finished)
