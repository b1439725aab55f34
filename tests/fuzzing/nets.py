"""Random small networks in the styles that break floating-point reasoning."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from relunorm import Activation, Affine, Layer, Network

Rng = np.random.Generator

SLOPES = (0.1, 0.01, 0.125, 0.5, 1.0, 1.5, 3.0, -0.25, -1.0, -2.0, 1e-6, 1e6)
STYLES = (
    "normal",
    "scales",
    "grid",
    "dyadic",
    "duplicates",
    "near",
    "sparse",
    "kernel",
    "opposite",
)


#: The origin of networks that are meant for the flat polytope x + y = 1/2.
ON_PLANE = "on x + y = 1/2"


@dataclass(frozen=True)
class Kind:
    """What a subject can take.

    Attributes:
        inputs: the numbers of inputs to draw from.
        leaky, steps, stages, skips: whether such parts may occur.
        width, depth: the largest ones.
        outputs: the most outputs.
    """

    inputs: tuple[int, ...] = (1, 1, 2, 2, 2, 3, 3, 4)
    leaky: bool = True
    steps: bool = False
    stages: bool = True
    skips: bool = True
    width: int = 4
    depth: int = 3
    outputs: int = 3


def network(rng: Rng, kind: Kind) -> Network:
    """One network: mostly random in some style, sometimes of a family built to cancel."""
    if rng.random() < 0.35:
        family = FAMILIES[rng.integers(len(FAMILIES))]
        made = family(rng, kind)
        if made is not None:
            return made
    return random_network(rng, kind)


def random_network(rng: Rng, kind: Kind, inputs: int | None = None) -> Network:
    """Layers of one style each, with skips, linear stages and any activations allowed."""
    sizes = [inputs or int(rng.choice(kind.inputs))]
    style = STYLES[rng.integers(len(STYLES))]
    mixed = rng.random() < 0.3
    layers = []
    depth = int(rng.integers(1, kind.depth + 1))
    width = max(2, kind.width - (sizes[0] >= 3) - (sizes[0] == 4) - (depth == 3))
    for _ in range(depth):
        own = STYLES[rng.integers(len(STYLES))] if mixed else style
        activation = _activation(rng, kind)
        size = int(rng.integers(1, width + 1))
        layers.append(Layer(_affine(rng, sizes, size, own, kind.skips), activation))
        sizes.append(size)
    if not any(layer.has_units for layer in layers):
        layers.append(Layer(_affine(rng, sizes, 2, style, kind.skips)))
        sizes.append(2)
    output = _affine(rng, sizes, int(rng.integers(1, kind.outputs + 1)), style, kind.skips)
    return Network(layers, output, input_shape=sizes[0])


def _activation(rng: Rng, kind: Kind) -> Activation:
    draw = rng.random()
    if kind.steps and draw < 0.45:
        return Activation("step", at_zero=float(rng.choice([0.0, 0.25, 0.5, 1.0, -1.0])))
    if kind.stages and 0.45 <= draw < 0.55:
        return Activation("identity")
    if kind.leaky and draw >= 0.8:
        return Activation("leaky", slope=float(rng.choice(SLOPES)))
    return Activation("relu")


def _affine(rng: Rng, sizes: list[int], width: int, style: str, skips: bool) -> Affine:
    sources = {len(sizes) - 1}
    if skips and len(sizes) > 1 and rng.random() < 0.3:
        sources.add(int(rng.integers(len(sizes))))
    terms = {source: _matrix(rng, width, sizes[source], style) for source in sorted(sources)}
    bias = _numbers(rng, width, style) * rng.choice([0.0, 1.0, 1.0])
    if style in ("duplicates", "near", "opposite") and width > 1:
        a, b = rng.choice(width, 2, replace=False)
        factor = float(rng.choice([1.0, 2.0, 0.3, 3.0])) if style == "duplicates" else 1.0
        factor = -factor if style == "opposite" else factor
        for matrix in terms.values():
            matrix[b] = factor * matrix[a]
        bias[b] = factor * bias[a]
        if style == "near":
            bias[b] += float(rng.choice([1e-15, 1e-14, 1e-12, 1e-10, 1e-9, 2.0**-52]))
    if style == "scales":
        reach = float(rng.choice([2, 4, 8]))
        factors = 10.0 ** rng.uniform(-reach, reach, width)
        terms = {source: factors[:, None] * matrix for source, matrix in terms.items()}
        bias = bias * factors
    if style == "sparse":
        return Affine({source: sp.csr_array(matrix) for source, matrix in terms.items()}, bias)
    return Affine(terms, bias)


def _matrix(rng: Rng, rows: int, columns: int, style: str) -> np.ndarray:
    if style == "kernel":
        kernel, matrix = _numbers(rng, 2, "normal"), np.zeros((rows, columns))
        for i in range(rows):
            for k in range(2):
                matrix[i, (i + k) % columns] += kernel[k]
        return matrix
    matrix = _numbers(rng, (rows, columns), style)
    return matrix * (rng.random(matrix.shape) < 0.5) if style == "sparse" else matrix


def _numbers(rng: Rng, shape: int | tuple[int, int], style: str) -> np.ndarray:
    if style == "grid" or (style in ("duplicates", "opposite") and rng.random() < 0.5):
        return rng.integers(-2, 3, shape).astype(float)
    if style == "dyadic":
        return rng.integers(-8, 9, shape) / 8.0
    if style == "near" and rng.random() < 0.5:
        return np.round(rng.normal(size=shape), 1)
    return rng.normal(size=shape)


# --- weights that floats lose: for what is exact whatever they are


def extreme_network(rng: Rng, kind: Kind, reach: int = 60) -> Network:
    """Layers of weights between 1e-reach and 1e+reach, alone or mixed, cliffs among them."""
    if rng.random() < 0.25:
        return _cliff(rng, kind, reach)
    sizes = [int(rng.choice(kind.inputs))]
    style, mixed = EXTREMES[rng.integers(len(EXTREMES))], rng.random() < 0.4
    layers = []
    for _ in range(int(rng.integers(1, kind.depth + 2))):
        own = EXTREMES[rng.integers(len(EXTREMES))] if mixed else style
        size, sources = int(rng.integers(1, kind.width + 1)), {len(sizes) - 1}
        if kind.skips and rng.random() < 0.2:
            sources.add(int(rng.integers(len(sizes))))
        terms = {k: _far_apart(rng, (size, sizes[k]), own, reach) for k in sorted(sources)}
        bias = _far_apart(rng, size, own, reach) * rng.choice([0.0, 1.0, 1.0])
        layers.append(Layer(Affine(terms, bias), _activation(rng, kind)))
        sizes.append(size)
    if not any(layer.has_units for layer in layers):
        layers.append(Layer(Affine({len(layers): np.ones((1, sizes[-1]))}, [0.0])))
        sizes.append(1)
    outputs = int(rng.integers(1, kind.outputs + 1))
    output = Affine(
        {len(layers): _far_apart(rng, (outputs, sizes[-1]), style, reach)},
        _far_apart(rng, outputs, style, reach),
    )
    return Network(layers, output, input_shape=sizes[0])


EXTREMES = ("huge", "tiny", "mixed", "rows", "grid", "few", "ones", "normal")


def _far_apart(rng: Rng, shape: int | tuple[int, int], style: str, reach: int) -> np.ndarray:
    one = rng.normal(size=shape)
    some = float(rng.integers(reach // 3, reach + 1))
    if style == "huge":
        return one * 10.0 ** float(rng.choice([0.0, some]))
    if style == "tiny":
        return one * 10.0 ** float(rng.choice([0.0, -some]))
    if style == "mixed":
        return one * 10.0 ** rng.integers(-reach, reach + 1, shape).astype(float)
    if style == "rows":
        rows = shape if isinstance(shape, int) else (shape[0], 1)
        return one * 10.0 ** rng.integers(-reach, reach + 1, rows).astype(float)
    if style == "grid":
        return rng.integers(-2, 3, shape) * 10.0 ** rng.choice([0.0, some / 2, some], size=shape)
    if style == "few":
        return one * 10.0 ** rng.choice([0.0, 0.0, 0.0, 0.0, 10.0, 16.0, -16.0], size=shape)
    return np.ones(shape) if style == "ones" else one


def _cliff(rng: Rng, kind: Kind, reach: int) -> Network:
    """Sums of relu(w x - c), w up to 1e+reach, that fall by ones, and units behind them."""
    d, kinks = int(rng.choice(kind.inputs)), int(rng.integers(2, 5))
    steep = 10.0 ** float(rng.integers(5, min(reach + 11, 300)))
    first = np.zeros((kinks, d))
    first[:, 0] = steep * rng.choice([1.0, 1.0, -1.0])
    shifts = rng.integers(-2, 3, kinks) * float(rng.choice([1.0, steep, 1e-3]))
    layers = [Layer(Affine({0: first}, shifts))]
    for _ in range(int(rng.integers(1, 3))):
        before, width = layers[-1].width, int(rng.integers(1, 4))
        rows = rng.choice([-1.0, 1.0, 0.0, 0.5, 1e5], size=(width, before))
        bias = rng.choice([0.0, -0.5, 0.5, 1.0, -1e-3], size=width)
        layers.append(Layer(Affine({len(layers): rows}, bias)))
    output = Affine({len(layers): rng.normal(size=(1, layers[-1].width))}, [0.0])
    return Network(layers, output, input_shape=d)


# --- families: each makes a network that some shortcut in floats gets wrong


def _constant(rng: Rng, kind: Kind) -> Network:
    """f = relu(b - w relu(w x0)) / b: 1 on half of the domain, then a fall of width b / w^2."""
    d = int(rng.choice(kind.inputs))
    w, b = 10.0 ** rng.uniform(0, 7), 10.0 ** rng.uniform(-8, 0)
    first = np.zeros((1, d))
    first[0, 0] = w
    extra = _numbers(rng, (1, d), "normal")
    return Network.from_weights(
        [
            np.concatenate([first, extra]),
            [[-w, 0.0], [0.0, 1.0]],
            [[1 / b, float(rng.integers(2))]],
        ],
        [[0.0, 0.0], [b, 0.0], [0.0]],
    )


def _hat(rng: Rng, kind: Kind) -> Network:
    """A hat of height one and any width."""
    d = int(rng.choice(kind.inputs))
    width = 10.0 ** rng.uniform(-13, -1)
    direction = _numbers(rng, d, "normal")
    weights = np.stack([direction] * 3)
    return Network.from_weights(
        [weights, [[1 / width, -2 / width, 1 / width]]],
        [[-0.1, -0.1 - width, -0.1 - 2 * width], [0.0]],
    )


def _fold(rng: Rng, kind: Kind) -> Network:
    """S (relu(.1 h + .2 h + 5) - relu(.3 h + 5)): what rounding leaves of 0, enlarged."""
    d = int(rng.choice(kind.inputs))
    scale = 10.0 ** rng.integers(0, 14)
    a, b = rng.choice([0.1, 0.2, 0.3, 0.7, 1.1], 2)
    first = np.zeros((3, d))
    first[:, 0] = 1.0
    bend = _numbers(rng, (1, d), "normal")
    shift = float(rng.choice([0.0, 2.0]))
    return Network(
        [
            Layer(Affine({0: first}, [shift] * 3)),
            Layer(Affine({1: [[a, b, 0.0], [0.0, 0.0, a + b]]}, [5.0, 5.0])),
            Layer(Affine({0: bend}, [float(rng.normal())])),
        ],
        Affine({2: [[scale, -scale]], 3: [[float(rng.integers(2))]]}, [0.0]),
        input_shape=d,
    )


def _offset(rng: Rng, kind: Kind) -> Network:
    """relu(B + e x0): a small slope on a large constant."""
    d = int(rng.choice(kind.inputs))
    rows = np.zeros((2, d))
    rows[0, 0], rows[1, -1] = 10.0 ** rng.uniform(-6, 0), 1.0
    return Network.from_weights([rows, [[1.0, 1.0]]], [[10.0 ** rng.uniform(0, 14), 0.0], [0.0]])


def _cancelling(rng: Rng, kind: Kind) -> Network:
    """S (f - rewritten f), S up to 1e13."""
    from fuzzing.copies import rounded_copy, subtracted

    small = Kind(kind.inputs, kind.leaky, stages=False, skips=False, width=3, depth=2, outputs=1)
    net = random_network(rng, small)
    return subtracted(net, rounded_copy(rng, net), 10.0 ** rng.integers(0, 14))


def _flat_sum(rng: Rng, kind: Kind) -> Network | None:
    """S act(relu(x - a) + relu(y - b) - (1/2 - a - b)): 0 on x + y = 1/2 beyond (a, b)."""
    if 2 not in kind.inputs:
        return None
    a, b = 0.125, 0.25
    scale = 10.0 ** rng.integers(0, 18)
    activation = _activation(rng, Kind(steps=kind.steps, leaky=kind.leaky, stages=False))
    return Network(
        [
            Layer(Affine({0: np.eye(2)}, [-a, -b])),
            Layer(Affine({1: [[1.0, 1.0]]}, [-(0.5 - a - b)]), activation),
        ],
        Affine({2: [[scale]]}, [0.0]),
        input_shape=2,
        origin=ON_PLANE,
    )


FAMILIES = (_constant, _hat, _fold, _offset, _cancelling, _flat_sum)
