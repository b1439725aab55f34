"""Verdicts follow from numbers, and every item of the papers has a row that decides it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from relunorm.errors import InvalidInputError
from relunorm.network import Network
from relunorm.papers import (
    PAPERS,
    TITLES,
    Check,
    Claim,
    Exhibit,
    Sample,
    Verdict,
    batchnorm_theorems,
    dying_claims,
    dying_unit,
    exhibits,
    pieces,
    pieces_maps,
    reduced_claims,
    reduced_depth,
    rescaling,
)
from relunorm.papers.checklist import CHECKLIST
from relunorm.papers.exhibit import items_of, judged, shows
from relunorm.papers.run import code_of

ROOT = Path(__file__).parents[2]
SEEDS = ROOT.parent / "shared" / "seeds"

#: Exhibits of a second or less; the others train networks or enumerate many.
QUICK = [
    *(("rescaling", n) for n in ("lemma1", "uniqueness", "several_outputs")),
    *(("reduced", n) for n in ("identities", "unit_rows", "thresholds", "depth", "derived")),
    *(("dying", n) for n in ("figure2", "setting", "affine", "unit", "appendix_c", "scaling")),
    *(("pieces", n) for n in ("figures12", "examples", "partition", "atoms", "theorem6")),
    *(("pieces", n) for n in ("gradients",)),
    *(("batchnorm", n) for n in ("rank", "tree", "invariance", "theorem3", "theorem13")),
]


def passing(what="x"):
    return Check(what, 0.0, "<=", 1.0)


def failing(what="x"):
    return Check(what, 2.0, "<=", 1.0)


@pytest.mark.parametrize(
    ("relation", "value", "passed"),
    [
        ("<=", 1.0, True),
        ("<=", 1.1, False),
        ("<", 1.0, False),
        (">=", 1.0, True),
        (">", 1.0, False),
        ("=", 1.05, True),
        ("=", 1.2, False),
    ],
)
def test_checks_compare(relation, value, passed):
    assert Check("x", value, relation, 1.0, 0.1).passed is passed
    assert not Check("x", float("nan"), relation, 1.0, 0.1).passed


def test_an_unknown_relation_is_refused():
    with pytest.raises(InvalidInputError, match="relation"):
        Check("x", 1.0, "==", 1.0)  # type: ignore[arg-type]


def test_a_verdict_follows_from_the_checks():
    def verdict(*checks, short=""):
        return Claim("i", "p", checks[0], "c", *checks[1:], short=short).verdict

    assert verdict(passing()) is Verdict.HOLDS
    assert verdict(passing(), failing()) is Verdict.HOLDS
    assert verdict(failing(), passing()) is Verdict.CORRECTED
    assert verdict(failing(), passing(), short="few steps") is Verdict.CORRECTED
    assert verdict(failing()) is Verdict.FAILS
    assert verdict(failing(), failing()) is Verdict.FAILS
    assert verdict(failing(), failing(), short="few steps") is Verdict.SHORT


@pytest.mark.parametrize("paper", PAPERS)
def test_the_rows_cover_the_checklist(paper):
    declared = [item for make in exhibits(paper).values() for item in items_of(make)]
    assert sorted(declared) == sorted(CHECKLIST[paper])  # none missing, none twice
    assert all(items_of(make) for make in exhibits(paper).values())
    assert set(CHECKLIST) == set(PAPERS) == set(TITLES)


NUMBERED = re.compile(
    r"\b(Figure|Fig\.|Theorem|THEOREM|Lemma|Proposition|PROPOSITION|Corollary|COROLLARY|Definition"
    r"|Example) (D\.1|C\.\d|\d\.\d|\d+)\b"
)
#: Cited from other papers: their numbers are not items here.
FOREIGN = {"Lemma 5"}
#: Definitions that claim nothing, and the one figure that is a diagram of the sections.
NO_CLAIM = {"Definition 5", "Definition 6", "Definition 8", "Definition 9", "Figure 4."}


@pytest.mark.skipif(not SEEDS.is_dir(), reason="the seed papers are not beside the repository")
@pytest.mark.parametrize(("paper", "number"), list(zip(PAPERS, range(5), strict=True)))
def test_the_checklist_covers_the_paper(paper, number):
    """Every numbered statement that the paper's text mentions has an item of that name."""
    (file,) = SEEDS.glob(f"{number:03d}_*.txt")
    text = file.read_text(encoding="utf-8").split("\nReferences\n")[0]
    full = file.read_text(encoding="utf-8")
    names = {f"{kind.title().replace('Fig.', 'Figure')} {n}" for kind, n in NUMBERED.findall(full)}
    names -= FOREIGN | NO_CLAIM
    assert text
    items = " | ".join(CHECKLIST[paper])
    missing = {name for name in names if not re.search(rf"{re.escape(name)}(?!\d)", items)}
    assert missing <= {"Definition 1"} | ({"Theorem 1"} if paper == "reduced" else set())


def column_free(claim):
    return claim.verdict is (Verdict.CORRECTED if claim.corrected else Verdict.HOLDS)


@pytest.mark.parametrize(("paper", "name"), QUICK)
def test_verdicts_of_the_exact_exhibits(paper, name):
    """What is corrected does not hold as printed and does as corrected; the rest holds."""
    make = exhibits(paper)[name]
    found = make(Sample.digits())
    assert {claim.item for claim in found.claims} == set(items_of(make))
    wrong = [(c.item, c.verdict.value, c.numbers) for c in found.claims if not column_free(c)]
    assert not wrong
    assert all(claim.printed for claim in found.claims)


def verdicts(exhibit):
    return {claim.item: claim.verdict for claim in exhibit.claims}


def test_a_wrong_form_flips_the_verdict(monkeypatch):
    real = rescaling.normalize

    def inverted(network, form, *args, **kwargs):
        found = real(network, form, *args, **kwargs)
        return replace(found, network=rescaling.printed_construction(network))

    monkeypatch.setattr(rescaling, "normalize", inverted)
    found = verdicts(rescaling.lemma1())
    assert found["Lemma 1, existence"] is Verdict.FAILS
    assert found["Lemma 1, construction"] is Verdict.FAILS


def test_a_wrong_bound_flips_the_verdict(monkeypatch):
    monkeypatch.setattr(reduced_depth, "_counterexample", lambda: (1.9, 4.9))
    assert verdicts(reduced_depth.depth())["(4.5) thresholds at depth"] is Verdict.HOLDS
    monkeypatch.setattr(reduced_depth, "_counterexample", lambda: (5.0, 4.9))
    assert verdicts(reduced_depth.depth())["(4.5) thresholds at depth"] is Verdict.FAILS


def test_the_printed_cone_in_the_library_flips_the_verdict(monkeypatch):
    right = dying_unit.dead_below
    monkeypatch.setattr(dying_unit, "dead_below", lambda eps: -right(eps))
    assert verdicts(dying_unit.unit())["after (23): dead cone"] is not Verdict.CORRECTED


def test_a_wrong_gradient_flips_the_verdict(monkeypatch):
    right = dying_unit.gradient

    def wrong(*args, **kwargs):
        gw, gb = right(*args, **kwargs)
        return gw, gb + 1e-3

    monkeypatch.setattr(dying_unit, "gradient", wrong)
    found = verdicts(dying_unit.unit())
    assert found["(25)-(26) gradients"] is Verdict.FAILS
    assert found["(27)-(29) rotated gradients"] is Verdict.FAILS


def test_a_wrong_kernel_and_a_wrong_derivative_flip_the_verdict(monkeypatch):
    right = batchnorm_theorems.kernel_gram
    monkeypatch.setattr(batchnorm_theorems, "kernel_gram", lambda gram: 1.1 * right(gram))
    found = verdicts(batchnorm_theorems.invariance(Sample.digits()))
    assert found["(111) arc-cosine kernel"] is Verdict.FAILS
    monkeypatch.setattr(pieces_maps, "_torch_derivative", lambda: 1.0)
    assert verdicts(pieces_maps.gradients())["(13) derivative at 0"] is Verdict.HOLDS


def test_a_lost_region_flips_the_verdict(monkeypatch):
    right = pieces.regions

    def lossy(net, box):
        found = right(net, box)
        return found.select(np.arange(len(found) - 1))

    monkeypatch.setattr(pieces, "regions", lossy)
    found = verdicts(pieces.examples())
    assert found["erratum: configurations need an interior"] is Verdict.FAILS


COLUMNS = (
    "run", "train MSE median", "lower quartile", "upper quartile", "validation median",
    "failures", "starts", "better than unconstrained", "sign test p",
)  # fmt: skip


@pytest.mark.parametrize(
    ("wins", "p", "expected"),
    [(10, 0.002, Verdict.HOLDS), (6, 0.75, Verdict.SHORT), (0, 0.002, Verdict.FAILS)],
)
def test_training_verdicts_follow_the_sign_test(wins, p, expected):
    rows = (
        ("unconstrained", 1.0, 0.5, 2.0, 1.0, 0, 10, 0, float("nan")),
        ("constrained", 0.5, 0.4, 0.8, 1.0, 0, 10, wins, p),
    )
    found = Exhibit("figure5.1", "t", COLUMNS, rows)
    first, spread = reduced_claims.figure51(found, False)
    assert first.verdict is expected
    assert spread.verdict is Verdict.HOLDS


def test_figure_verdicts_follow_the_table():
    columns = ("optimizer", "gamma", "MSE / gamma^2", "dead %")

    def judge(adam, bare, sgd, full=False):
        dead = {"adam": adam, "adam beta1=0": bare, "sgd": sgd}
        rows = [(o, g, 1 / g, d * (g < 1)) for o, d in dead.items() for g in (1e-4, 1.0)]
        found = Exhibit("figure1", "t", columns, tuple(rows), settings={"updates": 100})
        return [claim.verdict for claim in dying_claims.figure1(found, full)]

    assert judge(10.0, 20.0, 0.0) == [Verdict.HOLDS, Verdict.HOLDS, Verdict.CORRECTED]
    assert judge(10.0, 5.0, 0.0) == [Verdict.HOLDS] * 3
    assert judge(0.0, 0.0, 0.0)[1] is Verdict.SHORT
    assert judge(0.0, 0.0, 0.0, full=True)[1] is Verdict.FAILS


def test_judged_keeps_the_code_and_the_items():
    @shows("one", cost=3)
    def judge(found, full):
        return [Claim("one", "p", passing())]

    made = judged(rescaling.lemma1, judge)
    assert items_of(made) == ("one",)
    assert [claim.item for claim in made().claims] == ["one"]
    first, second = code_of(made)
    assert first["name"] == "relunorm.papers.rescaling.lemma1"
    assert re.fullmatch(r"src/relunorm/papers/rescaling\.py:\d+", first["place"])
    assert "def judge" in second["text"]


def test_every_exhibit_of_the_errata_page_exists():
    text = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
    named = re.findall(r"`papers ([a-z]+) ([\w.]+)`", text)
    assert len(named) > 50
    for paper, name in named:
        assert name in exhibits(paper), (paper, name)


def test_column_and_value():
    found = Exhibit("e", "t", ("a b", "c"), ((1, 2.0), (2, 3.0), (2, 4.0)))
    assert found.column("c", a_b=2) == [3.0, 4.0]
    assert found.value("c", a_b=1) == 2.0
    with pytest.raises(InvalidInputError, match="expected one"):
        found.value("c", a_b=2)


def test_the_printed_construction_is_the_printed_one():
    net = Network.from_weights([[[2.0]], [[4.0]]], [[8.0], [0.0]])
    (w, v), (b, _) = rescaling.printed_construction(net).weights()
    np.testing.assert_array_equal([w[0, 0], v[0, 0], b[0]], [0.5, 1.0, 2.0])
