"""Worlds in which a claim on seed 001 comes out otherwise."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
from asked import asked_once

from relunorm.errors import InvalidDomainError
from relunorm.forms.normalize import normalize
from relunorm.network import Network
from relunorm.network.layer import Affine, Layer
from relunorm.papers.reduced import relu, step

normalize = asked_once(normalize)


@cache
def spoiled(spoil, *forms):
    """`normalize` whose result is spoiled for the named forms."""

    def wrong(network, form, *args, **kwargs):
        found = normalize(network, form, *args, **kwargs)
        return replace(found, network=spoil(found.network)) if form in forms else found

    return wrong


def change(network, affine=lambda a: a, activation=None, layer=0):
    """The network with one layer's map changed, and its activation if one is given."""
    if not -len(network.layers) <= layer < len(network.layers):
        return network
    layers = list(network.layers)
    kept = activation or layers[layer].activation
    layers[layer] = Layer(affine(layers[layer].affine), kept)
    return Network(layers, network.output, input_shape=network.input_shape)


def shifted(network):
    """The same network a little to the right."""
    return change(network, lambda a: Affine(a.terms, a.bias + 1e-3))


def longer(network):
    """The first layer's rows and thresholds doubled, and what reads ReLU units made up for it."""
    if not network.layers:
        return network
    made_up = 1.0 if network.layers[0].activation.kind == "step" else 0.5

    def twice(k, affine):
        terms = {key: (made_up if key == 1 else 1.0) * m for key, m in affine.terms.items()}
        own = 2.0 if k == 0 else 1.0
        return Affine({key: own * m for key, m in terms.items()}, own * affine.bias)

    layers = [Layer(twice(k, a.affine), a.activation) for k, a in enumerate(network.layers)]
    return Network(layers, twice(None, network.output), input_shape=network.input_shape)


def tripled(network):
    """Three times the function."""
    out = Affine({k: 3 * m for k, m in network.output.terms.items()}, 3 * network.output.bias)
    return Network(network.layers, out, input_shape=network.input_shape)


def scaled_and_sorted(network, form, *args, **kwargs):
    """A canonical form that only scales rows and sorts them."""
    found = normalize(network, form, *args, **kwargs)
    if form != "canonical":
        return found
    (w, v), (b, c) = (list(map(np.asarray, part)) for part in network.weights())
    size = np.abs(np.c_[w, b]).max(axis=1)
    w, b, v = w / size[:, None], b / size, v * size
    order = np.lexsort(np.c_[w, b].T)
    return replace(found, network=Network.from_weights([w[order], v[:, order]], [b[order], c]))


def padded(network):
    """A dozen more units that do nothing."""
    if not network.layers:
        return network
    terms, out = network.layers[0].affine.terms, dict(network.output.terms)
    more = {k: np.vstack([m, np.asarray(m)[[0] * 12]]) for k, m in terms.items()}
    bias = network.layers[0].affine.bias
    out[1] = np.hstack([out[1], np.zeros((len(network.output.bias), 12))])
    first = Layer(Affine(more, np.r_[bias, bias[[0] * 12]]), network.layers[0].activation)
    return Network([first], Affine(out, network.output.bias), input_shape=network.input_shape)


def halves_at_zero(network, form, *args, **kwargs):
    """A form that forgets the value at 0: every output doubled."""
    found = normalize(network, form, *args, **kwargs)
    out = found.network.output
    twice = Affine({k: 2 * m for k, m in out.terms.items()}, 2 * out.bias)
    twice_as_high = Network(found.network.layers, twice, input_shape=network.input_shape)
    return replace(found, network=twice_as_high)


def read_directly(form):
    """Forms whose first ReLU unit is turned, relu(z) = z + relu(-z): of z, the constant becomes
    four units by (2.6), along a unit row, and the rest a direct term of the input."""

    def spoil(network):
        if not network.layers or network.layers[0].activation.kind != "relu":
            return network
        first, out = network.layers[0].affine, np.asarray(network.output.terms[1])
        rows, bias = np.array(first.terms[0]), np.array(first.bias)
        along, four = np.eye(rows.shape[1])[[0] * 4], np.array([[1.0, -1.0, 1.0, -1.0]])
        half, height = 0.5 * four[0], out[:, :1] * bias[0]
        direct = out[:, :1] * rows[:1]
        rows[0], bias[0] = -rows[0], -bias[0]
        affine = Affine({0: np.vstack([rows, along * [[1], [1], [-1], [-1]]])}, np.r_[bias, half])
        output = Affine({0: direct, 1: np.hstack([out, height * four])}, network.output.bias)
        layer = Layer(affine, network.layers[0].activation)
        return Network([layer], output, input_shape=network.input_shape)

    return spoiled(spoil, form)


def any_domain(network, form, domain=None, **kwargs):
    """A form that exists on D = {0} too."""
    try:
        return normalize(network, form, domain, **kwargs)
    except InvalidDomainError:
        return normalize(network, form, domain)


def never_clips(network, form, domain=None, **kwargs):
    """Unit rows, and thresholds as they are, in place of bounded ones."""
    if form != "bounded":
        return normalize(network, form, domain, **kwargs)
    return normalize(network, "unit", pure=kwargs.get("pure", False))


def keeps_padding(network, form, domain=None, **kwargs):
    return normalize(network, form, domain, **{**kwargs, "remove": False})


def blind(network, form, *args, **kwargs):
    """A canonical form that does not see the network."""
    found = normalize(network, form, *args, **kwargs)
    if form != "canonical":
        return found
    return replace(found, network=Network.from_weights([np.zeros((1, 2)), [[0.0]]]))


def open_step(z):
    """0 at 0."""
    return np.where(z == 0, 0.0, step(z))


def leaky(z):
    return np.maximum(z, 0.1 * z)


class Constant:
    """A model that predicts one number."""

    def __init__(self, value):
        self.value = value

    def predict(self, x):
        return np.full(len(x), self.value)


@cache
def broken(*labels):
    """Runs whose label starts so predict a number far off."""

    def fit(model, label, x, y):
        if not label.startswith(labels):
            return model.fit(x, y)
        return Constant(10.0 + model.random_state)

    return fit


def erratic(model, label, x, y):
    """Constrained runs whose error is of another magnitude at every start."""
    if label == "unconstrained":
        return model.fit(x, y)
    return Constant(10.0 ** (1 + 2 * (model.random_state % 7)))


BROKEN = ({"fit": broken("unconstrained")}, {"fit": broken("constrained")})
PLANTED = {
    "(2.4) scaling": ({"relu": lambda z: relu(z) ** 1.1}, {"step": lambda z: np.tanh(z)}),
    "(2.4) at alpha = 0": (
        {"step": open_step},
        {"relu": lambda z: relu(z + 0.1)},
    ),
    "(2.5) constant by steps": {"step": open_step},
    "(2.6) constant by ReLUs": {"relu": leaky},
    "Proposition 2.1, (2.7)": (
        {"normalize": spoiled(longer, "unit")},
        {"normalize": spoiled(shifted, "unit")},
        {"normalize": read_directly("unit")},
    ),
    "Proposition 2.1, proof: w = 0 and b = 0": (
        {"step": lambda z: np.where(z == 0, 1.0, step(z))},
        {"normalize": halves_at_zero},
    ),
    "Corollary 2.2, (2.8)": (
        {"normalize": spoiled(shifted, "unit")},
        {"normalize": spoiled(longer, "unit")},
    ),
    "Proposition 2.3, (2.10)": (
        {"normalize": spoiled(shifted, "bounded")},
        {"normalize": spoiled(longer, "bounded")},
        {"normalize": never_clips},
        {"normalize": read_directly("bounded")},
    ),
    "Proposition 2.3 on D = {0}": (
        {"relu": lambda z: relu(z) + 1.0},
        {"normalize": any_domain},
    ),
    "(2.11) range of a unit row": {"normalize": spoiled(longer, "unit")},
    "(2.12) always active units": {"relu": lambda z: np.maximum(z, 0.1 * z**2)},
    "ours: two extra units suffice": (
        {"normalize": spoiled(padded, "bounded")},
        {"normalize": spoiled(tripled, "bounded")},
    ),
    "ours: clipping needs no extra unit": (
        {"normalize": spoiled(padded, "bounded")},
        {"normalize": spoiled(tripled, "bounded")},
        {"relu": leaky},
    ),
    "ours: tight thresholds": {"normalize": never_clips},
    "Theorem 3.1, if": {"target": lambda x: np.sign(x[:, 0])},
    "Theorem 3.1, only if": {"polynomial": lambda z, degree: relu(z)},
    "Theorem 3.2, (3.3)": {"normalize": spoiled(longer, "unit")},
    "Theorem 3.2, dense": {"normalize": spoiled(shifted, "unit")},
    "Theorem 3.3, (3.4)": {"normalize": spoiled(shifted, "bounded")},
    "Theorem 3.3, dense": {"normalize": spoiled(shifted, "bounded")},
    "(4.3) unit rows at depth": (
        {"normalize": spoiled(shifted, "unit")},
        {"normalize": spoiled(longer, "unit")},
    ),
    "(4.4) bound on a unit's output": {"normalize": spoiled(longer, "unit")},
    "(4.5) thresholds at depth": (
        {"normalize": never_clips},
        {"normalize": spoiled(tripled, "bounded")},
    ),
    "(4.6) bound on step outputs": {"step": lambda z: 2 * step(z) - 2},
    "(4.7) thresholds of step networks": (
        {"normalize": never_clips},
        {"normalize": spoiled(tripled, "bounded")},
    ),
    "ours: padding": {"normalize": keeps_padding},
    "ours: l1 rows bound every activation": {"normalize": spoiled(longer, "l1")},
    "ours: shallow canonical form": ({"normalize": blind}, {"normalize": scaled_and_sorted}),
    "(5.2), (5.3) one dimension": {"normalize": never_clips},
    "Figure 5.1": {"fit": broken("constrained")},
    "Figure 5.2": {"fit": broken("constrained")},
    "Figure 5.3": {"fit": broken("constrained")},
    "Section 5.1: (5.3) against (5.2)": {"fit": broken("constrained (5.3)")},
    "Section 5.1: less sensitive to the start": {"fit": erratic},
    "Figure 5.4": BROKEN,
    "Figure 5.4: along y = 0.2 x": BROKEN[0],  # refuted at tiny sizes, as the next but one
    "Figure 5.5": BROKEN,
    "Figure 5.5: less sensitive to the start": {"fit": erratic},
    "Figure 5.6": BROKEN[0],  # at tiny sizes the constraint is worse: the real world refutes it
    "Figure 5.6: less sensitive to the start": {"fit": erratic},
    "Figure 5.7": BROKEN,
    "Figure 5.7: along y = 0.2 x": BROKEN,
    "Figure 5.8": BROKEN,
    "Figure 5.8: along y = 0.2 x": BROKEN,
}
