"""Every verdict could have come out the other way: a planted world, or two, for each claim.

A planted world replaces one ingredient of a paper's world by a wrong one (a wrong constant, a
broken construction, shuffled data). The exhibit is the same code; the claim's verdict has to be
another one than in the real world at the same sizes, and in one of them the claim is refuted: a
verdict "not reproduced" alone would not show that it can be.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

import numpy as np
import planted_batchnorm
import planted_dying
import planted_pieces
import planted_reduced
import planted_rescaling
import pytest
from asked import asked_once

from relunorm.papers import PAPERS, exhibits, items, read_sample, statements, world_of
from relunorm.papers.claim import Verdict

#: Paper -> item -> the laws that its planted world replaces.
PLANTED = {
    "rescaling": planted_rescaling.PLANTED,
    "reduced": planted_reduced.PLANTED,
    "dying": planted_dying.PLANTED,
    "pieces": planted_pieces.PLANTED,
    "batchnorm": planted_batchnorm.PLANTED,
}
CLAIMS = [
    (paper, name, item)
    for paper in PAPERS
    for name, own in statements(paper)["exhibits"].items()
    for item in own
]


#: Laws that take long and follow from their arguments alone: worlds that keep them share answers.
SHARED = {
    "reduced": ("normalize",),
    "dying": ("basin", "trajectory"),
    "batchnorm": ("sample_counts", "symmetric_state", "train_shallow"),
}

sample = cache(read_sample)


@cache
def shared(paper):
    real = world_of(paper)
    return {name: asked_once(getattr(real, name)) for name in SHARED.get(paper, ())}


@cache
def verdicts(paper, name, **laws):
    """The claims of an exhibit in a world; several claims may share a planted one."""
    given = {**shared(paper), **laws}
    found = exhibits(paper)[name](world_of(paper, sample(paper), tiny=True, **given))
    return {claim.item: claim for claim in found.claims}


@pytest.fixture(scope="module", autouse=True)
def solved_once():
    """The linear programmes of the partition exhibit, which most of its worlds pose alike."""
    partition = import_module("relunorm.papers.pieces.proposition3")  # not its function
    margin, known = partition._margin, {}

    def remembered(rows, shifts, strict=True):
        key = rows.tobytes(), shifts.tobytes(), np.asarray(strict).tobytes()
        if key not in known:
            known[key] = margin(rows, shifts, strict)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition, "_margin", remembered)
        yield


@pytest.mark.parametrize(("paper", "name", "item"), CLAIMS)
def test_planted_worlds_change_the_verdict_and_one_refutes_the_claim(paper, name, item):
    """Every planted world changes it; a claim that stands as printed is refuted in one of them, one
    that was corrected holds as printed there, or not even corrected."""
    before = verdicts(paper, name)[item]
    planted = PLANTED[paper][item]
    worlds = planted if isinstance(planted, tuple) else (planted,)
    after = [verdicts(paper, name, **world)[item] for world in worlds]
    said = [claim.verdict for claim in after]
    assert before.verdict not in said, (before.numbers, [claim.numbers for claim in after])
    refuted = {Verdict.FAILS, Verdict.HOLDS} if before.corrected else {Verdict.FAILS}
    assert refuted & {before.verdict, *said}, [claim.numbers for claim in after]


@pytest.mark.parametrize("paper", PAPERS)
def test_every_claim_has_a_planted_world(paper):
    assert sorted(PLANTED[paper]) == sorted(items(paper))
    assert all(PLANTED[paper].values())
