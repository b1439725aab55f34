"""Copies of a network: the same function exactly, up to rounding, or perturbed."""

from __future__ import annotations

import numpy as np

from relunorm import Activation, Affine, Layer, Network

Rng = np.random.Generator


def _dense(network: Network) -> tuple[list[dict[int, np.ndarray]], list[np.ndarray]]:
    """Own, writable copies of all matrices and biases, the output's last."""
    maps = [layer.affine for layer in network.layers] + [network.output]
    terms = [
        {k: np.array(m.toarray() if hasattr(m, "toarray") else m) for k, m in a.terms.items()}
        for a in maps
    ]
    return terms, [np.array(a.bias) for a in maps]


def _built(network: Network, terms: list, biases: list) -> Network:
    layers = [
        Layer(Affine(t, b), layer.activation)
        for t, b, layer in zip(terms, biases, network.layers, strict=False)
    ]
    return Network(
        layers,
        Affine(terms[-1], biases[-1]),
        input_shape=network.input_shape,
        output_shape=network.output_shape,
    )


def _scaled(network: Network, factors: list[np.ndarray]) -> Network:
    """Every unit multiplied by its factor, its readers divided by it."""
    terms, biases = _dense(network)
    for k, layer in enumerate(network.layers):
        if layer.activation.kind == "step":
            for matrix in terms[k].values():
                matrix *= factors[k][:, None]
            biases[k] *= factors[k]
            continue
        for matrix in terms[k].values():
            matrix *= factors[k][:, None]
        biases[k] *= factors[k]
        for later in terms[k + 1 :]:
            if k + 1 in later:
                later[k + 1] = later[k + 1] / factors[k]
    return _built(network, terms, biases)


def permuted(rng: Rng, network: Network) -> Network:
    """Units of every layer in another order."""
    terms, biases = _dense(network)
    for k, layer in enumerate(network.layers):
        order = rng.permutation(layer.width)
        terms[k] = {source: matrix[order] for source, matrix in terms[k].items()}
        biases[k] = biases[k][order]
        for later in terms[k + 1 :]:
            if k + 1 in later:
                later[k + 1] = later[k + 1][:, order]
    return _built(network, terms, biases)


def rescaled(rng: Rng, network: Network) -> Network:
    """Units multiplied by powers of two: exact."""
    return _scaled(network, [2.0 ** rng.integers(-6, 7, x.width) for x in network.layers])


def rounded_copy(rng: Rng, network: Network) -> Network:
    """Units permuted and multiplied by any positive numbers: the same up to rounding."""
    factors = [10.0 ** rng.uniform(-2, 2, x.width) for x in network.layers]
    return permuted(rng, _scaled(network, factors))


def split(rng: Rng, network: Network) -> Network:
    """One unit twice, its readers' weights halved: exact."""
    terms, biases = _dense(network)
    k = int(rng.integers(len(network.layers)))
    unit = int(rng.integers(network.layers[k].width))
    terms[k] = {s: np.concatenate([m, m[unit : unit + 1]]) for s, m in terms[k].items()}
    biases[k] = np.append(biases[k], biases[k][unit])
    for later in terms[k + 1 :]:
        if k + 1 in later:
            later[k + 1][:, unit] /= 2
            later[k + 1] = np.column_stack([later[k + 1], later[k + 1][:, unit]])
    return _built(network, terms, biases)


def padded(rng: Rng, network: Network) -> Network:
    """One unit more that nobody reads: exact."""
    terms, biases = _dense(network)
    k = int(rng.integers(len(network.layers)))
    terms[k] = {
        s: np.concatenate([m, rng.normal(size=(1, m.shape[1]))]) for s, m in terms[k].items()
    }
    biases[k] = np.append(biases[k], rng.normal())
    for later in terms[k + 1 :]:
        if k + 1 in later:
            later[k + 1] = np.column_stack([later[k + 1], np.zeros(len(later[k + 1]))])
    return _built(network, terms, biases)


def staged(rng: Rng, network: Network) -> Network:
    """A linear stage in front that hands the input on: exact."""
    terms, biases = _dense(network)
    d = network.input_size
    factors = 2.0 ** rng.integers(-3, 4, d)
    first = Layer(Affine({0: np.diag(factors)}, np.zeros(d)), Activation("identity"))
    moved = [{k + 1: (m / factors if k == 0 else m) for k, m in own.items()} for own in terms]
    layers = [
        Layer(Affine(t, b), layer.activation)
        for t, b, layer in zip(moved, biases, network.layers, strict=False)
    ]
    return Network([first, *layers], Affine(moved[-1], biases[-1]), input_shape=d)


#: Copies that compute the same function in real arithmetic.
EXACT = (permuted, rescaled, split, padded, staged)
#: Those of which `compare` promises `equal`.
ARRANGED = (permuted, rescaled)


def exact_copy(rng: Rng, network: Network, ways: tuple = EXACT) -> Network:
    """One to three of the exact rewrites in a row."""
    for _ in range(int(rng.integers(1, 4))):
        network = ways[rng.integers(len(ways))](rng, network)
    return network


def perturbed(rng: Rng, network: Network) -> Network:
    """One number moved: by one unit in the last place, or by up to a tenth."""
    terms, biases = _dense(network)
    k = int(rng.integers(len(terms)))
    places = [biases[k], *terms[k].values()]
    place = places[rng.integers(len(places))].reshape(-1)
    i = int(rng.integers(place.size))
    size = float(rng.choice([2.0**-52, 1e-14, 1e-12, 1e-9, 1e-6, 1e-3, 0.1]))
    place[i] += size * (abs(place[i]) or 1.0) * float(rng.choice([-1, 1]))
    return _built(network, terms, biases)


def subtracted(first: Network, second: Network, scale: float) -> Network:
    """scale (f - g), both side by side."""
    one, one_bias = _dense(first)
    two, two_bias = _dense(second)
    count = len(first.layers)

    def shifted(terms: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
        return {k + count if k else 0: m for k, m in terms.items()}

    layers = [
        Layer(Affine(t, b), layer.activation)
        for t, b, layer in zip(one, one_bias, first.layers, strict=False)
    ] + [
        Layer(Affine(shifted(t), b), layer.activation)
        for t, b, layer in zip(two, two_bias, second.layers, strict=False)
    ]
    terms = {k: scale * m for k, m in one[-1].items()}
    for k, m in shifted(two[-1]).items():
        terms[k] = terms[k] - scale * m if k in terms else -scale * m
    bias = scale * (one_bias[-1] - two_bias[-1])
    return Network(layers, Affine(terms, bias), input_shape=first.input_shape)
