"""A smaller case with the same kind of wrong answer: fewer units, zeros, rounder numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from fuzzing.copies import _built, _dense
from fuzzing.outcome import Case
from relunorm import Network


def shrunk(case: Case, fails: Callable[[Case], bool], tries: int = 400) -> Case:
    """Greedy: the first smaller case that still fails, again and again."""
    again = True
    while again and tries > 0:
        again = False
        for smaller in _smaller(case):
            tries -= 1
            if tries < 0:
                break
            if fails(smaller):
                case, again = smaller, True
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    for i, network in enumerate(case.networks):
        for other in _simpler(network):
            networks = (*case.networks[:i], other, *case.networks[i + 1 :])
            yield replace(case, networks=networks)


def _simpler(network: Network) -> Iterator[Network]:
    for k, layer in enumerate(network.layers):
        for unit in range(layer.width if layer.width > 1 else 0):
            yield _without(network, k, unit)
    terms, biases = _dense(network)
    for arrays in [*(list(t.values()) for t in terms), *([b] for b in biases)]:
        for array in arrays:
            flat = array.reshape(-1)
            for i, value in enumerate(flat.copy()):
                for simple in (0.0, 1.0, -1.0, _round(value, 1), _round(value, 3)):
                    if value and simple != value and (simple == 0 or value not in (1.0, -1.0)):
                        flat[i] = simple
                        yield _built(network, terms, biases)
                        flat[i] = value


def _round(value: float, digits: int) -> float:
    return float(f"{value:.{digits - 1}e}")


def _without(network: Network, layer: int, unit: int) -> Network:
    terms, biases = _dense(network)
    terms[layer] = {k: np.delete(m, unit, axis=0) for k, m in terms[layer].items()}
    biases[layer] = np.delete(biases[layer], unit)
    for later in terms[layer + 1 :]:
        if layer + 1 in later:
            later[layer + 1] = np.delete(later[layer + 1], unit, axis=1)
    return _built(network, terms, biases)
