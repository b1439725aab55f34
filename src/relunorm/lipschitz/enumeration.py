"""Exact constants by listing every region: the largest norm over all Jacobians."""

from __future__ import annotations

import numpy as np

from relunorm.clock import Clock, Teller
from relunorm.domain import Domain
from relunorm.lipschitz.branch import compile_kernels, is_complete
from relunorm.lipschitz.contacts import Contacts
from relunorm.lipschitz.norms import operator_norms, round_up
from relunorm.lipschitz.search import at_point
from relunorm.matrix import Vector
from relunorm.network import Network

METHOD = "enumeration"


def enumeration(
    network: Network,
    domain: Domain | None = None,
    norm: float = 2.0,
    time_limit: float | Clock | None = None,
    contacts: Contacts | None = None,
) -> tuple[float, Vector, float, bool]:
    """The Lipschitz constant as (lower, witness, upper, finished), every region visited.

    Exact once finished, for a ball too; before that ``upper`` is infinite, and so it is where cells
    thinner than the tolerance were left out (`Regions.hidden`): their Jacobians are not known.
    Costs one visit and one norm per region (`regions`), which in two dimensions are a million a
    second, and a branch and bound that finds no larger norm.

    Args:
        contacts: of the network that was folded; by default this one is as it was given.
    """
    from relunorm.regions.enumerate import regions

    clock = Clock(time_limit)
    compile_kernels(Teller(None, clock))
    if clock.expired():  # the bounds before have used it up
        return 0.0, np.zeros(network.input_size), np.inf, False
    found = regions(network, domain, time_limit=clock)
    values = operator_norms(found.affine()[0], norm)
    if not len(values):
        return 0.0, np.zeros(network.input_size), np.inf, False
    top = int(np.argmax(values))
    witness = np.array(found.points[top])
    upper = round_up(float(values[top]), 64 * sum(network.widths))
    lower = at_point(network, witness, norm, domain)
    sure = found.complete and not found.hidden
    if sure:
        contacts = contacts or Contacts.of(network, domain)
        sure = is_complete(network, domain, norm, float(values[top]), clock, contacts)
    return lower, witness, upper if sure else np.inf, found.complete
