"""Worlds in which a claim on seed 000 comes out otherwise."""

from __future__ import annotations

import numpy as np

from relunorm.network import Network
from relunorm.papers.rescaling.lemma import printed_construction, random_network, signed_form


def never(rng, width, inputs):
    """A network none of whose units reaches the output."""
    (w, v), (b, c) = random_network(rng, width, inputs).weights()
    return Network.from_weights([w, 0 * np.asarray(v)], [b, c])


def leaking(network):
    """Units with v = 0 get v' = 1."""
    (w, v), (b, c) = printed_construction(network).weights()
    return Network.from_weights([w, np.where(np.asarray(v) == 0, 1.0, v)], [b, c])


def by_the_square(network):
    """Rows multiplied by |v_i|^2."""
    (w, v), (b, c) = network.weights()
    size = np.asarray(v)[0] ** 2
    return Network.from_weights([size[:, None] * np.asarray(w), np.sign(v)], [size * b, c])


def moved(network):
    """Units with v = 0 get another row."""
    (w, v), (b, c) = printed_construction(network).weights()
    idle = np.asarray(v)[0] == 0
    return Network.from_weights([np.asarray(w) + idle[:, None], v], [b, c])


def doubled(network, copies=False):
    """Every unit twice, at half its size."""
    (w, v), (b, c) = signed_form(network).weights()
    return Network.from_weights([np.vstack([w, w]) / 2, np.hstack([v, v])], [np.r_[b, b] / 2, c])


def no_copies(network, copies=False):
    return signed_form(network)


def copy_per_output(network, copies=False):
    """One copy of every unit for every output, whatever the weights are."""
    if not copies:
        return signed_form(network)
    (w, v), (b, c) = (list(map(np.asarray, part)) for part in network.weights())
    sizes = np.abs(v).ravel()
    signs = np.kron(np.eye(len(v)), np.ones((1, len(b)))) * np.tile(np.sign(v), len(v))
    rows = sizes[:, None] * np.tile(w, (len(v), 1))
    return Network.from_weights([rows, signs], [sizes * np.tile(b, len(v)), c])


def half_columns(network, copies=False):
    """Columns of max-norm 1/2."""
    (w, v), (b, c) = (
        list(map(np.asarray, part)) for part in signed_form(network, copies).weights()
    )
    return Network.from_weights([w, v] if copies else [2 * w, v / 2], [b if copies else 2 * b, c])


FIRST = Network.from_weights(
    [[[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0], [0.0, 0.0]], [[1.0, 1.0, 1.0, 0.0]]]
)


def sorted_rows(network, box):
    """Rows scaled and sorted: equal only for networks whose units are the same."""
    (w, v), (b, c) = (list(map(np.asarray, part)) for part in signed_form(network).weights())
    order = np.lexsort(np.c_[w, b].T)
    return Network.from_weights([w[order], v[:, order]], [b[order], c])


PLANTED = {
    "Lemma 1, existence": (
        {"signed": lambda net, copies=False: printed_construction(net)},
        {"signed": doubled},
    ),
    "Lemma 1, construction": (
        {"printed": signed_form},
        {"multiplied": by_the_square},
        {"multiplied": lambda net: net},
    ),
    "Lemma 1, proof: units with v = 0": ({"printed": leaking}, {"printed": moved}),
    "Lemma 1, proof: preactivations": {"printed": signed_form},
    "Lemma 1, proof: equal activations": ({"printed": lambda net: net}, {"printed": by_the_square}),
    "Lemma 1, proof: equal contributions": (
        {"printed": signed_form},
        {"multiplied": by_the_square},
    ),
    "Lemma 1, proof: last line": ({"network": never}, {"multiplied": by_the_square}),
    "Lemma 1, uniqueness": (
        {"signed": lambda net, copies=False: FIRST},  # one form, and of the same function
        {"canonical": sorted_rows},
        {"canonical": lambda net, box: Network.from_weights([np.zeros((1, 2)), [[0.0]]])},
    ),
    "ours: several outputs": (
        {"signed": no_copies},
        {"signed": copy_per_output},
        {"signed": half_columns},
    ),
}
