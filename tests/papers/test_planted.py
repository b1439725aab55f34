"""Every verdict could have come out the other way: one planted world for each claim.

A planted world replaces one ingredient of a paper's world by a wrong one (a wrong constant, a
broken construction, shuffled data). The exhibit is the same code; the claim's verdict has to be
another one than in the real world at the same sizes.
"""

from __future__ import annotations

from functools import cache

import planted_batchnorm
import planted_dying
import planted_pieces
import planted_reduced
import planted_rescaling
import pytest

from relunorm.papers import PAPERS, exhibits, read_sample, world_of
from relunorm.papers.checklist import CHECKLIST
from relunorm.papers.exhibit import items_of

#: Paper -> item -> the laws that its planted world replaces.
PLANTED = {
    "rescaling": planted_rescaling.PLANTED,
    "reduced": planted_reduced.PLANTED,
    "dying": planted_dying.PLANTED,
    "pieces": planted_pieces.PLANTED,
    "batchnorm": planted_batchnorm.PLANTED,
}
CLAIMS = [(paper, item) for paper in PAPERS for item in CHECKLIST[paper]]


@cache
def sample(paper):
    return read_sample(paper)


@cache
def home(paper, item):
    (name,) = (name for name, make in exhibits(paper).items() if item in items_of(make))
    return name


def verdicts(paper, name, **laws):
    found = exhibits(paper)[name](world_of(paper, sample(paper), tiny=True, **laws))
    return {claim.item: claim for claim in found.claims}


@cache
def real(paper, name):
    return verdicts(paper, name)


@pytest.mark.parametrize(("paper", "item"), CLAIMS, ids=lambda part: part.replace(" ", "_"))
def test_a_planted_world_changes_the_verdict(paper, item):
    name = home(paper, item)
    before = real(paper, name)[item]
    after = verdicts(paper, name, **PLANTED[paper][item])[item]
    assert after.verdict is not before.verdict, (before.numbers, after.numbers)


@pytest.mark.parametrize("paper", PAPERS)
def test_every_claim_has_a_planted_world(paper):
    assert sorted(PLANTED[paper]) == sorted(CHECKLIST[paper])
    assert all(PLANTED[paper].values())
