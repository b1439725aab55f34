"""Exact constants by listing every region: the largest norm over all Jacobians."""

from __future__ import annotations

import numpy as np

from relunorm.clock import Clock
from relunorm.lipschitz.methods.branch import Found, branch_and_bound
from relunorm.lipschitz.methods.points import at_point
from relunorm.lipschitz.norms import matrix_size, operator_norms, round_up
from relunorm.lipschitz.search.setting import Setting

METHOD = "enumeration"


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
