"""Every exact answer against an oracle in rational arithmetic, on seeded random cases.

`python tests/fuzz.py --minutes 60` runs the same subjects for as long as one likes.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
from brute_force import pieces as tried_signs
from exact_answers import difference, exceeds, inside, largest_margin, maximum, output_at
from exact_oracle import box_cell, pieces, polytope_cell, read, volume
from fuzz import written_domain
from fuzzing.outcome import Case
from fuzzing.places import box
from fuzzing.shrink import shrunk
from fuzzing.subjects import SUBJECTS, draw_case, judged

import relunorm as rn
from relunorm import Activation, Affine, Layer, Network
from relunorm.domain import KINDS, NormBall

#: Cases of each subject: about a second each.
CASES = {
    "verify": 5,
    "normalize": 20,
    "compare": 15,
    "files": 12,
    "fingerprint": 20,
    "lipschitz": 20,
    "maximize": 25,
    "decide": 25,
    "certify": 10,
    "sensitivity": 25,
    "to_c": 6,
}


@pytest.mark.parametrize("subject", SUBJECTS)
def test_no_answer_is_wrong(subject: str) -> None:
    for number in range(CASES.get(subject, 40)):
        out = judged(subject, draw_case(subject, 0, number))
        again = f"python tests/fuzz.py --subject {subject} --seed 0 --case {number} --shrink"
        assert not out.wrong, "\n".join([again, *out.wrong])


# --- the oracle itself


def _random(d: int, seed: int) -> Network:
    rng = np.random.default_rng(seed)
    return Network.from_weights(
        [rng.normal(size=(4, d)), rng.normal(size=(3, 4)), rng.normal(size=(2, 3))],
        [rng.normal(size=4), rng.normal(size=3), rng.normal(size=2)],
    )


@pytest.mark.parametrize("d", [1, 2, 3])
def test_pieces_are_those_of_trying_every_sign_vector(d: int) -> None:
    network = _random(d, d)
    found = list(pieces(read(network), box_cell([-1] * d, [1] * d)))
    listed = list(tried_signs(network, [-1.0] * d, [1.0] * d))
    assert len(found) == len(listed)
    for A, c, rows, rhs in listed:
        own = [
            piece
            for piece in found
            if (rows @ [float(x) for x in piece.cell.middle()] <= rhs).all()
        ]
        assert len(own) == 1
        exact = np.array(own[0].output.fractions(), dtype=float)
        assert np.abs(exact - np.column_stack([A, c])).max() < 1e-12


@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_volumes_add_up_exactly(d: int) -> None:
    cell = box_cell([-1] * d, [0.5] * d)
    found = [volume(piece.cell) for piece in pieces(read(_random(d, 5)), cell)]
    assert min(found) > 0
    assert sum(found) == Fraction(3, 2) ** d


def test_outputs_at_a_point_are_rational() -> None:
    third = Network.from_weights([[[1.0]], [[0.1]]], [[0.2], [0.0]])
    exact = (Fraction(0.1) + Fraction(0.2)) * Fraction(0.1)
    assert output_at(read(third), [0.1]) == [exact]
    assert float(exact) != third([0.1])[0]  # floats add .1 + .2 otherwise


def test_a_flat_polytope_is_a_segment() -> None:
    rows = np.array([[1, 1], [-1, -1], [-1, 0], [0, -1.0]])
    cell = polytope_cell(rows, [0.5, -0.5, 0.0, 0.0])
    assert cell is not None
    assert sorted(map(tuple, cell.points())) == [(0, Fraction(1, 2)), (Fraction(1, 2), 0)]
    assert not inside(rn.Polytope(rows, [0.5, -0.5, 0.0, 0.0]), [0.13, 0.37 + 2.0**-53])


def test_steps_have_their_value_at_zero() -> None:
    def step(at_zero: float) -> Network:
        layer = Layer(Affine({0: [[1.0]]}, [0.0]), Activation("step", at_zero=at_zero))
        return Network([layer], Affine({1: [[1.0]]}, [0.0]), input_shape=1)

    cell = box_cell([-1.0], [1.0])
    gap = difference(read(step(0.0)), read(step(0.25)), cell, strata=True)
    assert gap == [Fraction(1, 4)]
    assert difference(read(step(0.0)), read(step(0.25)), cell) == [0]  # open cells do not see it


def test_spectral_norms_are_compared_exactly() -> None:
    matrix = [[Fraction(3), Fraction(0)], [Fraction(0), Fraction(1)]]
    assert exceeds(matrix, math.nextafter(3, 0), 2, strictly=True)
    assert not exceeds(matrix, 3.0, 2, strictly=True)
    assert exceeds(matrix, 3.0, 2, strictly=False)
    assert not exceeds(matrix, math.nextafter(3, 4), 2, strictly=False)


def test_margins_of_several_constraints() -> None:
    absolute = Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]])  # |x|
    found = list(pieces(read(absolute), box_cell([-1.0], [2.0])))
    assert maximum(found, [1.0]) == 2
    # min(1 - |x|, |x| - 1/2) is largest, 1/4, where |x| = 3/4
    assert largest_margin(found, [[1.0], [-1.0]], [1.0, -0.5]) == Fraction(1, 4)


# --- the judges see what is wrong


def _case() -> Case:
    place = box(np.array([-1.0, -1.0]), np.array([1.0, 1.0]))
    return Case((_random(2, 7),), place, {})


def test_a_maximum_one_unit_too_high_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    case = dataclasses.replace(
        _case(), options={"direction": [1.0, 0.0], "time_limit": 5.0, "rational": False}
    )
    true = maximum(pieces(read(case.networks[0]), case.place.inner), [1.0, 0.0])  # type: ignore
    found = rn.maximize(case.networks[0], case.domain, [1.0, 0.0])
    above = float(true) if Fraction(float(true)) > true else math.nextafter(float(true), math.inf)
    assert not judged("maximize", case).wrong
    monkeypatch.setattr(rn, "maximize", lambda *_, **__: dataclasses.replace(found, lower=above))
    assert any("lower end too high" in text for text in judged("maximize", case).wrong)


def test_a_region_with_a_wrong_bit_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    case = dataclasses.replace(_case(), options={"method": "auto"})
    found = rn.regions(case.networks[0], case.domain)
    packed = found.packed.copy()
    packed[0, 0] ^= 128
    monkeypatch.setattr(rn, "regions", lambda *_, **__: dataclasses.replace(found, packed=packed))
    wrong = judged("regions", case).wrong
    assert any("a region is missing" in text for text in wrong)


def test_a_wrong_case_is_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    case = _case()
    units = case.networks[0].units

    def fails(smaller: Case) -> bool:
        return bool(smaller.networks[0]([1.0, 1.0])[0] != 0.0)

    small = shrunk(case, fails, 2000)
    assert fails(small)
    assert small.networks[0].units < units


def test_every_domain_is_written_as_the_python_that_makes_it():
    box = rn.Box.cube(2)
    ball, side = NormBall([0, 0], 0.5, 1, box), rn.Polytope([[1], [-1]], [1, 1])
    for domain in (box, rn.Ball([0, 1], 2), ball, side):
        again = eval(written_domain(domain), {kind.__name__: kind for kind in KINDS.values()})
        assert again.digest == domain.digest
