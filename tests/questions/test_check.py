"""Property files: what they say, the verdict against cells, what is refused and where."""

from __future__ import annotations

import json
import subprocess
import sys
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from brute_force import pieces
from hypothesis import given, settings
from hypothesis import strategies as st
from linear_programme import minimum
from typer.testing import CliRunner

import relunorm as rn
from relunorm import Network
from relunorm.cli import app
from relunorm.errors import InvalidInputError, PropertyFileError
from relunorm.questions.check import CheckProof
from relunorm.questions.vnnlib import parse_vnnlib

ROOT = Path(__file__).resolve().parents[2]

#: |x_0| + |x_1| and x_0 - x_1.
NET = Network.from_weights(
    [
        [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]],
        [[1.0, 1.0, 1.0, 1.0], [1.0, -1.0, -1.0, 1.0]],
    ]
)

DECLARED = "".join(f"(declare-const {name} Real)\n" for name in ("X_0", "X_1", "Y_0", "Y_1"))
BOX = "(assert (<= X_0 1)) (assert (>= X_0 -1)) (assert (<= X_1 1)) (assert (>= X_1 -1))\n"


def verdict(text: str, **more) -> str:
    return rn.check(NET, parse_vnnlib(DECLARED + text), **more).verdict


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (BOX + "(assert (>= Y_0 2.5))", "unsat"),
        (BOX + "(assert (>= Y_0 1.75))", "sat"),
        (BOX + "(assert (and (>= Y_0 1.75) (>= Y_1 0.5)))", "sat"),  # (1, -0.75)
        (BOX + "(assert (and (<= Y_0 0.25) (>= Y_1 0.5)))", "unsat"),  # Y_1 <= Y_0
        (BOX + "(assert (or (>= Y_0 2.5) (<= Y_1 -1.9)))", "sat"),
        (BOX + "(assert (or (>= Y_0 2.5) (<= Y_1 -2.1)))", "unsat"),
        (BOX + "(assert (not (< Y_0 2.5)))", "unsat"),
        (BOX + "(assert (=> (<= Y_0 5) (>= Y_1 1.9)))", "sat"),
        # a sum of inputs and outputs: |x_0| + |x_1| - x_0 - x_1 is at most 4
        (BOX + "(assert (>= (- Y_0 (+ X_0 X_1)) 4.1))", "unsat"),
        (BOX + "(assert (>= (- Y_0 X_0 X_1) (* 3 1.3)))", "sat"),
        # linear constraints on inputs: a triangle
        (BOX + "(assert (<= (+ X_0 X_1) -1.5)) (assert (<= Y_0 1.4))", "unsat"),
        (BOX + "(assert (<= (+ X_0 X_1) -1.5)) (assert (<= Y_0 1.6))", "sat"),
        # a polytope without points
        (BOX + "(assert (<= (+ X_0 X_1) -2.5))", "unsat"),
        # the same touched at one corner, which then is the only input
        (BOX + "(assert (<= (+ X_0 (* 0.75 X_1)) -1.75)) (assert (>= Y_0 2))", "sat"),
        (BOX + "(assert (<= (+ X_0 (* 0.75 X_1)) -1.75)) (assert (<= Y_0 1.9))", "unsat"),
        (BOX + "(assert (or (<= (+ X_0 (* 0.75 X_1)) -1.75) (>= Y_0 1.9)))", "sat"),
        # two boxes
        (
            "(assert (or (and (>= X_0 0) (<= X_0 0.5) (>= X_1 0) (<= X_1 0.5))"
            " (and (>= X_0 -1) (<= X_0 -0.5) (>= X_1 0) (<= X_1 0.5)))) (assert (>= Y_0 1.4))",
            "sat",
        ),
        # no constraint on outputs: any input will do
        (BOX, "sat"),
        (BOX + "(assert (<= 2 1))", "unsat"),
        # strict: the maximum is 2 and not reached
        (BOX + "(assert (> Y_0 1.5))", "sat"),
        ("(assert (== X_0 1)) (assert (== X_1 (/ 1 2))) (assert (== Y_0 1.5))", "sat"),
    ],
)
def test_verdicts_that_can_be_seen_by_hand(text, expected):
    assert verdict(text) == expected


def test_a_strict_constraint_at_its_limit_is_not_called_satisfied():
    assert verdict(BOX + "(assert (> Y_0 2))") in ("unsat", "unknown")
    assert verdict(BOX + "(assert (>= Y_0 2))") == "sat"


def feasible(cells, lo, hi, A, b) -> bool:
    """Whether some x has A f(x) <= b - 1e-7, cell by cell with linear programmes."""
    for M, c, rows, rhs in cells:
        sides, ends = np.concatenate([rows, A @ M]), np.concatenate([rhs, b - A @ c - 1e-7])
        if minimum(np.zeros(len(lo)), sides, ends, lo, hi) is not None:
            return True
    return False


@settings(max_examples=12)
@given(st.integers(0, 10**6))
def test_verdicts_agree_with_cells(seed):
    rng = np.random.default_rng(seed)
    net = Network.from_weights(
        [rng.normal(size=(4, 2)), rng.normal(size=(3, 4)), rng.normal(size=(2, 3))],
        [rng.normal(size=4), rng.normal(size=3), rng.normal(size=2)],
    )
    lo, hi = np.array([-1.0, -0.5]), np.array([0.5, 1.0])
    terms, oracle = [], False
    cells = list(pieces(net, lo, hi))
    for _ in range(2):
        A, b = rng.normal(size=(2, 2)), rng.normal(size=2) - 1.0
        parts = [
            f"(<= (+ (* {p!r} Y_0) (* {q!r} Y_1)) {r!r})"
            for (p, q), r in zip(A.tolist(), b.tolist(), strict=True)
        ]
        terms.append(f"(and {' '.join(parts)})")
        oracle |= feasible(cells, lo, hi, A, b)
    box = "(assert (and (>= X_0 -1) (<= X_0 0.5) (>= X_1 -0.5) (<= X_1 1)))"
    found = rn.check(net, parse_vnnlib(f"{DECLARED}{box}(assert (or {' '.join(terms)}))"))
    assert found.verdict == ("sat" if oracle else "unsat")
    if oracle:
        assert found.point.astype(np.float32).astype(float).tolist() == found.point.tolist()


def test_version_two_says_the_same_as_version_one():
    one = parse_vnnlib(DECLARED + BOX + "(assert (or (>= Y_0 2.5) (<= Y_1 -1.5)))")
    two = parse_vnnlib(
        "(vnnlib-version <2.0>)\n(declare-network f\n (declare-input X float32 [1, 2])\n"
        " (declare-output Y float32 [1,2]))\n"
        "(assert (and (<= X[0,0] 1) (>= X[0,0] -1) (<= X[0,1] 1) (>= X[0, 1] -1)))\n"
        "(assert (or (>= Y[0,0] 2.5) (<= Y[0,1] -1.5)))"
    )
    assert (one.inputs, one.outputs) == (two.inputs, two.outputs)
    assert [a.weights for a in one.common] == [a.weights for a in two.common]
    assert rn.check(NET, one).verdict == rn.check(NET, two).verdict == "sat"


def test_numbers_are_read_without_rounding():
    (atom, _) = parse_vnnlib(
        "(declare-const X_0 Real)(declare-const Y_0 Real)\n"
        "(assert (<= (* 0.1 X_0 3) -1e-3)) (assert (>= Y_0 (- 2)))"
    ).common
    assert atom.weights == {("X", 0): Fraction(3, 10)}
    assert atom.constant == Fraction(1, 1000)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOX + "(assert (<= Y_0 1)", "line 6: an opening parenthesis is never closed"),
        (BOX + "(assert (<= Y_0 1)))", "line 6: a closing parenthesis"),
        (BOX + "\n(assert (<= Y_7 1))", "line 7: Y_7 is not declared"),
        (BOX + "(assert (<= (* X_0 X_1) 1))", "line 6: a product of two variables"),
        (BOX + "(assert (<= (/ 1 Y_0) 1))", "line 6: division by a variable"),
        (BOX + "(assert (<= (exp X_0) 1))", "line 6: 'exp' is not a sum"),
        (BOX + "(assert (exists Y_0))", "line 6: 'exists' is not supported"),
        (
            BOX + "(assert (>= X_1 3))",
            "line 6: input 1 has to be at least 3 (line 6) and at most 1",
        ),
        ("(assert (<= X_0 1)) (assert (>= X_0 0)) (assert (<= X_1 0))", "input 1 has no lower"),
        ("(declare-const X_0 Real)", "line 5: X_0 was declared before, in line 1"),
        ("(declare-const X_3 Real)", "line 5: X_3 is declared, but X_2 is missing"),
        ("(declare-const X_2 Real)" + BOX, "speaks of 3 inputs and 2 outputs, the network has 2"),
        ("(declare-const Z Int)", "line 5: expected a declaration such as"),
        ("(define-fun f () Real 1)", "line 5: 'define-fun' is not supported"),
        ("(assert (<= X_0))", "line 5: <= compares two terms, found 1"),
        ("(vnnlib-version <3.0>)", "line 5: expected version 1.0 or 2.0"),
        ("oops", "line 5: 'oops' stands outside of all parentheses"),
        (BOX + "(assert (<= Y_0 1e400))", "line 6: a number is too large for float64"),
        (BOX + "(assert (<= " + "(* 1 " * 999 + "Y_0" + ")" * 999 + " 1))", "line 6: expressions"),
        (
            BOX + "(assert (> X_1 1))",
            "line 6: input 1 has to be above 1 (line 6) and at most 1",
        ),
        ("(declare-network f (declare-input A real [2]))", "line 5: a network and single"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text, message):
    with pytest.raises(PropertyFileError) as error:
        rn.check(NET, parse_vnnlib(DECLARED + text))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(declare-network g (equal-to f))", "line 3: a second network"),
        ("(assert (<= X[0,2] 1))", "line 3: X[0,2] lies outside of the shape [1, 2]"),
        ("(assert (<= X[0,0,0] 1))", "line 3: X[0,0,0] has 3 indices, expected 2"),
        ("(assert (<= Z[0] 1))", "line 3: Z is not declared"),
        ("(declare-const X_5 real)", "line 3: a network and single variables"),
    ],
)
def test_version_two_has_limits(text, message):
    head = (
        "(vnnlib-version <2.0>)\n(declare-network f (declare-input X real [1,2]) "
        "(declare-output Y real [1,2]))\n"
    )
    with pytest.raises(PropertyFileError) as error:
        parse_vnnlib(head + text)
    assert message in str(error.value)


def test_long_chains_are_read_whatever_their_nesting():
    terms = 3000
    for head, start in (("+", "(assert (>= {} 1))"), ("and", "(assert {})")):
        last = "Y_0" if head == "+" else "(>= Y_0 1)"
        part = "0" if head == "+" else "(<= Y_0 2)"
        text = start.format(f"({head} {part} " * terms + last + ")" * terms)
        found = parse_vnnlib(DECLARED + BOX + text)
        assert len(found.alternatives) == 1
        assert found.common[-1] == parse_vnnlib(DECLARED + BOX + "(assert (>= Y_0 1))").common[-1]


def test_a_byte_order_mark_is_skipped(tmp_path):
    prop = tmp_path / "p.vnnlib"
    prop.write_text(DECLARED + BOX + "(assert (>= Y_0 2.5))", encoding="utf-8-sig")
    assert rn.check(NET, prop).verdict == "unsat"


def test_a_proof_replays_and_only_for_its_question(tmp_path):
    text = DECLARED + BOX + "(assert (or (>= Y_0 2.5) (<= Y_1 -2.1)))"
    found = rn.check(NET, parse_vnnlib(text))
    assert found.proof is not None
    found.proof.save(tmp_path / "p.json")
    proof = CheckProof.load(tmp_path / "p.json")
    assert proof.verify(NET, parse_vnnlib(text)).holds
    weaker = parse_vnnlib(text.replace("2.5", "2.4"))
    assert "another property" in proof.verify(NET, weaker).reason
    other = NET.replace(output=type(NET.output)(NET.output.terms, NET.output.bias + 1.0))
    assert not proof.verify(other, parse_vnnlib(text)).holds
    document = json.loads((tmp_path / "p.json").read_text())
    document["parts"][0]["domain"]["hi"] = [0.5, 0.5]
    (tmp_path / "q.json").write_text(json.dumps(document))
    assert (
        "another domain"
        in CheckProof.load(tmp_path / "q.json").verify(NET, parse_vnnlib(text)).reason
    )
    document["extra"] = 1
    (tmp_path / "q.json").write_text(json.dumps(document))
    with pytest.raises(InvalidInputError):
        CheckProof.load(tmp_path / "q.json")


def run(*arguments: str):
    return CliRunner().invoke(app, ["check", *arguments])


def test_the_command_line_answers_in_the_format_of_the_competition(tmp_path):
    model, prop, out = tmp_path / "m.npz", tmp_path / "p.vnnlib", tmp_path / "r.txt"
    rn.save(NET, model)
    prop.write_text(DECLARED + BOX + "(assert (>= Y_0 1.75))")
    done = run(str(model), str(prop), "--result", str(out), "--json")
    assert done.exit_code == 1
    document = json.loads(done.stdout)
    assert document["verdict"] == "sat"
    first, *lines = out.read_text().splitlines()
    assert first == "sat"
    values = {}
    for line in lines:
        name, value = line.strip(" ()").split()
        values[name] = float(value)
    assert lines[0].startswith("((X_0 ")
    assert lines[-1].endswith("))")
    x = [values["X_0"], values["X_1"]]
    assert x == document["point"]
    assert np.allclose(NET([x])[0], [values["Y_0"], values["Y_1"]])
    assert values["Y_0"] >= 1.75

    prop.write_text(DECLARED + BOX + "(assert (>= Y_0 2.5))")
    proof = tmp_path / "proof.json"
    done = run(str(model), str(prop), "--result", str(out), "--proof", str(proof))
    assert done.exit_code == 0
    assert out.read_text() == "unsat\n"
    assert run(str(model), str(prop), "--replay", str(proof)).exit_code == 0
    prop.write_text(DECLARED + BOX + "(assert (>= Y_0 2.25))")
    assert run(str(model), str(prop), "--replay", str(proof)).exit_code == 1


def test_no_time_gives_timeout(tmp_path):
    rng = np.random.default_rng(0)
    widths = (6, 20, 20, 1)
    net = Network.from_weights([rng.normal(size=(b, a)) for a, b in pairwise(widths)])
    text = "".join(f"(declare-const X_{i} Real)" for i in range(6)) + "(declare-const Y_0 Real)"
    text += "".join(f"(assert (and (<= X_{i} 1) (>= X_{i} -1)))" for i in range(6))
    model, prop = tmp_path / "m.npz", tmp_path / "p.vnnlib"
    rn.save(net, model)
    top = rn.maximize(net, rn.Box.cube(6), [1.0], time_limit=0.0)
    prop.write_text(f"{text}(assert (>= Y_0 {0.5 * (top.lower + min(top.upper, 1e6))!r}))")
    out = tmp_path / "r.txt"
    done = run(str(model), str(prop), "--time-limit", "0", "--result", str(out), "--json")
    assert done.exit_code == 3
    assert json.loads(done.stdout)["verdict"] == "timeout"
    assert out.read_text() == "timeout\n"


def test_bad_input_is_one_sentence_and_exit_code_two(tmp_path):
    model, prop = tmp_path / "m.npz", tmp_path / "p.vnnlib"
    rn.save(NET, model)
    prop.write_text(DECLARED + BOX + "(assert (<= (* X_0 X_1) 1))")
    done = subprocess.run(
        [sys.executable, "-m", "relunorm", "check", str(model), str(prop)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert f"{prop}, line 6: a product of two variables" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["install_tool", "prepare_instance", "run_instance"])
def test_the_scripts_of_the_competition_refuse_other_versions(name):
    script = ROOT / "tools" / "vnncomp" / f"{name}.sh"
    done = subprocess.run(["bash", str(script), "v9"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "v1" in done.stderr
