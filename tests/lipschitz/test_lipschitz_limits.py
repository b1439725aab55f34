"""Time limits: every interval is sound, and what time did not suffice for is said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from relunorm import Box, Network, lipschitz
from relunorm.clock import Clock, Progress
from relunorm.errors import InvalidInputError
from relunorm.lipschitz import front, norms
from relunorm.lipschitz.methods import sdp
from relunorm.lipschitz.norms import Deadline, operator_norm


@pytest.mark.parametrize("seed", range(30))
def test_rough_norms_are_upper_bounds_and_not_far_off(seed):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=rng.integers(1, 40, 2))
    if seed % 2:
        matrix = sp.csr_array(matrix * (rng.random(matrix.shape) < 0.3))
    exact = np.linalg.norm(matrix.toarray() if seed % 2 else matrix, 2)
    late = Deadline(Clock(0))
    rough = operator_norm(matrix, 2.0, late)
    assert late.rough == 1
    assert exact <= rough <= 2 * exact
    soon = Deadline(Clock(60))
    assert operator_norm(matrix, 2.0, soon) == operator_norm(matrix, 2.0)
    assert soon.rough == 0


def test_a_rough_norm_spends_no_more_than_it_may(monkeypatch):
    matrix = np.random.default_rng(0).normal(size=(20, 30))
    monkeypatch.setattr(norms, "ROUGH_WORK", 0.0)
    bound = norms.nonnegative_spectral_bound(np.abs(matrix))
    assert operator_norm(matrix, 2.0, Deadline(Clock(0))) == bound


@pytest.mark.parametrize("norm", [1, 2, np.inf])
def test_an_interval_in_no_time_holds_the_constant(norm):
    rng = np.random.default_rng(3)
    weights = [rng.normal(size=(12, 3)), rng.normal(size=(12, 12)), rng.normal(size=(2, 12))]
    net = Network.from_weights(weights, [rng.normal(size=w.shape[0]) for w in weights])
    box = Box(np.full(3, -0.2), np.full(3, 0.2))
    exact = lipschitz(net, box, norm=norm, time_limit=None, method="branch")
    assert exact.exact
    hurried = lipschitz(net, box, norm=norm, time_limit=1e-9)
    assert hurried.lower <= exact.upper
    assert exact.lower <= hurried.upper < np.inf
    if norm == 2:
        assert "time limit" in next(b.note for b in hurried.bounds if b.method == "norm product")


def test_lipsdp_that_cannot_begin_in_time_is_skipped_with_a_note(monkeypatch):
    monkeypatch.setattr(sdp, "STEPS_AT_LEAST", 1e12)
    rng = np.random.default_rng(4)
    net = Network.from_weights([rng.normal(size=(6, 3)), rng.normal(size=(1, 6))])
    result = lipschitz(net, Box.cube(3), time_limit=5, method="sdp")
    (skipped,) = [b for b in result.bounds if b.method == sdp.METHOD]
    assert np.isnan(skipped.value)
    assert "time limit" in skipped.note
    assert result.lower > 0
    assert result.upper == np.inf


@pytest.mark.parametrize("domain", [None, Box.cube(3)])
def test_the_search_may_stop_anywhere(monkeypatch, domain):
    """Slices without time end at the first look at the clock; the answer is the same."""
    from relunorm.lipschitz.methods import branch
    from relunorm.lipschitz.search.setting import Setting

    rng = np.random.default_rng(2)
    shapes = ((7, 3), (6, 7), (2, 6))
    net = Network.from_weights([rng.standard_normal(s) for s in shapes], None)
    whole = branch.branch_and_bound(Setting.of(net, domain))
    looks: list[Progress] = []
    monkeypatch.setattr(branch, "SLICE", 1e-4)
    monkeypatch.setattr("relunorm.clock.PACE", 0.0)
    parts = branch.branch_and_bound(Setting.of(net, domain), progress=looks.append)
    assert parts.lower == pytest.approx(whole.lower, rel=1e-12)
    assert parts.upper == pytest.approx(whole.upper, rel=1e-12)
    assert parts.finished
    early = looks[: len(looks) // 8] if domain is not None else []
    assert all(said.facts["upper"] >= whole.lower for said in early)
    assert len(looks) > 10


@pytest.mark.parametrize("seed", [-1, None, 1.5])
def test_a_seed_that_is_none_is_refused(seed):
    with pytest.raises(InvalidInputError, match="random_state is"):
        lipschitz(Network.from_weights([[[1.0]], [[1.0]]]), random_state=seed)


def test_a_bound_that_is_taken_back_leaves_no_proof(monkeypatch):
    """A search that has missed a region: the slope of |x| is 1, and it says 0.5."""
    network, box = Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]]), Box([-1.0], [1.0])
    search = front.branch_and_bound
    monkeypatch.setattr(
        front, "branch_and_bound", lambda *given: replace(search(*given), lower=0.0, upper=0.5)
    )
    found = lipschitz(network, box, method="branch")
    assert found.lower <= 1.0 <= found.upper
    assert found.certificate is None


def test_a_first_look_is_not_called_a_time_limit(monkeypatch):
    """Without a limit nothing is stopped by it, and the row that is whole has no note."""
    monkeypatch.setattr(front, "FIRST_LOOK", 0.0)
    rng = np.random.default_rng(2)
    weights = [rng.normal(size=s) for s in ((7, 3), (6, 7), (2, 6))]
    net = Network.from_weights(weights, [rng.normal(size=len(w)) for w in weights])
    found = lipschitz(net, Box.cube(3), time_limit=None)
    notes = [b.note for b in found.bounds if b.method == front.BRANCH and b.side == "upper"]
    assert notes == [front.LOOKED, ""]
    late = lipschitz(net, Box.cube(3), time_limit=1e-9, method="branch")
    assert late.bounds[-1].note == front.LIMITED
