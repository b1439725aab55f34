"""Groups of arrays in kernels, against the same source run by Python."""

from __future__ import annotations

import copy
import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest

from relunorm.compiled.groups import group, views
from relunorm.compiled.jit import kernel, kernel_part
from relunorm.compiled.language import kinds
from relunorm.compiled.operations import placed


@group
class Inner(NamedTuple):
    factor: float
    rows: Any


@group
class Outer(NamedTuple):
    x: Any
    count: int
    inner: Inner
    block: Any
    bits: Any
    flags: Any


@group
class Piece(NamedTuple):
    low: Any
    rows: Any


def outer(seed: int) -> Outer:
    rng = np.random.default_rng(seed)
    bits, flags = rng.integers(-3, 3, 4).astype(np.int8), np.array([True, False, seed % 2 == 0])
    inner = Inner(0.5 + seed, rng.normal(size=(3, 4)))
    return Outer(rng.normal(size=4), 2 + seed, inner, rng.normal(size=(2, 3, 4)), bits, flags)


@kernel_part
def _mixed(values, k):  # type: ignore[no-untyped-def]
    x, count, inner, _, bits, flags = values
    row, plane = inner.rows[1], values.block[-1]
    total = inner.factor * row[k] + x[-1] + plane[0, k] + values[3][1, 2, np.uint64(k)]
    for i in range(len(x)):
        row[i] += 1.0
        bits[i] = bits[i] - 1
    plane[2, -1] = 7
    flags[1] = not flags[0]
    part = inner.rows[2, 1:3]
    for i in range(len(part)):
        part[i] = 4.0
    return total + count + inner.rows.shape[0] + row[:2][1] + len(part)


@kernel
def mixed(values, k):  # type: ignore[no-untyped-def]
    return _mixed(values, k)


@pytest.mark.parametrize("seed", range(3))
def test_a_kernel_computes_what_its_source_says(seed: int) -> None:
    ours, theirs = outer(seed), outer(seed)
    assert mixed(ours, 1) == _mixed.py_func(theirs, 1)
    for mine, other in zip((*ours[:2], *ours[2], *ours[3:]), (*theirs[:2], *theirs[2], *theirs[3:]),
                           strict=True):  # fmt: skip
        assert np.array_equal(mine, other)


@kernel_part
def _shapes(n):  # type: ignore[no-untyped-def]
    return (n,), (2, n)


@kernel
def walk(words, memory, n):  # type: ignore[no-untyped-def]
    """The same words for one piece after another, which a later piece must not see."""
    total = 0.0
    for at in range(4):
        piece = placed(Piece, words, memory, at, _shapes(n))
        piece.rows[1, 0] += 1.0
        total = 3.0 * total + piece.low[n - 1] + piece.rows[0, 1]
    return total


def test_pieces_of_an_array_are_placed_where_views_lie() -> None:
    memory, n = np.random.default_rng(0).normal(size=20), 3
    expected, total = memory.copy(), 0.0
    for at in range(4):
        piece = views(Piece, expected[at:], _shapes.py_func(n))
        piece.rows[1, 0] += 1.0
        total = 3.0 * total + piece.low[n - 1] + piece.rows[0, 1]
    assert walk(np.zeros(5, np.int64), memory, n) == total
    assert np.array_equal(memory, expected)


@kernel
def first(values):  # type: ignore[no-untyped-def]
    return values.x[0]


def test_a_copy_knows_its_own_arrays() -> None:
    values = outer(0)
    before = first(values)
    for other in (copy.deepcopy(values), pickle.loads(pickle.dumps(values))):
        other.x[0] = before + 1.0
        assert first(other) == before + 1.0
        assert first(values) == before
    moved = values._replace(x=np.full(4, 9.0))
    assert first(moved) == 9.0
    assert type(moved) is Outer


@pytest.mark.parametrize("wrong", [{"x": np.zeros(8)[::2]}, {"count": np.float32(1)}])
def test_what_has_no_address_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(
        TypeError, match=r"contiguous arrays|cannot take Outer.count, which is float32"
    ):
        first(outer(0)._replace(**wrong))


def test_a_group_that_is_placed_meanwhile_keeps_its_words(monkeypatch):
    whole, word_at, others = outer(0), kinds._WORD_AT, []

    def meanwhile(address: int) -> Any:  # as another thread may
        if not others:
            others.append(None)
            others[0] = kinds.placed_group(whole)
        return word_at(address)

    monkeypatch.setattr(kinds, "_WORD_AT", meanwhile)
    assert kinds.placed_group(whole) is others[0]
    assert kinds.placed_group(whole) is others[0]
