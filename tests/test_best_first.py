"""The loop of branch and bound: its order, its numbers, and what it leaves open."""

from __future__ import annotations

import heapq
import itertools
import math
from typing import Any

import pytest

from relunorm.best_first import Frontier, Node, Part, Parts
from relunorm.clock import Clock

Interval = tuple[float, float]


def value(x: float) -> float:
    return -((x - 0.3) ** 2)


def bound(part: Interval) -> float:
    """|value'| <= 2 on [0, 1]."""
    return value((part[0] + part[1]) / 2) + (part[1] - part[0])


def halves(parts: list[Interval]) -> list[tuple[str, Interval, Interval]]:
    return [("middle", (a, (a + b) / 2), ((a + b) / 2, b)) for a, b in parts]


def whole() -> Parts[Interval]:
    return Parts(bound((0.0, 1.0)), (0.0, 1.0))


def ahead(open_: Parts[Interval], enough: float, **limits: Any) -> None:
    def begin(parts: list[Interval]) -> Any:
        return lambda: halves(parts)

    given = {"batch": 7, "most": math.inf, "clock": Clock(None), "then": lambda: None, **limits}
    open_.halve_ahead(begin, bound, lambda: enough, **given)


@pytest.mark.parametrize("batch", [1, 7, None])
def test_parts_cover_the_whole_and_their_numbers_say_how(batch: int | None) -> None:
    open_ = whole()
    if batch is None:
        ahead(open_, 0.01)
    else:
        open_.halve(halves, bound, lambda: 0.01, batch=batch)
    assert 0.0 <= open_.bound <= 0.01
    ends = sorted(part.what for part in open_)
    assert ends[0][0] == 0.0
    assert ends[-1][1] == 1.0
    assert all(first[1] == second[0] for first, second in itertools.pairwise(ends))
    again = {0: (0.0, 1.0)}
    for k, (number, how) in enumerate(open_.cuts):
        assert how == "middle"
        _, again[2 * k + 1], again[2 * k + 2] = halves([again.pop(number)])[0]
    assert again == {part.number: part.what for part in open_}


def test_parts_are_chosen_while_others_are_cut() -> None:
    open_, begun, most = whole(), [], 0

    def begin(parts: list[Interval]) -> Any:
        nonlocal most
        begun.append(parts)
        most = max(most, len(begun))
        assert len(open_.running) == len(begun)
        return lambda: halves(begun.pop(0))

    seen: list[float] = []
    open_.halve_ahead(
        begin, bound, lambda: 0.01, batch=7, most=math.inf, clock=Clock(None),
        then=lambda: seen.append(open_.bound),
    )  # fmt: skip
    assert most == 2
    assert seen == sorted(seen, reverse=True)
    assert not open_.running


def test_limits_hold_for_parts_that_are_chosen_ahead() -> None:
    open_ = whole()
    ahead(open_, -math.inf, clock=Clock(0.0))
    assert not open_.cuts
    ahead(open_, -math.inf, most=5)
    assert 5 <= len(open_) <= 12
    cuts = len(open_.cuts)
    open_.halve_ahead(
        lambda parts: lambda: None, bound, lambda: -math.inf, batch=2, most=math.inf,
        clock=Clock(None), then=lambda: None,
    )  # fmt: skip
    assert len(open_.cuts) == cuts
    assert len(open_.waiting) == len(open_)
    with pytest.raises(KeyboardInterrupt):
        open_.halve_ahead(
            _interrupted, bound, lambda: -math.inf, batch=2, most=math.inf, clock=Clock(None),
            then=lambda: None,
        )  # fmt: skip
    assert len(open_.waiting) == len(open_)


def _interrupted(parts: list[Interval]) -> Any:
    raise KeyboardInterrupt


def test_what_is_enough_is_asked_again() -> None:
    open_, asked = whole(), []

    def enough() -> float:
        asked.append(open_.bound)
        return math.inf if len(open_.cuts) >= 3 else -math.inf

    open_.halve(halves, bound, enough)
    assert len(open_.cuts) == 3
    assert asked == sorted(asked, reverse=True)


def test_limits_of_time_and_room() -> None:
    open_ = whole()
    open_.halve(halves, bound, lambda: -math.inf, clock=Clock(0.0))
    assert not open_.cuts
    open_.halve(halves, bound, lambda: -math.inf, most=5)
    assert len(open_) == 5
    open_.halve(lambda parts: None, bound, lambda: -math.inf)
    assert len(open_) == 5
    assert len(open_.waiting) == 5


def test_an_interrupt_leaves_what_was_being_cut_open() -> None:
    open_ = whole()
    open_.halve(halves, bound, lambda: 0.5)
    before, seen = sorted(part.number for part in open_), []

    def interrupted(parts: list[Interval]) -> None:
        seen.append((open_.bound, len(open_)))
        raise KeyboardInterrupt

    top = open_.bound
    with pytest.raises(KeyboardInterrupt):
        open_.halve(interrupted, bound, lambda: -math.inf, batch=2)
    assert seen == [(top, len(before))]
    assert sorted(part.number for part in open_) == before
    assert open_.bound == top
    assert not open_.running


def test_ctrl_c_while_parts_are_taken_loses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    open_ = whole()
    open_.halve(halves, bound, lambda: 0.5)
    before, pop = sorted(part.number for part in open_), heapq.heappop

    def interrupted(heap: list) -> Any:
        if len(heap) < len(before):  # the second one
            raise KeyboardInterrupt
        return pop(heap)

    monkeypatch.setattr(heapq, "heappop", interrupted)
    with pytest.raises(KeyboardInterrupt):
        open_.halve(halves, bound, lambda: -math.inf, batch=3)
    assert sorted(part.number for part in open_) == before
    with pytest.raises(KeyboardInterrupt):
        ahead(open_, -math.inf)
    assert sorted(part.number for part in open_) == before
    assert len(open_.waiting) == len(before)


def test_another_order_and_weights() -> None:
    nodes = Frontier([Part(-b, n, "") for n, b in enumerate([3.0, 9.0, 5.0])])
    assert nodes.weight == 3
    assert nodes.bound == 9.0
    assert nodes.take(0, lambda node: node.number).bound == 5.0
    assert nodes.take(0).bound == 9.0
    assert nodes.weight == 1
    assert len(nodes.waiting) == 1
    assert len(nodes) == 3
    del nodes.running[0]
    nodes.running["elsewhere"] = [Part(-7.0, 5, "")]
    assert nodes.bound == 7.0
    assert len(nodes) == 2
    nodes.give_back("elsewhere")
    assert nodes.take(0).number == 5
    assert Frontier[Node]().bound == -math.inf
