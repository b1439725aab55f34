"""Random networks with units planted that can be removed, and disguised copies of networks."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from relunorm.network import Activation, Affine, Layer, Network

KINDS = ("dead", "constant", "duplicate", "opposite", "collinear", "unobserved", "active", "zero")


def planted(
    rng: np.random.Generator,
    depth: int,
    inputs: int,
    outputs: int,
    width: int,
    kinds: list[str],
    skips: bool = False,
    activation: Activation | None = None,
) -> Network:
    """A network for [-1, 1]^inputs with ``width`` ordinary units a layer and planted ones."""
    activation = activation or Activation("relu")
    sizes, layers, muted = [inputs], [], []
    for k in range(depth):
        reads = sorted({k, *([int(rng.integers(0, k))] if skips and k else [])})
        fan = sum(sizes[s] for s in reads)
        rows = rng.normal(0, 1 / np.sqrt(fan), (width, fan))
        bias = rng.normal(0, 0.3, width)
        silent = []
        for kind in kinds if k % 2 == 0 else kinds[::2]:
            row, offset = _plant(kind, rows, bias, rng)
            if kind == "unobserved":
                silent.append(len(rows))
            rows, bias = np.vstack([rows, row]), np.append(bias, offset)
        order = rng.permutation(len(rows))
        rows, bias = rows[order], bias[order]
        muted.append([int(np.flatnonzero(order == i)[0]) for i in silent])
        layers.append((reads, rows, bias))
        sizes.append(len(rows))
    reads = sorted({depth, *([int(rng.integers(0, depth))] if skips and depth else [])})
    fan = sum(sizes[s] for s in reads)
    weights = rng.normal(0, 1, (outputs, fan))
    if outputs > 1:
        weights[-1] = 0.0
    maps = [*layers, (reads, weights, rng.normal(0, 1, outputs))]
    built = [_affine(reads, rows, bias, sizes, muted) for reads, rows, bias in maps]
    return Network([Layer(a, activation) for a in built[:-1]], built[-1], input_shape=inputs)


def _plant(kind: str, rows: np.ndarray, bias: np.ndarray, rng: np.random.Generator):
    i = int(rng.integers(len(rows)))
    scale = float(np.exp(rng.normal()))
    if kind == "duplicate":
        return rows[i], bias[i]
    if kind == "collinear":
        return scale * rows[i], scale * bias[i]
    if kind == "opposite":
        return -scale * rows[i], -scale * bias[i]
    if kind in ("constant", "zero"):
        return np.zeros(rows.shape[1]), float(rng.normal() if kind == "constant" else 0.0)
    row = rng.normal(0, 1 / np.sqrt(rows.shape[1]), rows.shape[1])
    # values stay below 60 in these networks, so this decides the sign for good
    return row, {"dead": -1e3, "active": 1e3}.get(kind, float(rng.normal(0, 0.3)))


def _affine(reads, rows, bias, sizes, muted) -> Affine:
    terms, start = {}, 0
    for source in reads:
        block = rows[:, start : start + sizes[source]].copy()
        start += sizes[source]
        if source:
            block[:, muted[source - 1]] = 0.0
        terms[source] = block
    return Affine(terms, bias)


@st.composite
def networks(draw, max_depth: int = 6, leaky: bool = True) -> Network:
    """Planted networks of depth 1 to ``max_depth``, width 1 upwards, with and without skips."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    slope = draw(st.sampled_from([0.0, 0.0, 0.25])) if leaky else 0.0
    return planted(
        rng,
        depth=draw(st.integers(1, max_depth)),
        inputs=draw(st.integers(1, 4)),
        outputs=draw(st.integers(1, 3)),
        width=draw(st.integers(1, 5)),
        kinds=draw(st.lists(st.sampled_from(KINDS), max_size=8)),
        skips=draw(st.booleans()),
        activation=Activation("leaky", slope=slope) if slope else Activation("relu"),
    )


def disguised(network: Network, rng: np.random.Generator, *, exact: bool = True) -> Network:
    """The same function: units permuted and rescaled (by powers of two if exact), one split."""
    layers, maps = [], []
    back: list[tuple[np.ndarray, np.ndarray]] = [
        (np.arange(network.input_size), np.ones(network.input_size))
    ]
    for layer in network.layers:
        size = layer.width
        copies = np.append(np.arange(size), rng.integers(size))  # one unit twice
        order = rng.permutation(size + 1)
        scale = 2.0 ** rng.integers(-3, 4, size + 1) if exact else np.exp(rng.normal(size=size + 1))
        affine = _reread(layer.affine, back)
        source = copies[order]
        terms = {k: m[source] * scale[:, None] for k, m in affine.items()}
        maps.append(terms)
        layers.append(Layer(Affine(terms, layer.affine.bias[source] * scale), layer.activation))
        share = np.ones(size + 1)
        twice = np.flatnonzero(source == copies[-1])
        share[twice] = 0.5
        back.append((source, share / scale))
    output = Affine(_reread(network.output, back), network.output.bias)
    return network.replace(layers=layers, output=output)


def _reread(affine: Affine, back) -> dict[int, np.ndarray]:
    return {k: np.asarray(m)[:, back[k][0]] * back[k][1] for k, m in affine.terms.items()}


def planted_16_40_40_5(rng: np.random.Generator) -> Network:
    """Layer 1: 8 constant, 5 dead, 5 active, 4 collinear, 3 unobserved; layer 2: 4 constant."""
    first = rng.normal(0, 0.25, (40, 16))
    bias = rng.normal(0, 0.3, 40)
    first[:8] = 0.0
    bias[8:13] = -np.abs(first[8:13]).sum(axis=1) - 0.5
    bias[13:18] = np.abs(first[13:18]).sum(axis=1) + 0.5
    scale = np.exp(rng.normal(size=4))
    first[18:22] = scale[:, None] * first[25:29]
    bias[18:22] = scale * bias[25:29]
    second = rng.normal(0, 0.2, (40, 40))
    second[:, 22:25] = 0.0
    second_bias = rng.normal(0, 0.3, 40)
    second[:4] = 0.0
    order = rng.permutation(40)
    turn = rng.permutation(40)
    return Network.from_weights(
        [first[order], second[np.ix_(turn, order)], rng.normal(0, 0.3, (5, 40))[:, turn]],
        [bias[order], second_bias[turn], rng.normal(size=5)],
    )
