"""Verdicts follow from numbers, and every item of the papers has a row that decides it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from relunorm.errors import InvalidInputError
from relunorm.network import Network
from relunorm.papers import PAPERS, exhibits, items, statements
from relunorm.papers.claim import Check, Claim, Verdict
from relunorm.papers.rescaling.lemma import lemma1, printed_construction
from relunorm.papers.run import code_of

ROOT = Path(__file__).parents[2]
SEEDS = ROOT.parent / "shared" / "seeds"

#: Exhibits of a second or less; the others train networks or enumerate many.
QUICK = [
    *(("rescaling", n) for n in ("lemma1", "uniqueness", "several_outputs")),
    *(("reduced", n) for n in ("density", "identities", "unit_rows", "thresholds", "depth")),
    *(("reduced", n) for n in ("derived",)),
    *(("dying", n) for n in ("figure2", "setting", "affine", "unit", "appendix_c", "scaling")),
    *(("pieces", n) for n in ("background", "figures12", "examples", "partition", "atoms")),
    *(("pieces", n) for n in ("theorem6", "gradients")),
    *(("batchnorm", n) for n in ("rank", "tree", "invariance", "theorem3", "theorem11")),
    *(("batchnorm", n) for n in ("theorem13", "attractor_angle", "parts")),
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
    assert list(statements(paper)["exhibits"]) == list(exhibits(paper))
    assert len(set(items(paper))) == len(items(paper))  # none twice
    assert all(statements(paper)["exhibits"].values())


@pytest.mark.parametrize("paper", PAPERS)
def test_words_are_of_exhibits_that_exist(paper):
    file = ROOT / "src" / "relunorm" / "papers" / paper / "statements.json"
    words = json.loads(file.read_text(encoding="utf-8"))
    assert list(words["titles"]) == list(exhibits(paper))
    assert all(words["titles"].values())
    for part in ("notes", "costs", "columns"):
        assert set(words[part]) <= set(words["titles"])


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
    full = file.read_text(encoding="utf-8")
    names = {f"{kind.title().replace('Fig.', 'Figure')} {n}" for kind, n in NUMBERED.findall(full)}
    names -= FOREIGN | NO_CLAIM
    listed = " | ".join(items(paper))
    missing = {name for name in names if not re.search(rf"{re.escape(name)}(?!\d)", listed)}
    assert missing <= {"Definition 1"} | ({"Theorem 1"} if paper == "reduced" else set())


#: Paper -> its numbered equations.
EQUATIONS = {
    "reduced": [
        (s, k) for s, most in ((1, 1), (2, 12), (3, 4), (4, 7), (5, 4)) for k in range(1, most + 1)
    ],
    "dying": list(range(1, 45)),
    "pieces": list(range(1, 16)),
    "batchnorm": list(range(1, 118)),
}


def numbers_in(text):
    """Equation numbers in a name: "(26)-(27)" is both, "(7a)" is 7, "(2.10)" is (2, 10)."""

    def number(part):
        found = [int(k) for k in re.findall(r"\d+", part)]
        return found[0] if len(found) == 1 else tuple(found)

    found = set()
    for first, last in re.findall(
        r"\((\d+(?:\.\d+)?)[a-d]?\)(?:-\((\d+(?:\.\d+)?)[a-d]?\))?", text
    ):
        low, high = number(first), number(last or first)
        if isinstance(low, int):
            found |= set(range(low, high + 1))
        else:
            found |= {(low[0], k) for k in range(low[1], high[1] + 1)}
    return found


@pytest.mark.parametrize("paper", EQUATIONS)
def test_every_numbered_equation_has_a_row_or_a_reason(paper):
    without = statements(paper)["without_row"]
    named = set().union(*(numbers_in(name) for name in (*items(paper), *without)))
    assert set(EQUATIONS[paper]) <= named
    assert all(len(reason) > 10 for reason in without.values())
    assert not set(items(paper)) & set(without)


def column_free(claim):
    return claim.verdict is (Verdict.CORRECTED if claim.corrected else Verdict.HOLDS)


@pytest.mark.parametrize(("paper", "name"), QUICK)
def test_verdicts_of_the_exact_exhibits(paper, name, quick):
    """What is corrected does not hold as printed and does as corrected; the rest holds."""
    found = quick(paper, name)
    assert {claim.item for claim in found.claims} == set(statements(paper)["exhibits"][name])
    wrong = [(c.item, c.verdict.value, c.numbers) for c in found.claims if not column_free(c)]
    assert not wrong
    assert all(claim.printed and claim.basis for claim in found.claims)


def test_an_exhibit_says_where_its_code_is():
    first = code_of(lemma1)
    assert first["name"] == "relunorm.papers.rescaling.lemma.lemma1"
    assert re.fullmatch(r"src/relunorm/papers/rescaling/lemma\.py:\d+", first["place"])
    assert code_of(exhibits("reduced")["figure5.5"])["text"].startswith("def figure(")


def test_every_exhibit_of_the_errata_page_exists():
    text = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
    named = re.findall(r"`papers ([a-z]+) ([\w.-]+)`", text)
    assert len(named) > 50
    for paper, name in named:
        assert name in exhibits(paper), (paper, name)


def test_every_erratum_names_a_test_that_exists():
    text = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
    rows = [line.replace(r"\|", "") for line in text.splitlines() if re.match(r"\| \d", line)]
    assert len(rows) > 65
    assert len({tuple(row.split("|")[1:4]) for row in rows}) == len(rows)  # none twice
    known = "\n".join(
        file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("test_*.py")
    )
    for row in rows:
        test = row.split("|")[5]
        named = re.findall(r"`(test_\w+)`", test)
        files = re.findall(r"tests/[\w/]+\.py", test)
        assert files, row
        assert named or "(derived)" in row, row
        assert all(f"def {name}(" in known for name in named), named
        assert all((ROOT / name).is_file() for name in files), files


def test_the_printed_construction_is_the_printed_one():
    net = Network.from_weights([[[2.0]], [[4.0]]], [[8.0], [0.0]])
    (w, v), (b, _) = printed_construction(net).weights()
    np.testing.assert_array_equal([w[0, 0], v[0, 0], b[0]], [0.5, 1.0, 2.0])
