"""Certificates: sound against rational arithmetic, replayable, and worthless once touched."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import exact_value
from planted import networks

import relunorm as rn
from relunorm.errors import InvalidInputError
from relunorm.forms.bounds import quick_bounds
from relunorm.forms.certificate import Certificate, _seal
from relunorm.forms.match import relate
from relunorm.forms.relation import LINEAR, NEW, OPPOSITE, SCALED, Relation, Walk
from relunorm.forms.verification import verify
from relunorm.network import Network
from relunorm.stability.reach import reach_of


@settings(max_examples=25)
@given(networks(max_depth=4), st.sampled_from(["minimal", "l1", "canonical", "unit"]))
def test_bound_holds_in_rational_arithmetic(network: Network, form: str) -> None:
    domain = rn.Box.cube(network.input_size)
    result = rn.normalize(network, form, domain)
    bound = result.certificate.bounds
    for x in domain.sample(3, 0):
        a, b = exact_value(network, x), exact_value(result.network, x)
        for p, q, limit in zip(a, b, bound, strict=True):
            assert abs(p - q) <= limit


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.floats(1e-9, 0.3))
def test_bound_is_sound_for_networks_that_differ(seed: int, size: float) -> None:
    """Any perturbation of any parameter: the bound must cover what sampling finds."""
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(6, 3)), rng.normal(size=(5, 6)) / 2, rng.normal(size=(2, 5)) / 2]
    biases = [rng.normal(size=n) for n in (6, 5, 2)]
    first = Network.from_weights(weights, biases)
    moved = [w + size * rng.normal(size=w.shape) * (rng.random(w.shape) < 0.3) for w in weights]
    second = Network.from_weights(moved, biases)
    reach = reach_of(rn.Box.cube(3))
    walk = relate(first, second, reach, quick_bounds(first, reach), quick_bounds(second, reach))
    x = np.vstack([rn.Box.cube(3).sample(500, 0), np.sign(rng.normal(size=(100, 3)))])
    gap = np.abs(first(x) - second(x)).max(axis=0)
    assert (gap <= walk.difference.largest).all()


class Nonsense:
    """Relates units at random: wrong partners, wrong factors, live units called linear."""

    def __init__(self, rng: np.random.Generator):
        self.rng = rng

    def __call__(self, walk, side, form, error, span) -> Relation:
        relation, rng = Relation.fresh(form.size), self.rng
        blocks = [b for b in range(1, len(walk.ranges)) if len(walk.ranges[b].lo)]
        for i in range(form.size):
            kind = rng.choice([NEW, SCALED, OPPOSITE, LINEAR])
            if kind in (SCALED, OPPOSITE) and blocks:
                relation.kind[i] = kind
                relation.block[i] = rng.choice(blocks)
                relation.index[i] = rng.integers(len(walk.ranges[relation.block[i]].lo))
                relation.factor[i] = np.exp(rng.normal())
            elif kind == LINEAR:
                relation.kind[i] = kind
                relation.factor[i] = rng.choice([0.0, 1.0, rng.normal()])
                relation.constant[i] = rng.choice([0.0, rng.normal()])
                layers = len(walk.sides[0].forms)
                if layers and rng.random() < 0.5:
                    relation.block[i] = rng.integers(layers)
                    size = walk.sides[0].forms[relation.block[i]].size
                    relation.index[i] = rng.integers(size)
        return relation


@settings(max_examples=60)
@given(networks(max_depth=4), networks(max_depth=4), st.integers(0, 2**32 - 1), st.booleans())
def test_nonsense_relations_are_never_unsound(
    first: Network, second: Network, seed: int, same: bool
) -> None:
    """Whatever a certificate claims, the bound that is recomputed covers the true difference."""
    rng = np.random.default_rng(seed)
    second = first if same else second
    if first.input_size != second.input_size or first.output_size != second.output_size:
        return
    if first.layers[0].activation != second.layers[0].activation:
        return
    domain = rn.Box.cube(first.input_size)
    walk = Walk(reach_of(domain))
    for network in (first, second):
        side = walk.add(network, quick_bounds(network, walk.reach))
        walk.run(side, Nonsense(rng))
    x = np.vstack([domain.sample(300, 0), np.sign(rng.normal(size=(50, first.input_size)))])
    gap = np.abs(first(x) - second(x)).max(axis=0)
    assert (gap <= walk.difference.largest * (1 + 1e-12) + 1e-12).all()


def test_relations_cannot_reach_outside() -> None:
    """Numbers that would wrap around in an array are refused."""
    network = Network.from_weights([np.eye(2), np.eye(2)])
    for kind, block, index in ((SCALED, -1, 0), (SCALED, 1, 5), (OPPOSITE, 0, 0), (LINEAR, 7, 0)):
        walk = Walk(reach_of(rn.Box.cube(2)))
        walk.run(
            walk.add(network, quick_bounds(network, walk.reach)), Nonsense(np.random.default_rng(0))
        )

        def decide(walk, side, form, error, span, kind=kind, block=block, index=index):
            relation = Relation.fresh(form.size)
            relation.kind[:], relation.block[:], relation.index[:] = kind, block, index
            relation.factor[:] = 1.0
            return relation

        side = walk.add(network, quick_bounds(network, walk.reach))
        with pytest.raises(InvalidInputError):
            walk.run(side, decide)


@settings(max_examples=10)
@given(networks(max_depth=3))
def test_float32_evaluation_stays_within_its_bound(network: Network) -> None:
    domain = rn.Box.cube(network.input_size)
    result = rn.normalize(network, "l1", domain)
    x = domain.sample(100, 0)
    single = [_float32(n, x) for n in (network, result.network)]
    assert np.abs(single[0] - single[1]).max() <= result.certificate.evaluated("float32")
    assert (
        np.abs(single[0] - network(x)).max()
        <= (result.certificate.to_dict()["evaluation"]["float32"]["first"])
    )


def _float32(network: Network, x: np.ndarray) -> np.ndarray:
    values = [x.astype(np.float32)]

    def affine(a) -> np.ndarray:
        total = np.tile(a.bias.astype(np.float32), (len(x), 1))
        for s, m in a.terms.items():
            total = total + values[s] @ np.asarray(m, dtype=np.float32).T
        return total

    for layer in network.layers:
        z = affine(layer.affine)
        below = np.float32(layer.activation.slopes[0])
        values.append(np.where(z > 0, z, below * z))
    return affine(network.output).astype(np.float64)


@pytest.fixture(scope="module")
def sample():
    rng = np.random.default_rng(4)
    weights = [rng.normal(size=(10, 3)), rng.normal(size=(8, 10)) / 3, rng.normal(size=(2, 8))]
    biases = [rng.normal(0, 1.5, 10), rng.normal(0, 1.0, 8), rng.normal(size=2)]
    network = Network.from_weights(weights, biases)
    result = rn.normalize(network, "minimal", rn.Box.cube(3, 0, 1))
    assert result.removed
    return network, result


def test_round_trip(sample, tmp_path) -> None:
    network, result = sample
    path = tmp_path / "proof.json"
    result.certificate.save(path)
    found = verify(Certificate.load(path), network, result.network)
    assert found.holds
    assert found.bound == result.certificate.bound < 1e-12
    path.write_text("{}")
    with pytest.raises(InvalidInputError, match="not a certificate"):
        Certificate.load(path)
    path.write_text("nonsense")
    with pytest.raises(InvalidInputError, match="JSON"):
        Certificate.load(path)


def test_other_networks_are_refused(sample) -> None:
    network, result = sample
    assert not verify(result.certificate, result.network, network).holds
    weights, biases = network.weights()
    changed = [np.array(w) for w in weights]
    changed[0][0, 0] = np.nextafter(changed[0][0, 0], 2)
    other = Network.from_weights(changed, biases)
    assert "another" in " ".join(verify(result.certificate, other, result.network).problems) or (
        not verify(result.certificate, other, result.network).holds
    )


def _leaves(node, path=()):
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _leaves(value, (*path, key))
    elif isinstance(node, list):
        for i, value in enumerate(node):
            yield from _leaves(value, (*path, i))
    elif node is not None:
        yield path, node


def _changed(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * (1 + 1e-9) + 1e-300
    return value[:-1] + ("0" if value[-1:] != "0" else "1")


def test_any_tampered_number_fails(sample) -> None:
    network, result = sample
    document = result.certificate.to_dict()
    leaves = list(_leaves(document))
    rng = np.random.default_rng(0)
    for i in rng.permutation(len(leaves))[:200]:
        path, value = leaves[i]
        forged = copy.deepcopy(document)
        node = forged
        for key in path[:-1]:
            node = node[key]
        node[path[-1]] = _changed(value)
        assert not verify(Certificate(forged), network, result.network).holds, path


def test_a_resealed_lie_fails_too(sample) -> None:
    """Recomputing the digest does not help: every bound is recomputed from the networks."""
    network, result = sample

    def resealed(edit) -> bool:
        forged = json.loads(json.dumps(result.certificate.to_dict()))
        edit(forged)
        forged["digest"] = _seal(forged)
        return verify(Certificate(forged), network, result.network).holds

    assert resealed(lambda d: None)
    assert not resealed(lambda d: d.update(bounds=[b / 2 for b in d["bounds"]]))
    assert not resealed(lambda d: d["evaluation"]["float64"].update(first=1e-18))
    assert not resealed(lambda d: d["domain"].update(hi=[2.0, 2.0, 2.0]))

    def scale(d) -> None:
        layer = d["relations"][1][0]
        i = layer["kind"].index("scaled")
        layer["factor"][i] *= 1 + 1e-6

    def wrong_partner(d) -> None:
        layer = d["relations"][1][0]
        layer["index"] = layer["index"][::-1]

    def bad_index(d) -> None:
        layer = d["relations"][1][0]
        layer["index"] = [99] * len(layer["index"])

    def call_dead(d) -> None:
        layer = d["relations"][0][0]
        i = layer["kind"].index("new")
        layer["kind"][i] = "linear"

    for edit in (scale, wrong_partner, bad_index, call_dead):
        assert not resealed(edit), edit.__name__
