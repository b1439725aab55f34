"""fingerprint and digest: equal names for copies, different ones for different functions."""

from __future__ import annotations

import struct

import numpy as np
from exact_answers import difference
from exact_oracle import read

import relunorm as rn
from fuzzing import copies
from fuzzing.nets import Kind, Rng, network, random_network
from fuzzing.outcome import Case, Outcome, magnitudes, short
from fuzzing.places import place_for
from relunorm import Activation, Affine, Layer, Network


def draw_fingerprint(rng: Rng) -> Case:
    """A network and an exact or a perturbed copy."""
    net = network(rng, Kind(inputs=(1, 2)))
    copy_wanted = rng.random() < 0.6
    other = copies.exact_copy(rng, net) if copy_wanted else copies.perturbed(rng, net)
    where = place_for(rng, net, scales=False)
    options = {"everywhere": bool(rng.random() < 0.3), "copy": copy_wanted}
    return Case((net, other), where, options)


def judge_fingerprint(case: Case, out: Outcome) -> None:
    """Exact copies agree; agreeing networks compute the same up to rounding."""
    (net, other), where = case.networks, case.place
    assert where is not None
    domain = None if case.options["everywhere"] else where.domain
    same = rn.fingerprint(net, domain, time_limit=5) == rn.fingerprint(other, domain, time_limit=5)
    gap = max(difference(read(net), read(other), where.inner))
    if case.options["copy"] and gap == 0:
        out.claim(same, "copies have different fingerprints")
    out.unknown += not same and gap == 0
    if same:
        size = max(*magnitudes(net, where.domain), *magnitudes(other, where.domain))
        shallow = len(net.folded().layers) <= 1 and (domain is None or domain.rational)
        limit = 0.0 if shallow and net.folded() is net else 1e-13 * size
        out.claim(gap <= limit, f"equal fingerprints, but they differ by {short(gap)}")


def draw_digest(rng: Rng) -> Case:
    """Two networks that differ in structure, in numbers, or only in storage."""
    return Case(_colliding(rng) if rng.random() < 0.3 else _restructured(rng), None, {})


def judge_digest(case: Case, out: Outcome) -> None:
    """Different structure or numbers, different digests."""
    first, second = case.networks
    same = _raw(first) == _raw(second)
    out.claim((first.digest == second.digest) == same, "digests do not tell the networks apart")


def _raw(net: Network) -> list:
    """Structure and numbers as plain data; zero matrices say nothing, and -0.0 is 0.0."""
    maps = [layer.affine for layer in net.layers] + [net.output]
    numbers = []
    for affine in maps:
        terms = {
            k: (m.toarray() if hasattr(m, "toarray") else np.asarray(m))
            for k, m in affine.terms.items()
        }
        kept = {k: (m + 0.0).tolist() for k, m in terms.items() if m.any()}
        numbers.append(((affine.bias + 0.0).tolist(), kept))
    return [net.input_shape, net.output_shape, [x.activation for x in net.layers], numbers]


def _restructured(rng: Rng) -> tuple[Network, Network]:
    """One thing about the structure changed, or nothing but storage."""
    net = random_network(rng, Kind(steps=True))
    draw = int(rng.integers(4))
    layers = list(net.layers)
    k = int(rng.integers(len(layers)))
    layer = layers[k]
    if draw == 0:
        layers[k] = Layer(layer.affine, Activation("leaky", slope=float(rng.choice([0.1, 0.2]))))
    elif draw == 1 and len(layers) > 1:
        k = len(layers) - 1
        terms = {
            (
                s - 1
                if s and layers[s - 1].width == (layers[s - 2].width if s > 1 else net.input_size)
                else s
            ): m
            for s, m in layers[k].affine.terms.items()
        }
        layers[k] = Layer(Affine(terms, layers[k].affine.bias), layers[k].activation)
    elif draw == 2:
        return net, copies.permuted(rng, net)
    else:
        return net, copies.perturbed(rng, net)
    return net, net.replace(layers=layers)


def _colliding(rng: Rng) -> tuple[Network, Network]:
    """Numbers of one network cut at other places: relu(x) against a constant.

    The bytes of source, row ends, columns and values of one matrix are read as biases of other
    layers, so an encoding without counts and lengths cannot tell the two apart.
    """
    value = float(rng.choice([1.0, 2.0, 0.5, 3.0]))

    def number(part: bytes) -> float:
        return struct.unpack("<d", part)[0]

    words = [
        struct.pack("<q", 0), struct.pack("<q", 1), struct.pack("<q", 0), struct.pack("<d", value),
        bytes(7) + b"0", struct.pack("<q", 0), struct.pack("<q", 1), struct.pack("<q", 0),
        struct.pack("<d", value),
    ]  # fmt: skip
    first = Network(
        [
            Layer(Affine({0: [[value]]}, [0.0])),
            Layer(Affine({}, [number(w) for w in words[4:8]])),
            Layer(Affine({}, [number(words[8])])),
        ],
        Affine({3: [[1.0]]}, [0.0]),
        input_shape=1,
    )
    stream = b"0" + b"".join(words)
    bias = [number(stream[8 * k : 8 * k + 8]) for k in range(5)]
    second = Network(
        [
            Layer(Affine({}, [0.0])),
            Layer(Affine({}, bias[:4])),
            Layer(Affine({0: [[value]]}, [bias[4]])),
        ],
        Affine({3: [[1.0]]}, [0.0]),
        input_shape=1,
    )
    return first, second
