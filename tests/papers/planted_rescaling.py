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


def no_copies(network, copies=False):
    return signed_form(network)


def one_form(network, copies=False):
    """A form that is unique: the zero network."""
    return Network.from_weights([np.zeros((1, network.input_size)), [[0.0]]])


PLANTED = {
    "Lemma 1, existence": {"signed": lambda net, copies=False: printed_construction(net)},
    "Lemma 1, construction": (
        {"printed": signed_form},
        {"multiplied": by_the_square},
        {"multiplied": lambda net: net},
    ),
    "Lemma 1, proof: units with v = 0": {"printed": leaking},
    "Lemma 1, proof: preactivations": {"printed": signed_form},
    "Lemma 1, proof: equal activations": {"printed": lambda net: net},
    "Lemma 1, proof: equal contributions": (
        {"printed": signed_form},
        {"multiplied": by_the_square},
    ),
    "Lemma 1, proof: last line": ({"network": never}, {"multiplied": by_the_square}),
    "Lemma 1, uniqueness": {"signed": one_form},
    "ours: several outputs": {"signed": no_copies},
}
