"""Domains: support functions against vertices and samples, radius against vertices."""

from __future__ import annotations

import itertools
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import relunorm as rn
from relunorm.domain.documents import holds
from relunorm.domain.inside import moved_inside
from relunorm.errors import InvalidDomainError, InvalidInputError
from relunorm.io.domains import parse_domain

LINE = rn.Box([-1.0], [1.0])
SQUARE, DISK = rn.Box.cube(2, -1, 1), rn.Ball([0.0, 0.0], 1.0)
DIAMOND = rn.Polytope([[1.0, 1], [1, -1], [-1, 1], [-1, -1]], [1.0] * 4)

seeds = st.integers(0, 2**32 - 1)


def random_box(rng: np.random.Generator, d: int) -> rn.Box:
    ends = np.sort(rng.normal(size=(2, d)) * 3, axis=0)
    return rn.Box(*ends)


@given(seeds, st.integers(1, 5))
def test_box_support_is_reached_at_a_vertex(seed: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    box = random_box(rng, d)
    W = rng.normal(size=(4, d)) * (rng.random((4, d)) < 0.8)
    corners = np.array(list(itertools.product(*zip(box.lo, box.hi, strict=True))))
    lo, hi = box.support(W)
    np.testing.assert_allclose(lo, (corners @ W.T).min(axis=0), atol=1e-12)
    np.testing.assert_allclose(hi, (corners @ W.T).max(axis=0), atol=1e-12)
    np.testing.assert_allclose(box.radius, np.linalg.norm(corners, axis=1).max(), rtol=1e-12)
    assert box.contains(box.sample(50, seed)).all()
    assert box.contains(box.center).all()


@given(seeds, st.integers(1, 5))
def test_ball_support_and_samples(seed: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    ball = rn.Ball(rng.normal(size=d), abs(rng.normal()))
    W = rng.normal(size=(3, d))
    lo, hi = ball.support(W)
    X = ball.sample(300, seed)
    assert ball.contains(X, 1e-12).all()
    heights = X @ W.T
    assert (heights >= lo - 1e-9).all()
    assert (heights <= hi + 1e-9).all()
    best = ball.center + ball.reach * W / np.linalg.norm(W, axis=1, keepdims=True)
    np.testing.assert_allclose(hi, (best * W).sum(axis=1), rtol=1e-12, atol=1e-12)
    assert np.linalg.norm(X, axis=1).max() <= ball.radius + 1e-12


@given(seeds, st.integers(1, 4), st.sampled_from(["box", "ball", "norm ball", "polytope"]))
def test_points_drawn_in_and_points_farthest_out(seed: int, d: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    box, middle = random_box(rng, d), rng.normal(size=d)
    around = rn.Box(middle - 0.5, middle + 1.0)
    domains = {
        "box": lambda: box,
        "ball": lambda: rn.Ball(middle, 1.5),
        "norm ball": lambda: rn.NormBall(middle, 1.5, int(rng.integers(1, 3)), around),
        "polytope": lambda: rn.Polytope(
            np.vstack([np.eye(d), -np.eye(d), np.ones((1, d))]),
            np.concatenate([box.hi, -box.lo, [box.center.sum()]]),
        ),
    }
    domain = domains[kind]()
    rows, points = rng.normal(size=(5, d)), rng.normal(size=(40, d)) * 6
    farthest, inside = domain.maximizer(rows), domain.project(points)
    assert domain.contains(farthest, 1e-9).all()
    heights = (farthest * rows).sum(axis=1)
    assert (domain.sample(200, seed) @ rows.T <= heights + 1e-9).all()
    np.testing.assert_allclose(heights, domain.support(rows)[1], rtol=1e-9, atol=1e-9)
    assert domain.contains(inside, 1e-9).all()
    already = domain.contains(points)
    np.testing.assert_allclose(inside[already], points[already], atol=1e-12)


@given(seeds, st.integers(1, 4))
def test_polytope_equals_the_box_it_describes(seed: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    box = random_box(rng, d)
    polytope = rn.Polytope(np.vstack([np.eye(d), -np.eye(d)]), np.concatenate([box.hi, -box.lo]))
    W = rng.normal(size=(3, d))
    for got, want in zip(polytope.support(W), box.support(W), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-7)
    np.testing.assert_allclose(polytope.radius, box.radius, rtol=1e-7)
    assert polytope.contains(polytope.sample(40, seed), 1e-9).all()
    assert polytope.contains(polytope.center, 1e-9).all()


def test_polytope_radius_against_its_vertices() -> None:
    from scipy.spatial import HalfspaceIntersection

    rng = np.random.default_rng(3)
    A, b = rng.normal(size=(12, 3)), 1 + rng.random(12)
    cube = np.vstack([np.eye(3), -np.eye(3)])
    A, b = np.vstack([A, cube]), np.append(b, np.full(6, 2.0))
    vertices = HalfspaceIntersection(np.column_stack([A, -b]), np.zeros(3)).intersections
    expected = np.linalg.norm(vertices, axis=1).max()
    np.testing.assert_allclose(rn.Polytope(A, b).radius, expected, rtol=1e-8)


def test_samples_of_a_box_are_spread_over_it() -> None:
    X = rn.Box.cube(2, 0, 1).sample(4000, random_state=0)
    np.testing.assert_allclose(X.mean(axis=0), 0.5, atol=0.03)
    assert rn.Box.cube(2).sample(0).shape == (0, 2)
    same = rn.Box.cube(2).sample(3, 7)
    np.testing.assert_array_equal(same, rn.Box.cube(2).sample(3, 7))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: rn.Box([1.0], [0.0]), "lo > hi at coordinate 0"),
        (lambda: rn.Box([0.0], [np.nan]), "NaN"),
        (lambda: rn.Box([0.0], [np.inf]), "infinite"),
        (lambda: rn.Box([0.0], [1.0, 2.0]), "hi has 2"),
        (lambda: rn.Box([], []), "non-empty"),
        (lambda: rn.Box("ab", [1.0]), "not an array of numbers: it holds text"),
        (lambda: rn.Box([[1.0], [1.0, 2.0]], [1.0]), "not an array of numbers"),
        (lambda: rn.Box("0", "1"), "not an array of numbers: it holds text"),
        (
            lambda: rn.Box(np.array([0, "1"], object), [1, 2]),
            "not an array of numbers: it holds text",
        ),
        (
            lambda: rn.Box.around(np.array([[0, "1"]], object)),
            "not an array of numbers: it holds text",
        ),
        (lambda: rn.Box.around([["0", "1"]]), "not an array of numbers: it holds text"),
        (lambda: rn.Box(["0"], np.array(["2020"], "M8[Y]")), "holds text or dates"),
        (lambda: rn.Ball([0.0], -1.0), "radius -1"),
        (lambda: rn.Ball([0.0], np.nan), "radius nan"),
        (lambda: rn.Ball([0.0], [1.0, 2.0]), "one number"),
        (lambda: rn.Box.cube(-1), "dimension -1"),
        (lambda: rn.Box([-1e300], [1e300]), "too large"),
        (lambda: rn.Polytope([[1.0]], [1.0]), "unbounded"),
        (lambda: rn.Polytope([[1.0], [-1.0]], [-1.0, -1.0]), "empty"),
        (lambda: rn.Polytope([[1.0, np.nan]], [1.0]), "NaN"),
        (lambda: rn.Polytope([[1.0, 0.0]], [1.0, 2.0]), "expected"),
        (lambda: rn.Box.around(np.zeros((0, 2))), "both at least 1"),
        (lambda: rn.Box.around([[np.nan]]), "NaN"),
        (lambda: rn.Box.cube(2).check_dimension(3), "2 coordinates"),
    ],
)
def test_bad_domains_are_refused(build: object, message: str) -> None:
    with pytest.raises(InvalidDomainError, match=message):
        build()  # type: ignore[operator]


def test_directions_of_the_wrong_length() -> None:
    with pytest.raises(InvalidInputError, match=r"expected \(k, 2\)"):
        rn.Box.cube(2).support(np.ones((1, 3)))


def test_command_line_spelling(tmp_path: Path) -> None:
    np.savez(tmp_path / "box.npz", lo=[0.0, 1.0], hi=[2.0, 3.0])
    np.savez(tmp_path / "poly.npz", A=np.vstack([np.eye(2), -np.eye(2)]), b=np.ones(4))
    np.savez(tmp_path / "ball.npz", center=[1.0, 1.0], radius=2.0)
    (tmp_path / "train.csv").write_text("a,b,y\n0,1,5\n2,-1,7\n")
    assert repr(parse_domain("box:-1,1", 2)) == "Box([-1, 1]^2)"
    assert repr(parse_domain(f"box:@{tmp_path / 'box.npz'}", 2)) == "Box([0, 1], [2, 3])"
    assert repr(parse_domain("ball:2", 2)) == "Ball([0, 0], 2)"
    assert repr(parse_domain(f"ball:@{tmp_path / 'ball.npz'}", 2)) == "Ball([1, 1], 2)"
    assert parse_domain(f"polytope:@{tmp_path / 'poly.npz'}", 2).dimension == 2
    around = parse_domain(f"data:{tmp_path / 'train.csv'}?target=y", 2)
    assert repr(around) == "Box([0, -1], [2, 1])"
    for text in ("", "box", "box:", "box:1", "box:a,b", "cube:1,2", "ball:1,2", "polytope:3"):
        with pytest.raises(InvalidDomainError, match="not understood"):
            parse_domain(text, 2)
    with pytest.raises(InvalidDomainError, match="2 coordinates"):
        parse_domain(f"box:@{tmp_path / 'box.npz'}", 3)
    with pytest.raises(InvalidInputError, match=r"3 columns \(a, b, y\), expected 2"):
        parse_domain(f"data:{tmp_path / 'train.csv'}", 2)
    with pytest.raises(InvalidInputError, match="no array 'lo'"):
        parse_domain(f"box:@{tmp_path / 'poly.npz'}", 2)
    with pytest.raises(FileNotFoundError):
        parse_domain("box:@missing.npz", 2)


def test_polytopes_of_any_scale() -> None:
    """The solver drops coefficients below 1e-9 and calls 1e20 infinite: scaling must prevent it."""
    tiny = rn.Polytope([[1, 1e-10], [-1, 0], [0, 1], [0, -1]], [1, 5, 1e10, 1e10])
    np.testing.assert_allclose(tiny.support([[1.0, 0.0]])[1], [2.0], rtol=1e-9)
    both = np.vstack([np.eye(2), -np.eye(2)])
    for factor, reach in ((1e-10, 1.0), (1e16, 1.0), (1.0, 1e20), (1.0, 1e-12)):
        box = rn.Polytope(both * factor, np.full(4, reach * factor))
        np.testing.assert_allclose(box.support(np.eye(2))[1], reach, rtol=1e-9)
        np.testing.assert_allclose(box.radius, reach * np.sqrt(2), rtol=1e-8)
        assert box.contains(box.sample(50, 0), 1e-9 * reach).all()
    with pytest.raises(InvalidDomainError, match="empty"):
        rn.Polytope([[1.0, 1], [-1, -1], [1, 0], [-1, 0]], [0, -1e-8, 1, 1])
    with pytest.raises(InvalidDomainError, match="empty"):
        rn.Polytope([[0.0, 0.0], [1, 0], [-1, 0], [0, 1], [0, -1]], [-1, 1, 1, 1, 1])


@given(seeds, st.integers(1, 3))
def test_rows_may_have_any_length(seed: int, d: int) -> None:
    """Of rows that are very long and very short a solver says that nothing bounds them."""
    rng = np.random.default_rng(seed)
    box = rn.Box(-rng.integers(1, 9, d) / 4.0, rng.integers(1, 9, d) / 4.0)
    lengths = 2.0 ** rng.integers(-40, 41, 2 * d)
    A = np.vstack([np.eye(d), -np.eye(d)]) * lengths[:, None]
    polytope = rn.Polytope(A, np.concatenate([box.hi, -box.lo]) * lengths)
    lo, hi = polytope.outer_ends()
    assert (lo <= box.lo).all()
    assert (box.hi <= hi).all()
    np.testing.assert_allclose([lo, hi], [box.lo, box.hi], rtol=1e-9)


def test_flat_polytopes_are_sampled_in_their_plane() -> None:
    simplex = rn.Polytope(
        np.vstack([-np.eye(3), np.ones((1, 3)), -np.ones((1, 3))]), [0, 0, 0, 1, -1]
    )
    X = simplex.sample(3000, 0)
    np.testing.assert_allclose(X.sum(axis=1), 1.0, atol=1e-7)
    np.testing.assert_allclose(X.mean(axis=0), 1 / 3, atol=0.03)
    assert (simplex.center > 0.1).all()
    point = rn.Polytope(np.vstack([np.eye(2), -np.eye(2)]), [1, 2, -1, -2])
    np.testing.assert_allclose(point.sample(3, 0), [[1, 2]] * 3, atol=1e-7)
    np.testing.assert_allclose(point.radius, np.sqrt(5), rtol=1e-7)
    thin = rn.Polytope(np.vstack([np.eye(2), -np.eye(2)]), [1, 1e-6, 1, 1e-6]).sample(2000, 0)
    np.testing.assert_allclose(thin.std(axis=0), [1 / np.sqrt(3), 1e-6 / np.sqrt(3)], rtol=0.1)


@given(seeds, st.integers(1, 3), st.sampled_from(["corner", "equalities", "simplex"]))
def test_a_polytope_of_one_point_is_not_empty(seed: int, d: int, kind: str) -> None:
    """Rows that meet in one point exactly, which rounding may miss."""
    rng = np.random.default_rng(seed)
    p = rng.integers(-40, 41, d) * 2.0 ** rng.integers(-12, 31)
    signs, own = rng.choice([-1.0, 1.0], d), np.eye(d)
    A = {
        "corner": np.vstack([own * signs, -own * signs, -signs * rng.integers(1, 8, d)]),
        "equalities": np.vstack([own + np.triu(rng.integers(-3, 4, (d, d)), 1)] * 2),
        "simplex": np.vstack([own, -np.ones((1, d))]) * rng.choice([1.0, 3.0]),
    }[kind]
    if kind == "equalities":
        A[d:] *= -1
    b = A @ p  # whole numbers over one power of two: exact
    if kind == "corner":
        b[d : 2 * d] += rng.integers(1, 9, d)
    point = rn.Polytope(A, b)
    assert point.holds(p)[0]
    for near in (point.center, *point.maximizer(own), *point.sample(2, 0)):
        np.testing.assert_allclose(near, p, atol=1e-7 * max(1.0, np.abs(p).max()))
    lo, hi = point.outer_ends()
    assert (lo <= p).all()
    assert (p <= hi).all()
    moved = moved_inside(point, np.nextafter(p, np.inf))
    assert moved is not None
    assert moved.tolist() == p.tolist()


def test_lengths_neither_overflow_nor_vanish() -> None:
    assert not rn.Ball([0, 0], 1e-200).contains([[1e-200, 1e-200]])[0]
    assert rn.Ball([3e-200, 4e-200], 0).radius == pytest.approx(5e-200)
    assert rn.Box([-1e99] * 3, [1e99] * 3).radius == pytest.approx(np.sqrt(3) * 1e99)


def inside(domain: rn.Domain, point: np.ndarray) -> bool:
    """Membership by fractions."""
    x = [Fraction(float(v)) for v in point]
    if isinstance(domain, rn.Ball):
        apart = zip(x, domain.middle.tolist(), strict=True)
        return sum((v - Fraction(m)) ** 2 for v, m in apart) <= Fraction(domain.reach) ** 2
    if isinstance(domain, rn.Box):
        ends = zip(domain.lo.tolist(), x, domain.hi.tolist(), strict=True)
        return all(lo <= v <= hi for lo, v, hi in ends)
    return all(
        sum((Fraction(a) * v for a, v in zip(row, x, strict=True)), Fraction(0)) <= Fraction(b)
        for row, b in zip(*(part.tolist() for part in domain.sides), strict=True)
    )


@given(seeds, st.integers(1, 3), st.sampled_from([-322, -160, -20, 0, 15]))
def test_a_ball_holds_what_fractions_say(seed: int, d: int, exponent: int) -> None:
    rng = np.random.default_rng(seed)
    middle = rng.normal(size=d) * rng.integers(0, 2)
    ball = rn.Ball(middle, rng.random() * 10.0**exponent)
    steps = rng.normal(size=(20, d))
    steps /= np.linalg.norm(steps, axis=1, keepdims=True)
    points = middle + ball.reach * steps * rng.choice([0.5, 1, 1, 1, 1 + 1e-15, 2], size=(20, 1))
    assert ball.holds(points).tolist() == [inside(ball, x) for x in points]


@given(seeds, st.integers(1, 3), st.booleans(), st.booleans())
def test_a_polytope_holds_what_fractions_say(seed: int, d: int, flat: bool, whole: bool) -> None:
    rng = np.random.default_rng(seed)
    row = rng.integers(1, 4, size=d).astype(float) if whole else rng.normal(size=d) + 2
    rows, ends = np.vstack([np.eye(d), -np.eye(d), row]), np.append(np.full(2 * d, 2.0), 0.25)
    if flat:
        rows, ends = np.vstack([rows, -3 * row]), np.append(ends, -0.75)
    domain = rn.Polytope(rows, ends)
    points = domain.sample(12, seed)
    points = np.concatenate([points, np.round(points * 64) / 64])
    assert domain.holds(points).tolist() == [inside(domain, x) for x in points]


def test_nothing_holds_a_point_without_numbers() -> None:
    wild = [[np.nan, 0.0], [np.inf, 0.0], [0.0, -np.inf], [1e308, 1e308]]
    rows = [[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]
    for domain in (rn.Box.cube(2), rn.Ball([0.0, 0.0], 1.0), rn.Polytope(rows, [1.0, 0.0, 0.0])):
        assert not domain.holds(wild).any()
        assert domain.holds([0.25, 0.5]).tolist() == [True]
    with pytest.raises(InvalidInputError):
        rn.Box.cube(2).holds([[1.0, 2.0, 3.0]])


@given(seeds, st.sampled_from(["box", "ball", "polytope", "flat"]))
def test_a_point_beside_a_domain_is_moved_inside(seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    rows, ends = np.vstack([np.eye(2), -np.eye(2), [[1, 1]]]), [1.0, 1.0, 1.0, 1.0, 0.5]
    domain: rn.Domain = {
        "box": lambda: random_box(rng, 2),
        "ball": lambda: rn.Ball(rng.normal(size=2), rng.random() + 0.1),
        "polytope": lambda: rn.Polytope(rows, ends),
        "flat": lambda: rn.Polytope(np.vstack([rows, [[-2, -2]]]), [*ends, -1.0]),
    }[kind]()
    for point in domain.sample(5, seed):
        beside = domain.center + (1 + 1e-15) * (point - domain.center)
        moved = moved_inside(domain, beside)
        assert moved is not None
        assert inside(domain, moved)
        assert np.abs(moved - point).max() < 1e-5


def test_digests_tell_domains_apart_in_every_number() -> None:
    box = rn.Box.cube(2, -9.0, 9.0)
    domains = [
        rn.Box([0.0, 0.0], [1.0, 1.0]),
        rn.Box([0.0, 0.0], [1.0, 1.0 + 2**-52]),
        rn.Ball([0.0, 0.0], 1.0),
        rn.Ball([0.0, 1e-300], 1.0),
        rn.Ball([0.0, 0.0], 1.0 + 2**-52),
        rn.NormBall([0.0, 0.0], 1.0, 2, box),
        rn.NormBall([0.0, 0.0], 1.0, 1, box),
        rn.NormBall([0.0, 0.5], 1.0, 1, box),
        rn.NormBall([0.0, 0.0], 1.0, 1, rn.Box.cube(2, -9.0, 8.0)),
        rn.Polytope([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]], [1.0, 1.0, 1.0]),
        rn.Polytope([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]], [1.0, 1.0, 2.0]),
    ]
    assert len({domain.digest for domain in domains}) == len(domains)
    assert rn.Box([-0.0, 0.0], [1.0, 1.0]).digest == domains[0].digest


@pytest.mark.parametrize("reach", [1e-20, 1e-17, 0.1, 1.0, 1 / 3])
@pytest.mark.parametrize("middle", [0.0, 1.0, 0.3, -25.7643, 1e9])
def test_the_box_around_a_ball_holds_it(middle: float, reach: float) -> None:
    around = rn.Box.cube(1, -1e12, 1e12)
    for ball in (rn.Ball([middle], reach), rn.NormBall([middle], reach, 1, around)):
        box = ball.bounding_box
        low, high = Fraction(middle) - Fraction(reach), Fraction(middle) + Fraction(reach)
        assert Fraction(box.lo[0]) <= low < high <= Fraction(box.hi[0])
        assert Fraction(float(np.nextafter(box.lo[0], np.inf))) > low  # and no smaller box does
        assert Fraction(float(np.nextafter(box.hi[0], -np.inf))) < high


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        (SQUARE, SQUARE, True),
        (SQUARE, rn.Box([-1.0, -1.0], [1.0, 1.0 + 2**-52]), False),
        (SQUARE, DISK, True),
        (DISK, SQUARE, False),
        (rn.Ball([0.0, 0.0], 1.5), SQUARE, True),
        (DISK, rn.Ball([0.5, 0.0], 0.5), True),
        (DISK, rn.Ball([0.5, 0.0], 0.5 + 2**-53), False),
        (DIAMOND, DISK, False),
        (DIAMOND, rn.Ball([0.0, 0.0], 0.7), True),
        (DIAMOND, rn.Box.cube(2, -0.5, 0.5), True),
        (DIAMOND, rn.Box.cube(2, -0.5, 0.5 + 2**-53), False),
        (DIAMOND, DIAMOND, True),
        (rn.Box.cube(2, -1.1, 1.1), DIAMOND, True),
        (SQUARE, LINE, False),
    ],
)
def test_which_domain_holds_which(outer, inner, expected: bool) -> None:
    assert holds(outer, inner) == expected
