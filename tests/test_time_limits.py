"""Every function that takes a time limit stops wherever its clock runs out, and says what it has.

The clock here is moved by being looked at: it runs out at the n-th look, so that every place that
looks is a place where some test stops. What comes back is checked against points of the domain.
"""

from __future__ import annotations

import inspect
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

import relunorm as rn
from relunorm.batchnorm import gamma, propagate
from relunorm.clock import NO_LIMIT, Clock
from relunorm.errors import InvalidInputError, TimeLimitError
from relunorm.questions.vnnlib import parse_vnnlib
from relunorm.stability import replay, stability

BOX = rn.Box(-np.ones(4), np.ones(4))
POINTS = np.random.default_rng(1).uniform(-1, 1, (500, 4))
#: Looks at the clock before it runs out.
LOOKS = [1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377]


class Looks:
    """A monotonic clock that stands still until it was read so often, and is late from then on."""

    def __init__(self, count: int):
        self.left = count

    def __call__(self) -> float:
        self.left -= 1
        return 0.0 if self.left >= 0 else 1e6


def clock(looks: int) -> Clock:
    return Clock(1.0, Looks(looks))


def network(seed: int = 0) -> rn.Network:
    """Some units are dead over the box, some always active, most change sign."""
    rng = np.random.default_rng(seed)
    sizes = (4, 10, 8, 2)
    weights = [rng.normal(size=(b, a)) for a, b in pairwise(sizes)]
    biases = [rng.normal(size=b) for b in sizes[1:]]
    biases[0][:2] = -20, 20
    biases[1][:2] = -200, 200
    return rn.Network.from_weights(weights, biases)


NET = network()
VALUES = NET(POINTS)
PROPERTY = parse_vnnlib(
    "".join(f"(declare-const X_{i} Real)\n" for i in range(4))
    + "".join(f"(declare-const Y_{i} Real)\n" for i in range(NET.output_size))
    + "".join(f"(assert (>= X_{i} -1))\n(assert (<= X_{i} 1))\n" for i in range(4))
    + "(assert (>= Y_0 1000))\n"
)


@cache
def all_regions(method):
    return {row.tobytes() for row in rn.regions(NET, BOX, method=method).packed}


@pytest.mark.parametrize("looks", LOOKS)
@pytest.mark.parametrize("method", ["tree", "cells"])
@pytest.mark.parametrize("workers", [1, 2])
def test_regions(looks, method, workers):
    whole = all_regions(method)
    found = rn.regions(NET, BOX, method=method, time_limit=clock(looks), workers=workers)
    some = {row.tobytes() for row in found.packed}
    assert some <= whole
    assert len(some) == len(found)
    assert found.complete == (some == whole)
    if not found.complete:
        assert found.reason == "time limit"
    if len(found):
        A, c = found.affine()
        value = np.einsum("nod,nd->no", A, found.points) + c
        np.testing.assert_allclose(value, NET(found.points), atol=1e-8)


def test_a_search_cut_off_inside_a_kernel_is_not_complete():
    from relunorm.regions.kernels.tree_state import CUT_OFF
    from relunorm.regions.search.engines import CellWork, TreeWork
    from relunorm.regions.search.window import open_window

    window, stop = open_window(NET, BOX), np.ones(1, np.uint8)
    work = TreeWork.start(window.pack(NET), window, stop)
    assert work.advance(10) == 0
    assert work.more()
    assert work._search.at[CUT_OFF]
    work = CellWork.start(window.pack(NET, by_columns=True), window, stop)
    assert work.advance(10) == 0
    assert work.more()
    stop[0] = 0  # these go on
    assert work.advance(10)


@pytest.mark.parametrize("looks", LOOKS)
@pytest.mark.parametrize("form", ["one form", "too large for one"])
def test_maximize(looks, form, monkeypatch):
    if form == "too large for one":
        monkeypatch.setattr("relunorm.bounds.nodes.form.MOST_ENTRIES", 0)
    found = rn.maximize(NET, BOX, 0, clock(looks))
    assert found.lower == pytest.approx(float(NET(np.asarray(found.point))[0]), abs=1e-9)
    assert found.upper >= VALUES[:, 0].max()
    assert bool(BOX.contains(np.asarray(found.point))[0])
    assert found.exact or not found.complete


@cache
def highest():
    return float(rn.maximize(NET, BOX, 0, None).upper)


@pytest.mark.parametrize("looks", LOOKS)
@pytest.mark.parametrize("form", ["one form", "too large for one"])
def test_decide(looks, form, monkeypatch):
    if form == "too large for one":
        monkeypatch.setattr("relunorm.bounds.nodes.form.MOST_ENTRIES", 0)
    top = highest()
    never = rn.decide(NET, BOX, [[-1.0, 0.0]], [-top - 1], clock(looks))
    assert never.verdict in ("proved", "unknown")
    there = rn.decide(NET, BOX, [[-1.0, 0.0]], [-float(VALUES[:, 0].max())], clock(looks))
    assert there.verdict in ("counterexample", "unknown")


@pytest.mark.parametrize("looks", LOOKS)
@pytest.mark.parametrize("domain", [BOX, None])
def test_lipschitz(looks, domain):
    norms = np.linalg.norm(NET.jacobian(POINTS), 2, axis=(1, 2))
    for method in ("auto", "branch", "enumeration"):
        found = rn.lipschitz(NET, domain, 2, clock(looks), method)
        assert found.lower <= found.upper
        assert found.upper >= norms.max() * (1 - 1e-12)
        assert found.exact or not found.complete or method == "auto"


def contradicted(found, z) -> bool:
    for layer, values in zip(found.layers, z, strict=True):
        dead, active = layer.verdict == "dead", layer.verdict == "active"
        if (values[:, dead] > 0).any() or (values[:, active] < 0).any():
            return True
        if (values < layer.lower - 1e-12).any() or (values > layer.upper + 1e-12).any():
            return True
    return False


@pytest.mark.parametrize("looks", LOOKS)
@pytest.mark.parametrize("domain", [BOX, rn.Ball(np.zeros(4), 1.0)], ids=["box", "ball"])
def test_stability(looks, domain):
    found = stability(NET, domain, time_limit=clock(looks))
    inside = POINTS[domain.contains(POINTS)]
    assert not contradicted(found, NET.preactivations(inside))
    assert found.complete == (not found.undecided)
    again = replay(NET, domain, found.proofs)  # what was proved in time replays without a clock
    for layer, lower, upper in zip(found.layers, again.lower, again.upper, strict=True):
        assert (lower >= layer.lower - 1e-9).all()
        assert (upper <= layer.upper + 1e-9).all()


@pytest.mark.parametrize("looks", LOOKS)
@pytest.mark.parametrize("form", ["minimal", "canonical", "bounded"])
def test_normalize(looks, form):
    found = rn.normalize(NET, form, BOX, time_limit=clock(looks))
    apart = np.abs(found.network(POINTS) - VALUES).max()
    assert apart < 1e-9
    if found.certificate is None:
        assert found.stopped == "time limit"
        assert "stopped: time limit" in repr(found)
    else:
        assert apart <= found.certificate.bound + 1e-12
    assert found.to_dict()["stopped"] == found.stopped


@pytest.mark.parametrize("looks", LOOKS)
def test_normalize_spends_its_budget_only_with_a_proof(looks):
    found = rn.normalize(NET, "minimal", BOX, eps=0.5, time_limit=clock(looks))
    assert np.abs(found.network(POINTS) - VALUES).max() <= 0.5
    if found.certificate is None:
        assert found.network is NET


def test_expired_normalize_still_rescales():
    found = rn.normalize(NET, "unit", BOX, eps=1e-6, time_limit=1e-9)
    for layer in found.network.layers:
        assert np.linalg.norm(
            np.hstack(list(layer.affine.terms.values())), axis=1
        ) == pytest.approx(1)


@pytest.mark.parametrize("looks", LOOKS)
def test_fingerprint_is_whole_or_an_error(looks):
    try:
        found = rn.fingerprint(NET, BOX, time_limit=clock(looks))
    except TimeLimitError:
        return
    assert len(found) == len(rn.fingerprint(NET, BOX))


@cache
def rescaled():
    return rn.normalize(NET, "unit", BOX).network


@pytest.mark.parametrize("looks", LOOKS)
def test_compare(looks):
    copy = rescaled()
    found = rn.compare(NET, copy, BOX, time_limit=clock(looks))
    assert found.verdict in ("equal", "within", "unknown")
    assert found.upper >= np.abs(copy(POINTS) - VALUES).max()
    moved = NET.replace(output=rn.Affine(NET.output.terms, NET.output.bias + 1e-3))
    found = rn.compare(NET, moved, BOX, tolerance=1e-4, time_limit=clock(looks))
    assert found.verdict in ("different", "unknown")
    found = rn.compare(NET, moved, BOX, tolerance=1e-2, time_limit=clock(looks))
    assert found.verdict in ("within", "unknown")
    assert found.verdict == "within" or "time limit" in found.method


@pytest.mark.parametrize("looks", LOOKS)
def test_lines_planes_and_cells(looks, monkeypatch):
    from relunorm.regions import lines

    monkeypatch.setattr(lines, "MANY_UNITS", 0)
    whole = rn.along(NET, POINTS[:6])
    line = rn.along(NET, POINTS[:6], time_limit=clock(looks))
    assert line.complete or line.reason == "time limit"
    assert 0 < len(line) <= len(whole)
    t = np.linspace(0, len(line.vertices) - 1, 50)
    np.testing.assert_allclose(line(t), NET(line.points(t)), atol=1e-9)
    seen = rn.on_plane(NET, *POINTS[:3], time_limit=clock(looks)).regions
    assert seen.complete or seen.reason == "time limit"


@pytest.mark.parametrize("looks", LOOKS)
def test_a_large_cell_keeps_its_rows(looks):
    rng = np.random.default_rng(0)
    net = rn.Network.from_weights([rng.normal(size=(40, 26)), rng.normal(size=(1, 40))])
    region = rn.region_at(net, rng.uniform(-1, 1, 26))
    cell = region.reduced_polytope(clock(looks))
    near = region.x + 0.1 * rng.normal(size=(300, 26))
    same = [(net.pattern(x) == region.pattern).all() for x in near]
    np.testing.assert_array_equal(cell.contains(near), same)


@pytest.mark.parametrize("looks", LOOKS)
def test_diagnose(looks):
    found = rn.diagnose(NET, POINTS, domain=BOX, time_limit=clock(looks))
    assert len(found.layers) == 2


@pytest.mark.parametrize("looks", [1, 3, 10, 30, 100, 300])
@pytest.mark.parametrize("solver", ["exact", "greedy", "deep", "adam", "bfgs"])
def test_training(looks, solver):
    x = np.linspace(-1, 1, 60)[:, None]
    model = rn.ReLURegressor(hidden=4, solver=solver, random_state=0, time_limit=1.0)
    model.time_limit = clock(looks)
    model.fit(x, np.sin(3 * x[:, 0]))
    assert np.isfinite(model.predict(x)).all()
    assert model.stopped_ in ("", "time limit")


@pytest.mark.parametrize("looks", [1, 2, 4, 8, 16, 32])
def test_batch_normalization(looks):
    run = propagate(POINTS[:5], 10, 20, time_limit=clock(looks))
    assert run.complete == (run.layers == 10)
    found = gamma(POINTS[:9], time_limit=clock(looks))
    assert found.cells >= 2


@pytest.mark.parametrize("looks", [1, 2, 4, 8])
def test_sweeps(looks):
    def square(x):
        return {"y": x * x}

    found = rn.sweep(square, [{"x": k} for k in range(6)], time_limit=clock(looks))
    assert found.complete or found.stopped == "time limit"
    assert [row["y"] for row in found.table()] == [row["x"] ** 2 for row in found.table()]


#: Everything public that takes a time limit, wherever it lives.
PUBLIC = {name: getattr(rn, name) for name in rn.__all__}
PUBLIC |= {"gamma": gamma, "propagate": propagate, "stability": stability}
LIMITED = sorted(
    name
    for name, value in PUBLIC.items()
    if callable(value) and "time_limit" in inspect.signature(value).parameters
)


def call(name: str, limit: object) -> object:
    """A function with little to do under a time limit."""
    given = {
        "along": (NET, POINTS[0], POINTS[1]),
        "certify": (NET, POINTS[:2], 0.1),
        "check": (NET, PROPERTY),
        "compare": (NET, NET, BOX),
        "decide": (NET, BOX, [[1.0, 0.0]], [0.0]),
        "diagnose": (NET, POINTS[:20], None, BOX),
        "gamma": (POINTS[:4],),
        "maximize": (NET, BOX, 0),
        "never_smallest": (NET, BOX, 0),
        "propagate": (POINTS[:5], 3, 4),
        "report": (NET, POINTS[:20]),
        "sweep": (lambda x: {"y": x}, [{"x": 1}]),
    }
    if name == "ReLURegressor":
        model = rn.ReLURegressor(hidden=3, random_state=0, time_limit=limit)
        return model.fit(POINTS[:, :1], POINTS[:, 1])
    if name == "ReLUClassifier":
        model = rn.ReLUClassifier(hidden=3, alpha=0.1, n_init=1, random_state=0, time_limit=limit)
        return model.fit(POINTS[:, :1], (POINTS[:, 1] > POINTS[:, 1].mean()).astype(int))
    if name == "normalize":
        return rn.normalize(NET, "minimal", BOX, time_limit=limit)
    return PUBLIC[name](*given.get(name, (NET, BOX)), time_limit=limit)


def test_the_list_is_whole():
    assert len(LIMITED) >= 16
    assert {"regions", "lipschitz", "report", "sweep"} <= set(LIMITED)


@pytest.mark.parametrize("name", LIMITED)
@pytest.mark.parametrize("limit", [-1, -1e-9, np.nan, True, "1", [1.0]], ids=repr)
def test_one_rule_for_what_a_limit_may_be(name, limit):
    with pytest.raises(InvalidInputError, match=r"time_limit is .*, expected a number of seconds"):
        call(name, limit)


@pytest.mark.parametrize("name", LIMITED)
def test_a_limit_of_zero_asks_for_what_can_be_had_at_once(name):
    try:
        assert call(name, 0) is not None
    except TimeLimitError:
        assert name == "fingerprint"


def test_no_limit_is_none_or_infinite():
    for limit in (None, np.inf, NO_LIMIT):
        assert rn.regions(NET, BOX, time_limit=limit).complete
