"""Networks for the tests, regenerated from seeds or built to be degenerate."""

from __future__ import annotations

import itertools

import numpy as np

from relunorm import Activation, Affine, Layer, Network

ORDER = (
    "2-16-16",
    "2-32-32",
    "2-64-64",
    "2-128-128-128",
    "3-16-16",
    "3-32-32",
    "4-16-16",
    "6-10-10",
    "8-8-8",
)

#: Counts and sha256 of the sorted packed patterns; several independent programs agree on them.
REFERENCE = {
    "2-16-16": (248, "219d7df822d6bff35177ba2f4613d6d8e9a0e147ae2bd48e7da69f5eafa8d537"),
    "2-32-32": (1031, "47b77a1bbbccdb1b50ba3faef45a47d03eef44d2a835b164530f1f4dcec0b945"),
    "2-64-64": (4431, "f171e8b40844c75ed333ba97aa607060d8d6f7e98c55e09ad1eb5542e71b944c"),
    "2-128-128-128": (45636, "8529b3b9d1fbd42664bd5ce147a46fb4d72f8d079b03cb6d924c9100346d0589"),
    "3-16-16": (2757, "6b5b0347c3a5ddb73a69e955f671b2128935416c6e6f3314b80368eb03c4402c"),
    "3-32-32": (24611, "1b78346555fe94341ff327496b7d602966be68a2b4eaccf7ada4b40616fb6e0c"),
    "4-16-16": (24789, "c0efa8206f5f641fa3abcf3db993972ad409dd9d76552d689ad48cf28daade9e"),
    "6-10-10": (27130, "2e97ce4891785422820bc372802d6326452ec72972df274fbf23d0aa8c2102d7"),
    "8-8-8": (15285, "3a124c0324176367c5714af88c2e3652ee7059069f0ea35c426a3feead99f832"),
}


def he_net(name: str) -> Network:
    """A reference network by its name, from its seed."""
    rng = np.random.default_rng(1000 + ORDER.index(name))
    widths = [int(n) for n in name.split("-")] + [1]
    return random_net(rng, widths)


def random_net(rng, widths, activation="relu") -> Network:
    """He-initialised weights, uniform biases."""
    weights, biases = [], []
    for a, b in itertools.pairwise(widths):
        weights.append(rng.normal(0, np.sqrt(2 / a), (b, a)))
        biases.append(rng.uniform(-1 / np.sqrt(a), 1 / np.sqrt(a), b))
    return Network.from_weights(weights, biases, activation)


def skip_net(rng, d=2, width=4, outputs=2, slope=0.0) -> Network:
    """Three layers; the second reads the input, too, and the third and the output read all."""
    act = Activation("leaky", slope) if slope else Activation("relu")

    def draw(rows, columns):
        return rng.integers(-4, 5, (rows, columns)) / 4.0

    first = Layer(Affine({0: draw(width, d)}, draw(1, width)[0]), act)
    second = Layer(Affine({0: draw(width, d), 1: draw(width, width)}, draw(1, width)[0]), act)
    third = Layer(Affine({1: draw(2, width), 2: draw(2, width)}, draw(1, 2)[0]), act)
    out = Affine(
        {0: draw(outputs, d), 2: draw(outputs, width), 3: draw(outputs, 2)}, np.zeros(outputs)
    )
    return Network([first, second, third], out, input_shape=d)


def degenerate_nets(d: int) -> dict[str, Network]:
    """Every way to be special that has broken programs of this kind."""
    rng = np.random.default_rng(17 + d)

    def draw(*shape):
        return rng.standard_normal(shape)

    W1, b1, W2, b2, W3 = draw(5, d), draw(5) / 2, draw(4, 5), draw(4) / 2, draw(1, 4)
    zero3 = np.zeros(1)
    make = Network.from_weights
    grid = [rng.integers(-2, 3, s) / 2.0 for s in ((6, d), (4, 6), (1, 4))]
    parallel = np.repeat(draw(1, d), 5, axis=0) * np.array([1, 2, -1, 1, 0.5])[:, None]
    eye = np.eye(d)
    face = np.concatenate([eye, -eye])
    corner = np.concatenate([np.ones((1, d)), np.ones((1, d)) + 0.5 * draw(1, d), -np.ones((1, d))])
    integer = rng.integers(-3, 4, (24, d)).astype(float)
    cancel = np.array(
        [[1.0, -1.0, 0.0, 0, 0], [0.1, -0.1, 1, 0, 0], [0, 0, 0, 1, -1], [1, 1, 1, 1, 1]]
    )
    twin = np.repeat(W1[:1], 5, axis=0)
    return {
        "zero biases": make([W1, W2, W3]),
        "duplicated and negated": make(
            [np.concatenate([W1[:3], W1[:2], -W1[:2]]), draw(4, 7), W3],
            [np.concatenate([b1[:3], b1[:2], -b1[:2]]), b2, zero3],
        ),
        "scaled copies": make(
            [np.concatenate([W1[:2], 3 * W1[:2], W1[:1] / 7]), W2, W3],
            [np.concatenate([b1[:2], 3 * b1[:2], b1[:1] / 7]), b2, zero3],
        ),
        "grid weights": make(grid, [rng.integers(-1, 2, n) / 2.0 for n in (6, 4, 1)]),
        "dead units": make([W1, W2, W3], [b1 - 50 * (np.arange(5) % 2), b2 - 100, zero3]),
        "all zero": make([0 * W1, 0 * W2, 0 * W3]),
        "zero first layer": make([0 * W1, W2, W3], [b1, b2, zero3]),
        "parallel": make([parallel, W2, W3], [np.array([0, 0.5, 0.2, -0.3, 0.1]), b2, zero3]),
        "on the faces": make([face, draw(4, 2 * d), W3], [-np.ones(2 * d), b2, zero3]),
        "through a corner": make([corner, draw(4, 3), W3], [-corner @ np.ones(d), b2, zero3]),
        "width one": make([W1[:1], W2[:1, :1], W3[:, :1]], [b1[:1], b2[:1], zero3]),
        "cancelling": make([twin, cancel, W3], [np.full(5, b1[0]), np.zeros(4), zero3]),
        "concurrent integers": make(
            [integer, rng.integers(-2, 3, (4, 24)).astype(float), W3],
            [np.zeros(24), np.zeros(4), zero3],
        ),
        "one hidden layer": make([W1, draw(2, 5)], [b1, np.zeros(2)]),
        "no hidden layer": make([draw(2, d)], [np.ones(2)]),
    }


def special_net(seed: int) -> tuple[Network, np.ndarray, np.ndarray]:
    """A small degenerate network and a box, all numbers dyadic so that nothing is nearly special.

    Weights on a coarse grid, and one of: copies, negated and zero rows, walls on faces and through
    corners, layers scaled by 2^20 or 2^-20, rows of different scales, parallel walls, huge biases,
    leaky slopes (also negative, one and two), skips, several outputs, width one.
    """
    rng = np.random.default_rng(seed)
    d, kind = int(rng.integers(1, 5)), seed % 13
    widths = [1] * 4 if kind == 0 else [int(rng.integers(1, 4)) for _ in range(2)]
    unit, corner = rng.choice([1.0, 0.5, 0.25]), rng.choice([-1.0, 1.5])

    def draw(*shape: int) -> np.ndarray:
        return rng.integers(-3, 4, shape) * unit

    sizes = [d, *widths, 3 if kind == 1 else 1]
    weights = [draw(b, a) for a, b in itertools.pairwise(sizes)]
    biases = [draw(b) * rng.integers(0, 2) for b in sizes[1:]]
    first, bias, some = weights[0], biases[0], int(rng.integers(len(weights)))
    if kind in (2, 3):
        first[-1], bias[-1] = (2.0, -1.0)[kind - 2] * first[0], (2.0, -1.0)[kind - 2] * bias[0]
    elif kind == 4:
        first[0], weights[1][-1] = 0.0, 0.0
    elif kind == 5:
        first[:d], bias[:d] = np.eye(d)[: len(first)], -1.5
    elif kind == 6:
        bias[:] = -first @ np.full(d, corner)
    elif kind in (7, 8):
        scale = 2.0 ** (20 if kind == 7 else -20)
        weights[some], biases[some] = scale * weights[some], scale * biases[some]
    elif kind == 9:
        weights[0] = first * 2.0 ** rng.integers(-8, 9, (len(first), 1))
    elif kind == 10:
        weights[0] = np.outer(draw(len(first)), draw(d))
    elif kind == 11:
        biases[0] = bias * 2.0**30
    slope = float(rng.choice([0.25, -0.5, 1.0, 2.0])) if kind == 12 else 0.0
    act = Activation("leaky", slope) if kind == 12 else Activation("relu")
    lo, hi = -np.ones(d), np.full(d, 1.5)
    if kind % 2 or len(widths) != 2:
        return Network.from_weights(weights, biases, act), lo, hi
    layers = [
        Layer(Affine({0: weights[0]}, biases[0]), act),
        Layer(Affine({0: draw(widths[1], d), 1: weights[1]}, biases[1]), act),
    ]
    output = Affine({0: draw(sizes[-1], d), 2: weights[2]}, biases[2])
    return Network(layers, output, input_shape=d), lo, hi
