"""Seed 000, "Normalization of Single-Layer ReLU Networks", re-run: Lemma 1 and its errata."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.domain import Box
from relunorm.forms.normalize import normalize
from relunorm.network import Network
from relunorm.papers.claim import Check, Claim
from relunorm.papers.exhibit import Exhibit, Sample, shows

Array = NDArray[np.float64]
#: Rounding of a few hundred float64 operations on values of order one.
ROUNDING = 1e-11


def printed_construction(network: Network) -> Network:
    """Lemma 1's W', b', v' as printed: rows divided by |v_i|."""
    (w, v), (b, _) = network.weights()
    w, v = np.asarray(w), np.asarray(v)
    size = np.where(v[0] == 0, 1.0, np.abs(v[0]))
    return Network.from_weights([w / size[:, None], np.sign(v)], [np.asarray(b) / size, [0.0]])


@shows(
    "Lemma 1, existence",
    "Lemma 1, construction",
    "Lemma 1, proof: equal contributions",
    "Lemma 1, proof: last line",
)
def lemma1(data: Sample | None = None, full: bool = False, random_state: int = 0) -> Exhibit:
    """Random networks of one output in the signed form, beside the printed construction."""
    rng = np.random.default_rng(random_state)
    rows = []
    for width in (1, 4, 16, 64, 256) if full else (1, 4, 16, 64):
        for trial in range(20 if full else 5):
            net = _scalar(rng, width, 3)
            x = rng.normal(size=(400, 3))
            signed, printed = normalize(net, "signed").network, printed_construction(net)
            signs = np.isin(np.asarray(signed.weights()[0][1]), (-1.0, 0.0, 1.0)).all()
            own, other, wrong = (_contributions(n, x) for n in (net, signed, printed))
            gap = np.abs(own - other).max() if own.shape == other.shape else np.inf
            rows.append(
                (
                    width,
                    trial,
                    float(np.abs(printed(x) - net(x)).max()),
                    float(np.abs(signed(x) - net(x)).max()),
                    bool(signs),
                    float(np.abs(own - wrong).max()),
                    float(gap),
                    float(np.abs(own).max()),
                )
            )
    columns = (
        "units", "network", "printed is off by", "signed form is off by", "v' in {-1, 0, 1}",
        "printed contributions are off by", "contributions are off by", "largest contribution",
    )  # fmt: skip
    table = dict(zip(columns, zip(*rows, strict=True), strict=True))
    worst = max(table["signed form is off by"])
    return Exhibit(
        "lemma1",
        "Lemma 1: outgoing weights -1, 0 and 1",
        columns,
        tuple(rows),
        "The proof divides the incoming weights by |v_i|; |v| relu(z) = relu(|v| z) multiplies.",
        _draw(),
        {"random_state": random_state},
        (
            Claim(
                "Lemma 1, existence",
                "every network has an equal one whose outgoing weights are -1, 0 or 1",
                Check(
                    "largest difference of the signed form",
                    worst if all(table["v' in {-1, 0, 1}"]) else np.inf,
                    "<=",
                    ROUNDING,
                ),
            ),
            Claim(
                "Lemma 1, construction",
                "divide the row w_i and the bias b_i by |v_i|",
                Check(
                    "largest difference as printed",
                    max(table["printed is off by"]),
                    "<=",
                    ROUNDING,
                ),
                "multiply them by |v_i|",
                Check("largest difference", worst, "<=", ROUNDING),
            ),
            Claim(
                "Lemma 1, proof: equal contributions",
                "every unit contributes the same before and after the printed construction",
                Check(
                    "largest difference as printed",
                    max(table["printed contributions are off by"]),
                    "<=",
                    ROUNDING,
                ),
                "with |v_i| multiplied they do",
                Check("largest difference", max(table["contributions are off by"]), "<=", ROUNDING),
            ),
            Claim(
                "Lemma 1, proof: last line",
                "the contributions of units with v_i other than 0 are 0",
                Check("largest contribution", max(table["largest contribution"]), "<=", ROUNDING),
                "they are equal before and after, not 0",
                Check("largest difference", max(table["contributions are off by"]), "<=", ROUNDING),
            ),
        ),
    )


@shows("Lemma 1, uniqueness")
def uniqueness(data: Sample | None = None, full: bool = False, random_state: int = 0) -> Exhibit:
    """One function, many normal forms of the lemma; one canonical form."""
    base = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    ones = np.ones((1, 3))
    kinds = {
        "as given": Network.from_weights([base, ones]),
        "units permuted": Network.from_weights([base[[2, 0, 1]], ones]),
        "a unit split in two": Network.from_weights(
            [np.vstack([base, base[2:] / 2])[[0, 1, 3, 3]], np.ones((1, 4))]
        ),
        "a row with v = 0 added": Network.from_weights(
            [np.vstack([base, [[3.0, -2.0]]]), [[1.0, 1.0, 1.0, 0.0]]]
        ),
        "all rows negated (they sum to 0)": Network.from_weights([-base, ones]),
    }
    x = np.random.default_rng(random_state).normal(size=(400, 2))
    box = Box.cube(2, -1, 1)
    first = kinds["as given"]
    reference = normalize(first, "canonical", box).network
    rows, signed, canonical = [], [], []
    for name, net in kinds.items():
        signed.append(normalize(net, "signed").network)
        canonical.append(normalize(net, "canonical", box).network)
        rows.append(
            (
                name,
                float(np.abs(net(x) - first(x)).max()),
                bool(signed[-1] == net),
                bool(canonical[-1] == reference),
            )
        )
    return Exhibit(
        "uniqueness",
        "Lemma 1: five weights of the lemma's form for one function",
        ("weights", "differs from the first by", "is its own signed form", "same canonical form"),
        tuple(rows),
        "What is unique is the shallow canonical form (docs/forms.md), over a domain.",
        None,
        {"random_state": random_state},
        (
            Claim(
                "Lemma 1, uniqueness",
                "the weights with v' in {-1, 0, 1} are unique",
                Check("different ones of the same function", _distinct(signed), "=", 1),
                "the shallow canonical form is",
                Check("different canonical forms", _distinct(canonical), "=", 1),
            ),
        ),
    )


@shows("erratum: several outputs")
def several_outputs(
    data: Sample | None = None, full: bool = False, random_state: int = 0
) -> Exhibit:
    """More than one output: max-norm 1 columns, or signs by copying units."""
    rng = np.random.default_rng(random_state)
    rows = []
    for outputs in (1, 2, 3, 5):
        net = Network.from_weights(
            [rng.normal(size=(6, 3)), rng.normal(size=(outputs, 6))],
            [rng.normal(size=6), np.zeros(outputs)],
        )
        x = rng.normal(size=(400, 3))
        for split in (False, True):
            found = normalize(net, "signed", split=split).network
            last = np.asarray(found.weights()[0][1])
            rows.append(
                (
                    outputs,
                    "copies" if split else "scaled",
                    found.units,
                    float(np.abs(found(x) - net(x)).max()),
                    float((~np.isin(last, (-1.0, 0.0, 1.0))).sum()),
                    float(np.abs(np.abs(last).max(axis=0) - 1).max()),
                )
            )
    exhibit = Exhibit(
        "several_outputs",
        "Lemma 1 for several outputs",
        ("outputs", "form", "units", "off by", "weights not -1, 0, 1", "columns off max-norm 1 by"),
        tuple(rows),
        "Scaling gives columns of max-norm 1; one copy per distinct |v_ik| gives signs.",
        None,
        {"random_state": random_state},
    )
    scaled = exhibit.column("weights not -1, 0, 1", form="scaled")
    copies = exhibit.column("weights not -1, 0, 1", form="copies")
    exact = max(exhibit.column("off by")) <= ROUNDING
    claim = Claim(
        "erratum: several outputs",
        "rescaling each unit gives weights -1, 0, 1 (stated for one output only)",
        Check("other weights for 1 to 5 outputs", sum(scaled), "=", 0),
        "one copy of a unit per distinct |v_ik| does, exactly",
        Check("other weights", sum(copies) if exact else np.inf, "=", 0),
    )
    return replace(exhibit, claims=(claim,))


def _scalar(rng: np.random.Generator, width: int, inputs: int) -> Network:
    """A random network of one output; a fifth of its outgoing weights are 0."""
    v = rng.normal(size=(1, width)) * (rng.random(width) > 0.2)
    return Network.from_weights(
        [rng.normal(size=(width, inputs)), v], [rng.normal(size=width), [0.0]]
    )


def _contributions(network: Network, x: Array) -> Array:
    """relu(Wx + b)_i v_i for every unit, shape (points, units)."""
    values = np.maximum(network.preactivations(x)[0], 0.0)
    return values * np.asarray(network.weights()[0][1])[0]


def _distinct(networks: list[Network]) -> int:
    return sum(all(net != other for other in networks[:k]) for k, net in enumerate(networks))


def _draw() -> Any:
    from matplotlib.figure import Figure

    w, b = [[1.0], [-1.0], [1.0], [-0.5]], [0.5, 0.3, -1.0, 1.0]
    net = Network.from_weights([w, [[2.0, -0.5, -3.0, 1.5]]], [b, [0.0]])
    x = np.linspace(-3, 3, 400)[:, None]
    figure = Figure(figsize=(6, 3.8), layout="constrained")
    ax = figure.subplots()
    ax.plot(x, net(x), color="black", lw=3, alpha=0.35, label="network")
    ax.plot(x, normalize(net, "signed").network(x), lw=1.2, label="rows multiplied by |v|")
    ax.plot(x, printed_construction(net)(x), "--", lw=1.2, label="rows divided by |v| (printed)")
    ax.set(xlabel="x", ylabel="output", title="A network of four units and its two rescalings")
    ax.legend()
    return figure


EXHIBITS = {"lemma1": lemma1, "uniqueness": uniqueness, "several_outputs": several_outputs}
