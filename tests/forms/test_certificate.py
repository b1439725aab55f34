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
from relunorm.domain.reach import reach_of
from relunorm.errors import InvalidInputError
from relunorm.forms.certificate.certificate import SCHEMA, Certificate, recompute, seal, slackened
from relunorm.forms.certificate.verification import verify
from relunorm.forms.outward import quick_bounds
from relunorm.forms.relation.match import relate
from relunorm.forms.relation.relate import Walk
from relunorm.forms.relation.relation import LINEAR, NEW, OPPOSITE, SCALED, Relation
from relunorm.network import Activation, Affine, Layer, Network
from relunorm.search.proofs.entries import HEAD
from relunorm.search.proofs.entries import size as size_of_entry
from relunorm.search.proofs.tape import CLOSED, CUT, FOLDED, VERSION
from relunorm.stability.bound_proofs import SCHEMA as BOUNDS
from relunorm.stability.bound_proofs import pack, unpacked


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
        forged["digest"] = seal(forged)
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


LINE = rn.Box([-1.0], [1.0])
RAMP = Network.from_weights([[[1.0]], [[1.0]]])  # relu(x)
NIL = Network.from_weights([[[1.0]], [[1.0]]], [[-3.0], [0.0]])  # relu(x - 3), 0 on LINE
DEAD = {"kind": ["linear"], "block": [-1], "index": [-1], "factor": [0.0], "constant": [0.0]}


SIDE = {"layer": 0, "unit": 0, "sign": 1}
IN_FRACTIONS = {"kind": "rational", **SIDE, "parts": 1}
WITHOUT_A_TREE = {
    "kind": "search",
    **SIDE,
    "limit": (-1e-9).hex(),
    "tape": pack(np.array([VERSION])),
}
BY_A_SOLVER = {"kind": "milp", **SIDE, "margin": (0.0).hex()}


def called_dead(first: Network, second: Network, line: dict, schema: str = BOUNDS) -> Certificate:
    """A sealed certificate of |first - second| <= 1e-12 on LINE: both units are said to be dead."""
    proofs = {"schema": schema, "network": first.digest, "box_duals": None, "proofs": [line]}
    none = dict.fromkeys(("first", "second", "difference"))
    document = {
        "schema": SCHEMA,
        "domain": {"kind": "box", "lo": [-1.0], "hi": [1.0]},
        "networks": [{"digest": n.digest, "units": n.units} for n in (first, second)],
        "bounds": [1e-12],
        "exceptions": [],
        "evaluation": {"float32": none, "float64": none},
        "order": [0, 1],
        "proofs": [proofs, None],
        "relations": [[DEAD], [DEAD]],
        "difference": None,
        "residual": None,
        "stepwise": False,
    }
    document["digest"] = seal(document)
    return Certificate(document)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (IN_FRACTIONS, "proof in fractions of unit 0 in layer 0 does not go through"),
        (WITHOUT_A_TREE, "a part is neither closed nor cut"),
        ({**IN_FRACTIONS, "parts": 10**9}, "a size that is not searched so"),
        ({**IN_FRACTIONS, "also": 1}, "'also' is not known"),
        (BY_A_SOLVER, "kind 'milp', expected slopes, search, rational"),
    ],
)
def test_a_false_claim_of_a_unit_is_refused(line: dict, problem: str) -> None:
    found = verify(called_dead(RAMP, NIL, line), RAMP, NIL, LINE)
    assert not found.holds
    assert problem in found.problems[0]


def test_a_true_claim_in_fractions_comes_out_again() -> None:
    true = Network.from_weights([[[1.0]], [[1.0]]], [[-2.0], [0.0]])  # relu(x - 2), 0 on LINE too
    assert verify(called_dead(true, NIL, IN_FRACTIONS), true, NIL, LINE).verdict == "holds"


def test_proofs_of_an_older_version_are_refused_by_name() -> None:
    old = called_dead(RAMP, NIL, IN_FRACTIONS, "relunorm.bounds/1")
    assert "schema 'relunorm.bounds/1'" in verify(old, RAMP, NIL, LINE).problems[0]
    document = {**old.document, "schema": "relunorm.certificate/3"}
    assert "'relunorm.certificate/3'" in verify(Certificate(document), RAMP, NIL).problems[0]


def _objects(node, path=()):
    if isinstance(node, dict):
        yield path
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        if isinstance(value, dict | list):
            yield from _objects(value, (*path, key))


def _edited(document, path, edit) -> Certificate:
    forged = json.loads(json.dumps(document))
    node = forged
    for key in path:
        node = node[key]
    edit(node)
    forged["digest"] = seal(forged)
    return Certificate(forged)


@pytest.fixture(scope="module")
def proofs_of_every_kind() -> tuple[Network, Network, Certificate]:
    """A certificate over a polytope with slopes, and a branch and a split proof beside them."""
    rng = np.random.default_rng(1)
    weights = [rng.normal(size=(6, 2)), rng.normal(size=(6, 6)), rng.normal(size=(1, 6))]
    network = Network.from_weights(weights, [rng.normal(size=6), rng.normal(size=6) - 1, [0.0]])
    rows = np.vstack([np.eye(2), -np.eye(2), [[1.0, 1.0]]])
    result = rn.normalize(network, "minimal", rn.Polytope(rows, [1.0] * 4 + [1.5]))
    assert result.certificate is not None
    return network, result.network, result.certificate


@pytest.fixture(scope="module")
def searched() -> tuple[Network, Network, Certificate]:
    """Two networks that share nothing, compared so closely that their difference is searched."""
    rng = np.random.default_rng(3)
    first, second = (
        Network.from_weights(
            [rng.normal(size=(b, a)) for a, b in ((2, 8), (8, 8), (8, 2))],
            [rng.normal(size=b) for b in (8, 8, 2)],
        )
        for _ in range(2)
    )
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 501)] * 2), axis=-1).reshape(-1, 2)
    top = np.abs(first(grid) - second(grid)).max()
    found = rn.compare(first, second, rn.Box.cube(2), tolerance=1.01 * top, time_limit=None)
    assert found.verdict == "within"
    assert found.method == "branch and bound on the residual"
    assert found.certificate is not None
    assert top <= found.certificate.bound <= found.upper * (1 + 1e-9)
    return first, second, found.certificate


def test_a_search_on_the_residual_replays(searched, tmp_path) -> None:
    first, second, certificate = searched
    certificate.save(tmp_path / "c.json")
    again = Certificate.load(tmp_path / "c.json")
    assert verify(again, first, second, rn.Box.cube(2)).holds
    assert not verify(again, second, first).holds
    # without the search the rest proves less
    forged = _edited(certificate.to_dict(), ("residual",), lambda d: d.update(search=None))
    assert not verify(forged, first, second).holds


@pytest.mark.parametrize(
    ("key", "value"),
    [("limit", 0.9), ("exponent", -1), ("unit_steps", 2000), ("counts", [1, 2]), ("limit", -0.9)],
)
def test_a_search_with_another_claim_is_refused(searched, key, value) -> None:
    first, second, certificate = searched

    def edit(search) -> None:
        scaled = key in ("limit", "exponent")
        change = {"limit": lambda old: old * value, "exponent": lambda old: old + value}
        search[key] = change[key](search[key]) if scaled else value

    forged = _edited(certificate.to_dict(), ("residual", "search"), edit)
    assert not verify(forged, first, second).holds


def test_a_tape_of_another_version_on_the_residual_is_refused(searched) -> None:
    first, second, certificate = searched
    document = certificate.to_dict()
    tape = unpacked(document["residual"]["search"]["tape"])
    for old in (tape[1:], np.append(VERSION + 1, tape[1:])):
        forged = _edited(
            document, ("residual", "search"), lambda d, old=old: d.update(tape=pack(old))
        )
        assert "version" in verify(forged, first, second).problems[0]


def test_a_changed_tape_on_the_residual_is_refused(searched) -> None:
    """A leaf, a cut or a half left out, a slope, a sign or a number changed, and sealed again."""
    first, second, certificate = searched
    document = certificate.to_dict()
    tape = unpacked(document["residual"]["search"]["tape"])
    cuts, closed, at = [], [], 1
    while at < len(tape):
        size = HEAD
        if tape[at] in (CLOSED, FOLDED):
            size = size_of_entry(*map(int, tape[at + 3 : at + HEAD]))
            closed.append((at, size))
        elif tape[at] == CUT:
            cuts.append(at)
        at += size
    assert len(cuts) > 3
    rng = np.random.default_rng(0)
    for _ in range(36):
        numbers, way = tape.copy(), rng.integers(6)
        (at, size), cut = closed[rng.integers(len(closed))], cuts[rng.integers(len(cuts))]
        if way == 0:
            numbers = np.delete(numbers, slice(at, at + size))
        elif way == 1:
            numbers = np.delete(numbers, slice(cut, cut + HEAD))
        elif way == 2:
            side = cut + (4 if numbers[cut + 4] >= 0 else 5)
            numbers[side] = -1.0
        elif way == 3:
            numbers[at + 1] += 0.5
        elif way == 4:
            numbers[at + size - 1] *= -1.0
        else:
            numbers[at + 2] = 9.0
        forged = _edited(
            document,
            ("residual", "search"),
            lambda d, numbers=numbers: d.update(tape=pack(numbers)),
        )
        assert not verify(forged, first, second).holds, way


def test_unknown_keys_are_refused_everywhere(sample, proofs_of_every_kind, searched) -> None:
    network, result = sample
    step = Network.from_weights([[[3.0]], [[1.0]]], [[0.1], [0.0]], "step")
    stepped = rn.normalize(step, "unit", LINE)
    cases = [
        (network, result.network, result.certificate),
        proofs_of_every_kind,
        searched,
        (step, stepped.network, stepped.certificate),
    ]
    for first, second, certificate in cases:
        document = certificate.to_dict()
        assert verify(_edited(document, (), lambda d: None), first, second).holds
        for path in _objects(document):
            forged = _edited(document, path, lambda d: d.update(more=0))
            assert not verify(forged, first, second).holds, path


@pytest.mark.parametrize(
    ("path", "edit"),
    [
        ((), lambda d: d.update(claim="f == g everywhere")),
        (("evaluation",), lambda d: d.update(float16={"first": 0.0, "second": 0.0,
                                                      "difference": 0.0})),
        ((), lambda d: d.update(order=[False, True])),
        ((), lambda d: d.update(bounds=[])),
        ((), lambda d: d.update(bounds=[True])),
        ((), lambda d: d.update(bounds=[[1.0]])),
        ((), lambda d: d.update(bounds=[10**400])),
        (("domain",), lambda d: d.update(lo=["-1", "0", "0"])),
        (("relations", 0), lambda d: d.append(d[0])),
        (("relations", 1, 0, "block"), lambda d: d.__setitem__(0, d[0] + 0.7)),
        (("relations", 1, 0, "factor"), lambda d: d.__setitem__(0, "1.0")),
        (("exceptions",), lambda d: d.append({"network": 0, "layer": 0, "unit": 0,
                                              "margin": 1.0})),
        ((), lambda d: d.update(schema="relunorm.certificate/2")),
    ],
)  # fmt: skip
def test_a_document_of_another_shape_is_refused(sample, path, edit) -> None:
    network, result = sample
    forged = _edited(result.certificate.to_dict(), path, edit)
    found = verify(forged, network, result.network)
    assert not found.holds
    assert found.problems


def test_a_key_given_twice_is_refused(sample, tmp_path) -> None:
    path = tmp_path / "proof.json"
    text = json.dumps(sample[1].certificate.to_dict())
    path.write_text('{"bounds": [0.0, 0.0], ' + text[1:])
    with pytest.raises(InvalidInputError, match="twice"):
        Certificate.load(path)
    path.write_text("[" * 100_000)
    with pytest.raises(InvalidInputError, match="JSON"):
        Certificate.load(path)


def test_evaluated_knows_two_types(sample) -> None:
    with pytest.raises(InvalidInputError, match="float16"):
        sample[1].certificate.evaluated("float16")


def test_what_is_stated_is_what_is_recomputed() -> None:
    """The walk that was kept used bounds that a later question had replaced by looser ones."""
    maps = [
        ([[1.97e-06], [0.000444], [-0.000444]], [0.0, 0.0, 1.71e-13]),
        (
            [
                [0.0421, -0.0755, -0.0815],
                [-1.66e-05, 0.000255, -6.74e-05],
                [0.000353, 3.92e-05, 0.000125],
                [-98300.0, -3920000.0, -8750000.0],
                [184000.0, 59900.0, 772000.0],
                [-5.75e-05, -2.6e-05, -4.97e-05],
            ],
            [0.0] * 6,
        ),
        (
            [
                [-33.2, 10.9, -7.89, -2.79, -46.3, 28.9],
                [-4300.0, -6700.0, -1850.0, -754.0, -4920.0, 441.0],
                [-43500.0, -472000.0, -444000.0, 950000.0, -1120000.0, 317000.0],
                [2.01e-07, 4.59e-08, 2.62e-08, 7.14e-08, -1.65e-08, 5.66e-08],
            ],
            [0.0, 0.0, 0.0, -1000.0],
        ),
        ([[-98e6, -16.6e6, -69.4e6, -17.4e6], [1.8e6, 9.51e6, -5.73e6, 3.47e6]], [0.0, 0.0]),
    ]
    affine = [Affine({k: matrix}, bias) for k, (matrix, bias) in enumerate(maps)]
    kinds = (Activation("relu"), Activation("leaky", slope=1.0), Activation("relu"))
    layers = [Layer(a, kind) for a, kind in zip(affine, kinds, strict=False)]
    network = Network(layers, affine[-1], input_shape=1)
    result = rn.normalize(network, "unit", rn.Box([-0.001], [0.001]), pure=True)
    assert result.certificate is not None
    found = verify(result.certificate, network, result.network)
    assert found.holds, found.problems


@settings(max_examples=25)
@given(networks(), st.sampled_from(["minimal", "unit", "bounded", "canonical"]))
def test_prover_and_checker_compute_the_same(network: Network, form: str) -> None:
    domain = rn.Box.cube(network.input_size)
    result = rn.normalize(network, form, domain)
    document = result.certificate.document
    parts = [document[key] for key in ("proofs", "order", "relations")]
    again = recompute(reach_of(domain), (network, result.network), *parts)
    assert [slackened(v) for v in again.bounds] == document["bounds"]
    assert again.evaluation(np.array(document["bounds"])) == document["evaluation"]


@pytest.mark.parametrize("norm", [1, 2])
def test_neighbourhoods_within_a_box_are_certified(norm: int, tmp_path) -> None:
    rng = np.random.default_rng(norm)
    weights = [rng.normal(size=(6, 2)), rng.normal(size=(1, 6))]
    network = Network.from_weights(weights, [rng.normal(size=6), [0.0]])
    ball = rn.NormBall([0.1, 0.2], 0.7, norm, rn.Box([-0.5, -0.5], [0.5, 0.5]))
    found = rn.normalize(network, "minimal", ball)
    assert found.certificate is not None
    found.certificate.save(tmp_path / "c.json")
    certificate = Certificate.load(tmp_path / "c.json")
    assert verify(certificate, network, found.network, ball).holds
    larger = rn.NormBall([0.1, 0.2], 0.8, norm, rn.Box([-0.5, -0.5], [0.5, 0.5]))
    assert not verify(certificate, network, found.network, larger).holds
    points = ball.sample(200, 0)
    assert np.abs(network(points) - found.network(points)).max() <= certificate.bound
