"""Lemma 1 of seed 000: outgoing weights -1, 0 and 1, as printed and as it holds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.domain import Box
from relunorm.forms.normalize import normalize
from relunorm.network import Network
from relunorm.papers import words_of
from relunorm.papers.claim import ROUNDING
from relunorm.papers.exhibit import Exhibit, World, empty_figure

claim, exhibit = words_of("rescaling")

Array = NDArray[np.float64]


def printed_construction(network: Network) -> Network:
    """Lemma 1's W', b', v' as printed: rows divided by |v_i|."""
    (w, v), (b, _) = network.weights()
    w, v = np.asarray(w), np.asarray(v)
    size = np.where(v[0] == 0, 1.0, np.abs(v[0]))
    return Network.from_weights([w / size[:, None], np.sign(v)], [np.asarray(b) / size, [0.0]])


def corrected_construction(network: Network) -> Network:
    """Its counterpart that holds: rows multiplied by |v_i|, v'_i = sign(v_i)."""
    (w, v), (b, _) = network.weights()
    w, v = np.asarray(w), np.asarray(v)
    size = np.abs(v[0])
    return Network.from_weights([w * size[:, None], np.sign(v)], [np.asarray(b) * size, [0.0]])


def signed_form(network: Network, copies: bool = False) -> Network:
    """Rows multiplied by |v_i|; with ``copies`` one copy of a unit per distinct |v_ik|."""
    return normalize(network, "signed", split=copies).network


def canonical_form(network: Network, box: Box) -> Network:
    return normalize(network, "canonical", box).network


def random_network(rng: np.random.Generator, width: int, inputs: int) -> Network:
    """A random network of one output; a fifth of its outgoing weights are 0."""
    v = rng.normal(size=(1, width)) * (rng.random(width) > 0.2)
    return Network.from_weights(
        [rng.normal(size=(width, inputs)), v], [rng.normal(size=width), [0.0]]
    )


@dataclass(frozen=True)
class Rescaling(World):
    """What seed 000's claims rest on."""

    network: Callable[..., Network] = random_network
    signed: Callable[..., Network] = signed_form
    canonical: Callable[..., Network] = canonical_form
    printed: Callable[[Network], Network] = printed_construction
    multiplied: Callable[[Network], Network] = corrected_construction


def lemma1(world: Rescaling) -> Exhibit:
    """Random networks of one output: the construction as printed, the one that multiplies by |v_i|,
    and the package's signed form."""
    rng = world.rng
    rows = []
    for width in world.size((1, 4, 16, 64), (1, 4, 16, 64, 256), (4, 16)):
        for trial in range(world.size(5, 20, 2)):
            net = world.network(rng, width, 3)
            x = rng.normal(size=(400, 3))
            signed, printed, multiplied = (
                make(net) for make in (world.signed, world.printed, world.multiplied)
            )
            own, wrong, right = (_contributions(n, x) for n in (net, printed, multiplied))
            rows.append(
                (
                    width,
                    trial,
                    float(np.abs(printed(x) - net(x)).max()),
                    _off(multiplied, net, x),
                    _off(signed, net, x),
                    float(np.abs(own - wrong).max()),
                    float(np.abs(own - right).max()),
                    float(np.abs(own).max()),
                    *_proof(net, printed, x),
                )
            )
    columns = (
        "units", "network", "printed is off by", "multiplied is off by", "signed form is off by",
        "printed contributions are off by", "contributions are off by", "largest contribution",
        "units with v = 0 are off by", "preactivations are off by", "activations are off by",
        "activations times |v| are off by",
    )  # fmt: skip
    table = dict(zip(columns, zip(*rows, strict=True), strict=True))
    return exhibit(
        world.settings(),
        "lemma1",
        claim("Lemma 1, existence", max(table["signed form is off by"])),
        claim(
            "Lemma 1, construction",
            max(table["printed is off by"]),
            max(table["multiplied is off by"]),
        ),
        claim("Lemma 1, proof: units with v = 0", max(table["units with v = 0 are off by"])),
        claim("Lemma 1, proof: preactivations", max(table["preactivations are off by"])),
        claim(
            "Lemma 1, proof: equal activations",
            max(table["activations are off by"]),
            max(table["activations times |v| are off by"]),
        ),
        claim(
            "Lemma 1, proof: equal contributions",
            max(table["printed contributions are off by"]),
            max(table["contributions are off by"]),
        ),
        claim(
            "Lemma 1, proof: last line",
            max(table["largest contribution"]),
            max(table["contributions are off by"]),
        ),
        columns=columns,
        rows=rows,
        figure=_draw(world),
    )


def uniqueness(world: Rescaling) -> Exhibit:
    """Five networks of four units and one function, with outgoing weights -1, 0 and 1 (permuted,
    another idle row, a unit split, negated), in the signed and in the canonical form."""
    base = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    idle, v = np.zeros((1, 2)), np.array([[1.0, 1.0, 1.0, 0.0]])
    kinds = {
        "as given": Network.from_weights([np.vstack([base, idle]), v]),
        "units permuted": Network.from_weights([np.vstack([base[[2, 0, 1]], idle]), v]),
        "a unit split in two": Network.from_weights(
            [np.vstack([base[:2], base[2:] / 2, base[2:] / 2]), np.ones((1, 4))]
        ),
        "another row with v = 0": Network.from_weights([np.vstack([base, [[3.0, -2.0]]]), v]),
        "all rows negated (they sum to 0)": Network.from_weights([np.vstack([-base, idle]), v]),
    }
    x = world.rng.normal(size=(400, 2))
    x /= np.abs(x).max()  # the canonical form is one over a domain
    box = Box.cube(2, -1, 1)
    first = kinds["as given"]
    signed = [world.signed(net) for net in kinds.values()]
    canonical = [world.canonical(net, box) for net in kinds.values()]
    rows = [
        (
            name,
            _off(own, first, x),
            bool(own == net),
            float(np.abs(form(x) - first(x)).max()),
            bool(form == canonical[0]),
        )
        for (name, net), own, form in zip(kinds.items(), signed, canonical, strict=True)
    ]
    same, equal = (max(float(row[k]) for row in rows) <= ROUNDING for k in (1, 3))
    return exhibit(
        world.settings(),
        "uniqueness",
        claim(
            "Lemma 1, uniqueness",
            _distinct(signed) if same else math.nan,
            _distinct(canonical) if equal else math.nan,
        ),
        rows=rows,
    )


def several_outputs(world: Rescaling) -> Exhibit:
    """Random networks of six units and 1, 2, 3 and 5 outputs, once with outgoing weights that are 0
    or repeat: scaled to columns of max-norm 1, and with units copied so that every weight is a
    sign."""
    rng = world.rng
    rows = []
    for outputs, repeats in product((1, 2, 3, 5), (False, True)):
        v = rng.choice([-2.0, -0.5, 0.0, 0.5], size=(outputs, 6)) * (np.arange(6) > 0)
        v = v if repeats else rng.normal(size=(outputs, 6))
        net = Network.from_weights(
            [rng.normal(size=(6, 3)), v], [rng.normal(size=6), np.zeros(outputs)]
        )
        x = rng.normal(size=(400, 3))
        needed = sum(max(1, len(set(np.abs(column[column != 0])))) for column in v.T)
        for split in (False, True):
            found = world.signed(net, copies=split)
            last = np.asarray(found.weights()[0][1])
            top = np.abs(last).max(axis=0)
            rows.append(
                (
                    outputs,
                    repeats,
                    "copies" if split else "scaled",
                    found.units,
                    needed if split else 6,
                    float(np.abs(found(x) - net(x)).max()),
                    float((~np.isin(last, (-1.0, 0.0, 1.0))).sum()),
                    float(np.abs(top[top > 0] - 1).max(initial=0.0)),
                )
            )
    off = max(max(row[5], row[7], float(row[3] != row[4])) for row in rows)
    others = sum(row[6] for row in rows if row[2] == "copies")
    return exhibit(
        world.settings(),
        "several_outputs",
        claim("ours: several outputs", off if others == 0 else math.inf),
        rows=rows,
    )


def _proof(net: Network, printed: Network, x: Array) -> tuple[float, ...]:
    """How far units with v = 0 are from contributing 0 and keeping z; how far z = |v| z',
    relu(z) = relu(z') and relu(z) = |v| relu(z') are off, as shares of the largest z."""
    v = np.asarray(net.weights()[0][1])[0]
    zero, size = v == 0, np.abs(v)
    z, scaled = (n.preactivations(x)[0] for n in (net, printed))
    idle = max(np.abs(_contributions(n, x)[:, zero]).max(initial=0.0) for n in (net, printed))
    kept = np.abs(z - scaled)[:, zero].max(initial=0.0)
    on, on_scaled = np.maximum(z, 0.0), np.maximum(scaled, 0.0)
    gaps = (z - size * scaled, on - on_scaled, on - size * on_scaled)
    largest = max(np.abs(z[:, ~zero]).max(initial=0.0), 1e-300)
    shares = (float(np.abs(gap[:, ~zero]).max(initial=0.0) / largest) for gap in gaps)
    return float(max(idle, kept)), *shares


def _off(found: Network, net: Network, x: Array) -> float:
    """How far ``found`` is from ``net``; infinite with other outgoing weights than -1, 0 and 1, an
    output bias or more units, which the lemma does not have."""
    last = np.asarray(found.weights()[0][1])
    if not np.isin(last, (-1.0, 0.0, 1.0)).all() or found.output.bias.any():
        return math.inf
    return float(np.abs(found(x) - net(x)).max()) if found.units <= net.units else math.inf


def _contributions(network: Network, x: Array) -> Array:
    """relu(Wx + b)_i v_i for every unit, shape (points, units)."""
    values = np.maximum(network.preactivations(x)[0], 0.0)
    return values * np.asarray(network.weights()[0][1])[0]


def _distinct(networks: list[Network]) -> int:
    return sum(all(net != other for other in networks[:k]) for k, net in enumerate(networks))


def _draw(world: Rescaling) -> Any:
    w, b = [[1.0], [-1.0], [1.0], [-0.5]], [0.5, 0.3, -1.0, 1.0]
    net = Network.from_weights([w, [[2.0, -0.5, -3.0, 1.5]]], [b, [0.0]])
    x = np.linspace(-3, 3, 400)[:, None]
    figure, (ax,) = empty_figure((6, 3.8))
    ax.plot(x, net(x), color="black", lw=3, alpha=0.35, label="network")
    ax.plot(x, world.multiplied(net)(x), lw=1.2, label="rows multiplied by |v|")
    ax.plot(x, world.printed(net)(x), "--", lw=1.2, label="rows divided by |v| (printed)")
    ax.set(xlabel="x", ylabel="output", title="A network of four units and its two rescalings")
    ax.legend()
    return figure


EXHIBITS = {"lemma1": lemma1, "uniqueness": uniqueness, "several_outputs": several_outputs}
