"""Domains that no room has heard of: every question answers soundly, or says that it cannot.

One has a curved side and is known by the box around it; one has flat sides, those of its box and
one row, and answers as an equal polytope does.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

import relunorm as rn
from relunorm.clock import Clock
from relunorm.domain import KINDS, Domain, RandomState
from relunorm.domain.documents import domain_from_dict, holds
from relunorm.errors import InvalidDomainError
from relunorm.search.rational.maxima import largest
from relunorm.stability import stability

Array = NDArray[np.float64]


class Ellipsoid(Domain):
    """All x with sum ((x - middle) / axes)^2 <= 1."""

    kind: ClassVar = "ellipsoid"
    fields: ClassVar = {"middle": 1, "axes": 1}

    def __init__(self, middle: ArrayLike, axes: ArrayLike):
        self.middle, self.axes = np.asarray(middle, float), np.asarray(axes, float)

    @property
    def dimension(self) -> int:
        return len(self.middle)

    @property
    def center(self) -> Array:
        return self.middle

    @property
    def radius(self) -> float:
        return float(np.linalg.norm(self.middle) + self.axes.max()) * (1 + 1e-12)

    @property
    def numbers(self) -> tuple[Array, ...]:
        return self.middle, self.axes

    def outer_ends(self) -> tuple[Array, Array]:
        return (
            np.nextafter(self.middle - self.axes, -np.inf),
            np.nextafter(self.middle + self.axes, np.inf),
        )

    def support(self, directions: ArrayLike) -> tuple[Array, Array]:
        rows = self._directions(directions)
        swing = np.linalg.norm(rows * self.axes, axis=1)
        return rows @ self.middle - swing, rows @ self.middle + swing

    def maximizer(self, rows: Array) -> Array:
        length = np.linalg.norm(rows * self.axes, axis=1, keepdims=True)
        return self.middle + self.axes**2 * rows / np.where(length > 0, length, 1.0)

    def far_points(self, points: ArrayLike, directions: ArrayLike) -> Array:
        far = self.maximizer(self._directions(directions))
        return self.middle + (1 - 1e-12) * (far - self.middle)

    def project(self, points: Array) -> Array:
        size = np.linalg.norm((points - self.middle) / self.axes, axis=-1, keepdims=True)
        return self.middle + (points - self.middle) / np.maximum(size, 1.0)

    def contains(self, points: ArrayLike, tolerance: float = 0.0) -> NDArray[np.bool_]:
        size = np.linalg.norm((self._points(points) - self.middle) / self.axes, axis=1)
        return size <= 1 + tolerance / self.axes.max()

    def _holds(self, rows: Array) -> NDArray[np.bool_]:
        def square(x: float, m: float, a: float) -> Fraction:
            return ((Fraction(x) - Fraction(m)) / Fraction(a)) ** 2

        ends = self.middle.tolist(), self.axes.tolist()
        return np.array([sum(map(square, row, *ends)) <= 1 for row in rows.tolist()])

    def sample(self, count: int, random_state: RandomState = None) -> Array:
        rng = np.random.default_rng(random_state)
        steps = rng.standard_normal((count, self.dimension))
        steps /= np.linalg.norm(steps, axis=1, keepdims=True)
        return self.middle + self.axes * steps * rng.random((count, 1)) ** (1 / self.dimension)


class Simplex(Domain):
    """All x >= 0 with sum x <= 1: the box [0, 1]^d and one row."""

    kind: ClassVar = "simplex"
    fields: ClassVar = {"size": 0}
    flat_sided: ClassVar = True  # type: ignore[assignment]

    def __init__(self, size: int):
        self.size = size
        self.corners = np.concatenate([np.zeros((1, size)), np.eye(size)])

    @property
    def dimension(self) -> int:
        return self.size

    @property
    def center(self) -> Array:
        return np.full(self.size, 1 / (self.size + 1))

    @property
    def radius(self) -> float:
        return 1.0

    @property
    def numbers(self) -> tuple[int]:
        return (self.size,)

    @property
    def half_spaces(self) -> tuple[Array, Array]:  # type: ignore[override]
        return np.ones((1, self.size)), np.ones(1)

    def outer_ends(self) -> tuple[Array, Array]:
        return np.zeros(self.size), np.ones(self.size)

    def support(self, directions: ArrayLike) -> tuple[Array, Array]:
        heights = self._directions(directions) @ self.corners.T
        return heights.min(axis=1), heights.max(axis=1)

    def maximizer(self, rows: Array) -> Array:
        return self.corners[(rows @ self.corners.T).argmax(axis=1)]

    def far_points(self, points: ArrayLike, directions: ArrayLike) -> Array:
        return self.maximizer(self._directions(directions))

    def project(self, points: Array) -> Array:
        inside = np.maximum(points, 0.0)
        return inside / np.maximum(inside.sum(axis=-1, keepdims=True) * (1 + 1e-15), 1.0)

    def contains(self, points: ArrayLike, tolerance: float = 0.0) -> NDArray[np.bool_]:
        rows = self._points(points)
        return (rows >= -tolerance).all(axis=1) & (rows.sum(axis=1) <= 1 + tolerance)

    def _holds(self, rows: Array) -> NDArray[np.bool_]:
        small = np.array([sum(map(Fraction, row)) <= 1 for row in rows.tolist()])
        return small & (rows >= 0).all(axis=1)

    def sample(self, count: int, random_state: RandomState = None) -> Array:
        rng = np.random.default_rng(random_state)
        return self.project(rng.dirichlet(np.ones(self.size + 1), count)[:, 1:])


PLACE = Ellipsoid([0.25, -0.5], [1.5, 0.5])


@pytest.fixture
def network() -> rn.Network:
    rng = np.random.default_rng(3)
    return rn.Network.from_weights(
        [rng.standard_normal((4, 2)), rng.standard_normal((2, 4))], [rng.standard_normal(4), [0, 0]]
    )


@pytest.fixture
def points() -> Array:
    return np.concatenate([PLACE.sample(4000, 0), PLACE.maximizer(PLACE.sample(400, 1))])


def test_maxima_are_bracketed(network: rn.Network, points: Array) -> None:
    found = rn.maximize(network, PLACE, [1.0, 0.0], time_limit=0.2)
    assert PLACE.holds(found.point)[0]
    assert found.upper >= network(points)[:, 0].max() - 1e-12
    assert network(found.point)[0] == pytest.approx(found.lower, rel=1e-9)
    assert found.lower > network(PLACE.center)[0]


def test_units_are_stable_only_where_no_sample_moves_them(
    network: rn.Network, points: Array
) -> None:
    found = stability(network, PLACE, time_limit=1.0).layers[0]
    seen = network.preactivations(points)[0]
    assert (found.lower <= seen.min(axis=0)).all()
    assert (found.upper >= seen.max(axis=0)).all()


def test_forms_compare_and_carry_their_certificate(
    network: rn.Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, Ellipsoid.kind, Ellipsoid)
    small = rn.normalize(network, "canonical", PLACE)
    assert rn.compare(network, small.network, PLACE).verdict in ("equal", "within")
    assert small.certificate is not None
    assert rn.verify(small.certificate, network, small.network).holds
    assert len(rn.fingerprint(network, PLACE)) > 10
    back = domain_from_dict(PLACE.to_dict())
    assert back.digest == PLACE.digest
    assert holds(rn.Box.cube(2, -2, 2), back)
    assert not holds(rn.Box.cube(2, -1, 1), back)


def test_slopes_and_programs(network: rn.Network, points: Array) -> None:
    steep = np.linalg.norm(network.jacobian(points), ord=2, axis=(1, 2)).max()
    found = rn.lipschitz(network, PLACE, time_limit=0.5)
    assert found.upper >= steep * (1 - 1e-12)
    program = rn.to_c(network, PLACE, bits=16)
    assert program.epsilon >= np.abs(program.program.predict(points) - network(points)).max()


@pytest.mark.parametrize(
    "ask", [rn.regions, lambda net, place: rn.region_at(net, [0.25, -0.5], place)]
)
def test_what_needs_walls_refuses(ask: Callable[..., Any], network: rn.Network) -> None:
    with pytest.raises(InvalidDomainError, match=r"[Bb]ox"):
        ask(network, PLACE)


SIMPLEX = Simplex(2)
EQUAL = rn.Polytope([[-1.0, 0.0], [0.0, -1.0], [1.0, 1.0]], [0.0, 0.0, 1.0])


def test_a_simplex_holds_only_what_lies_in_its_box() -> None:
    assert holds(SIMPLEX, rn.Box.cube(2, 0.0, 0.5))
    assert not holds(SIMPLEX, rn.Box.cube(2, -1.0, 0.2))
    assert not holds(SIMPLEX, rn.Box.cube(2, 0.0, 0.6))
    assert holds(rn.Box.cube(2, 0.0, 1.0), SIMPLEX)
    assert holds(EQUAL, EQUAL)
    assert not holds(EQUAL, rn.Box.cube(2, -1.0, 0.2))


def test_a_simplex_answers_as_an_equal_polytope(
    network: rn.Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, Simplex.kind, Simplex)
    for row in ([1.0, 0.0], [0.0, -1.0]):
        one, two = (rn.maximize(network, place, row) for place in (SIMPLEX, EQUAL))
        assert one.exact
        assert one.upper == pytest.approx(two.upper, rel=1e-6)
        assert SIMPLEX.holds(one.point)[0]
        assert one.certificate is not None
        assert one.certificate.verify(network).holds
    for mine, other in zip(
        stability(network, SIMPLEX).layers, stability(network, EQUAL).layers, strict=True
    ):
        assert list(mine.verdict) == list(other.verdict)
    small = rn.normalize(network, "canonical", SIMPLEX)
    assert small.certificate is not None
    assert rn.verify(small.certificate, network, small.network).holds
    assert rn.compare(network, small.network, SIMPLEX).verdict in ("equal", "within")
    one, two = (rn.lipschitz(network, place) for place in (SIMPLEX, EQUAL))
    assert (one.lower, one.upper) == pytest.approx((two.lower, two.upper), rel=1e-9)
    assert one.certificate is not None
    assert one.certificate.verify(network).holds
    one, two = (rn.sensitivity(network, place) for place in (SIMPLEX, EQUAL))
    np.testing.assert_allclose(one.upper, two.upper, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(one.lower, two.lower, rtol=1e-9, atol=1e-12)
    one, two = (rn.regions(network, place) for place in (SIMPLEX, EQUAL))
    assert len(one) == len(two)
    assert one.volume().sum() == pytest.approx(0.5, rel=1e-9)
    one, two = (rn.region_at(network, [0.25, 0.25], place) for place in (SIMPLEX, EQUAL))
    corners = [np.round(region.vertices(), 9) + 0.0 for region in (one, two)]
    assert sorted(map(tuple, corners[0])) == sorted(map(tuple, corners[1]))


def test_slopes_across_a_side_of_length_zero_are_refused(
    network: rn.Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Simplex, "outer_ends", lambda self: (np.zeros(2), np.array([1.0, 0.0])))
    for ask in (rn.lipschitz, rn.sensitivity):
        with pytest.raises(InvalidDomainError, match=r"length zero|no interior"):
            ask(network, Simplex(2))


def test_a_simplex_in_fractions() -> None:
    net = rn.Network.from_weights([[[1.0, 1.0], [-1.0, -1.0]], [[-1.0, -1.0]]])  # -|x + y|
    found = largest(net, SIMPLEX, [(np.eye(1), np.zeros(1))], Clock(None))  # of |x + y|
    assert found.value == 1
    found = largest(net, SIMPLEX, [(-np.eye(1), np.zeros(1))], Clock(None))
    assert found.value == 0
