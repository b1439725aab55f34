"""Kernels against their own source, run by Python: every statement and operation they may use."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest

from relunorm.compiled.jit import inner, kernel, kernel_part, loose_part
from relunorm.compiled.language.kinds import KernelError
from relunorm.compiled.operations import eight, keep, lanes, leading_zeros, spread, width

LIMIT = 7
PAIR = (2, 0.5)


class Point(NamedTuple):
    x: float
    rows: Any


@kernel_part
def _swap(a, b):
    return b, a


@inner
def _halves(n):
    if n % 2 == 0:
        return n // 2
    return 0.5 * n


@loose_part
def _sum(row):
    total = 0.0
    for k in range(len(row)):
        total += row[k]
    return total


@kernel
def arithmetic(a, b, x, y):
    low, high = _swap(max(a, b), min(a, b))
    return (
        a + b, a - b, a * b, a // b, a % b, -a // 3, -7 % 3, a / b, x / y, x**2, x**3, 2.0**a,
        low, high, abs(a - b), abs(x - y), -x, a & b, a | b, a ^ b, ~a, a >> 1, a << 2,
        min(x, y, 0.25), max(a, x), a + (x > y), int(x), float(a), np.sqrt(abs(x)),
        np.floor(x), np.ceil(y), np.sign(x), np.exp(x), np.log2(abs(y)), np.isnan(x),
        np.nextafter(x, np.inf), np.nextafter(x, -np.inf), PAIR[0] * LIMIT + PAIR[1],
    )  # fmt: skip


@kernel
def conditions(a, b, x):
    first = a < b <= 9
    second = a == b or (x > 0.0 and not first)
    third = 1.5 if first else a
    count = 0
    if first and second:
        count += 1
    elif x != x:
        count -= 5
    elif a > b or x >= 2.0:
        count += 10
    else:
        return 1000, third
    return count, third


@kernel
def loops(n, out):
    total = 0  # becomes a float below
    for i in range(n):
        if i == 3:
            continue
        for j in range(i, -2, -2):
            if j * i > 20:
                break
            total += j / 2
    for step in (2, n):
        for k in range(0, len(out), step):
            out[k] += step
    while total > 50.0:
        total = total / 3
    i = n
    while True:
        i -= 1
        if i < 0:
            break
        out[i] *= 2.0
    return total


@kernel
def arrays(m, v, small, flags, whole):
    rows, columns = m.shape
    row, part = m[1], m[0, 1:3]
    for k in range(columns):
        row[k] -= v[-1]
    part[1] = LIMIT
    block = v[1:].reshape((2, 2))
    block[1, 0] += m[rows - 1, columns - 1]
    small[0] = small[1] - 3
    small[2] += 300  # wraps as int8 does
    flags[1] = small[0] > 0
    flags[0] |= flags[1]
    whole[0], whole[1] = whole[1], whole[0]
    clipped = v[3:100]
    tail = v[5:3]
    room = np.empty(4)
    for k in range(4):
        room[k] = 2 * k
    point = Point(v[0], m)
    return _sum(row) + len(clipped) + 10 * len(tail) + room[3] + point.x + point.rows[0, 0]


@kernel
def words(w):
    one = np.uint64(1)
    low = w & (~w + one)
    count = 0
    while w != np.uint64(0):
        w &= w - one
        count += 1
    return low, count, (low >> np.uint64(1)) | (one << np.uint64(3))


@kernel
def zeros(w):
    return leading_zeros(w)


@kernel
def singles(a, x):
    total = a[0]
    for k in range(1, len(a)):
        total += a[k]  # in float32
    a[0] = total * x  # in float64, and rounded
    return total, np.float32(x)


@kernel
def widened(n):
    return _halves(n)


@kernel
def widened_if(flag):
    return 1.5 if flag else 0


def same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and (one == other or (one != one and other != other))


@pytest.mark.parametrize("seed", range(40))
def test_arithmetic_and_conditions(seed):
    rng = np.random.default_rng(seed)
    a, b = (int(v) for v in rng.integers(-20, 20, 2))
    a, b = abs(a), b or 3
    x, y = (float(v) for v in rng.normal(scale=3, size=2))
    if seed == 0:
        x, y = 0.0, -0.0
    if seed == 1:
        x = math.inf
    if seed == 2:
        x = 5e-324
    wanted = arithmetic.py_func(a, b, x if math.isfinite(x) else 1.0, y or 1.0)
    found = arithmetic(a, b, x if math.isfinite(x) else 1.0, y or 1.0)
    for k, (ours, theirs) in enumerate(zip(found, wanted, strict=True)):
        assert ours == theirs or abs(ours - theirs) <= 4e-16 * abs(theirs), k
    for value in (x, -x, math.nan):
        assert conditions(a, b, value) == conditions.py_func(a, b, value)


@pytest.mark.parametrize("x", [0.0, -0.0, 5e-324, -5e-324, 1.0, -1.0, 1.7976931348623157e308])
def test_the_next_float(x):
    @kernel
    def following(x):
        return np.nextafter(x, np.inf), np.nextafter(x, -np.inf)

    for value in (x, -x, math.inf, -math.inf, math.nan):
        wanted = math.nextafter(value, math.inf), math.nextafter(value, -math.inf)
        assert all(map(same, following(value), wanted))


@pytest.mark.parametrize("n", [0, 1, 5, 12])
def test_loops(n):
    ours, theirs = np.arange(12.0), np.arange(12.0)
    assert loops(n or 1, ours) == loops.py_func(n or 1, theirs)
    assert np.array_equal(ours, theirs)


def test_arrays():
    def made():
        rng = np.random.default_rng(3)
        yield from (rng.normal(size=(3, 4)), rng.normal(size=5))
        yield from (np.array([1, 5, 100], np.int8), np.array([False, True]), np.array([3, 9]))

    ours, theirs = list(made()), list(made())
    found = arrays(*ours)
    # NumPy's int8 refuses 300, so that entry is checked apart
    assert ours[2][2] == int(np.array(400).astype(np.int8))
    theirs[2] = theirs[2].astype(np.int64)
    wanted = arrays.py_func(*theirs)
    assert found == pytest.approx(wanted, rel=1e-15)
    for mine, other in zip(ours[:2] + ours[3:], theirs[:2] + theirs[3:], strict=True):
        assert np.array_equal(mine, other)


@pytest.mark.parametrize("word", [1, 6, 2**63, 2**64 - 1, 0x123456789ABCDEF0])
def test_words(word):
    with np.errstate(over="ignore"):
        assert words(np.uint64(word)) == tuple(map(int, words.py_func(np.uint64(word))))
    assert zeros(np.uint64(word)) == 64 - word.bit_length()


def test_float32_is_computed_in_float32():
    a = np.random.default_rng(0).normal(size=100).astype(np.float32)
    total = a[0]
    for value in a[1:]:
        total = total + value
    expected = np.float32(float(total) * 1.1)
    assert singles(a, 1.1) == (float(total), float(np.float32(1.1)))
    assert a[0] == expected


def test_truth_values_of_numpy_are_taken():
    assert [widened_if(np.bool_(flag)) for flag in (True, False)] == [1.5, 0.0]


def test_what_a_part_returns_is_as_wide_as_needed():
    assert [widened(n) for n in (4, 5)] == [2.0, 2.5]


@kernel_part
def _scaled(row, factor):
    first = eight(row)
    return first, first * factor


@kernel
def eights(rows, numbers, flag, out):
    total, count = eight(0.0), 0
    for k in range(len(numbers)):
        row, more = _scaled(rows[k], numbers[k])
        total += more - row / 3.0
        out[k] = np.where(row > more, abs(row), -more)
        out[k] += 2 * total
        count += 1 if np.any(row <= numbers[k]) else 0
        chosen = np.sqrt(abs(total)) if flag else eight(k)
        out[k + 3] = np.maximum(np.minimum(chosen, 1.5), row)
    out[6] = out[7] = total
    out[7][:] = 0.5
    some = eight(rows[2], 3, 4)
    keep(out[7], 1, 5, some * 2.0)
    return count, np.sum(some) > 0.0, np.max(some)


@pytest.mark.parametrize("seed", range(10))
def test_eight_numbers_at_once(seed):
    rng = np.random.default_rng(seed)
    rows, numbers = rng.normal(size=(3, 8)), rng.normal(size=3)
    rows[1, :3] = np.nan, np.inf, -0.0
    ours, theirs = np.zeros((8, 8)), np.zeros((8, 8))
    with np.errstate(invalid="ignore"):
        wanted = eights.py_func(rows, numbers, seed % 2, theirs)
    assert eights(rows, numbers, seed % 2, ours) == wanted
    assert ours[7, 5] == 0.0
    assert np.array_equal(ours, theirs, equal_nan=True)


@kernel
def side_by_side(row, factor, out):
    wide, top = width(row), spread(factor, row)
    total = spread(0.0, row)
    for k in range(0, len(row), wide):
        some = min(len(row) - k, wide)
        one = lanes(row, k, some)
        total += row[0] * one - one / 3.0
        keep(out, k, some, np.where(one > 0.25, np.maximum(abs(one), top), -one))
    return np.sum(total), np.max(total), float(np.any(total > 2.0)), wide


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("length", [3, 16, 37])
def test_as_many_numbers_at_once_as_64_bytes_hold(length, dtype):
    row = np.random.default_rng(length).normal(size=length).astype(dtype)
    ours, theirs = np.zeros_like(row), np.zeros_like(row)
    total, *rest = side_by_side(row, 0.3, ours)
    wanted, *others = side_by_side.py_func(row, 0.3, theirs)
    assert (ours == theirs).all()
    assert rest[-1] == 64 // row.itemsize
    tolerance = 100 * np.finfo(dtype).eps
    np.testing.assert_allclose([total, *rest], [wanted, *others], rtol=tolerance, atol=tolerance)


@kernel
def single_by_double(x):
    return np.max(lanes(x) * float(x[0]))


@kernel
def lanes_of_words(x):
    return np.max(lanes(x))


@kernel
def one_of_eight(x):
    return float(eight(x))


@kernel
def chosen_once(x):
    return np.where(x[0] > 0.0, 1.0, 0.0)


@kernel
def eight_narrow(x):
    return eight(x)


@kernel
def unknown(x):
    return undefined + x  # type: ignore[name-defined]  # noqa: F821


@kernel
def float_index(x):
    return x[x[0]]


@kernel
def listed(x):
    return [x]


@kernel
def recursive(x):
    return recursive(x - 1)


@kernel
def strided(x):
    return x[::2][0]


@pytest.mark.parametrize(
    ("function", "given", "message"),
    [
        (unknown, 1.0, "undefined is not known"),
        (float_index, np.ones(3), "an index is float64"),
        (listed, 1.0, "kernels do not have List"),
        (recursive, 1.0, "calls itself"),
        (strided, np.ones(4), "contiguous"),
        (one_of_eight, np.ones(8), "eight float64 is not float64"),
        (chosen_once, np.ones(8), "of one there is if"),
        (eight_narrow, np.ones(8, np.float32), "a row of float64"),
        (single_by_double, np.ones(16, np.float32), "float64 does not fit sixteen float32"),
        (lanes_of_words, np.ones(8, np.int64), "a row of floats"),
        (arithmetic, "text", "cannot take str"),
        (float_index, np.ones(6)[::2], "contiguous"),
        (float_index, np.ones(3, complex), "complex128"),
    ],
)
def test_what_kernels_cannot_do_is_refused_by_name(function, given, message):
    with pytest.raises(KernelError, match=message):
        function(given)


FAULTY = """
import numpy as np
from test_translate import beyond, partly, summed
print(beyond(np.arange(3.0), 2), summed(np.ones(8), np.zeros((1, 8))))
{}
"""


@kernel
def beyond(x, k):
    return x[k]


@kernel
def partly(x, at):
    keep(x, at, 3, 2.0 * eight(x, 0, 4))  # so far it fits
    keep(x, at, 5, eight(x, at))
    return x[at]


@kernel
def summed(x, out):
    out[0] = eight(x) + 1.0
    return out[0, 7]


@pytest.mark.parametrize(
    ("call", "place"),
    [
        ("beyond(np.arange(3.0), 3)", "beyond: k"),
        ("summed(np.ones(7), np.zeros((1, 8)))", "summed: a row of eight"),
        ("summed(np.ones(8), np.zeros((1, 9)))", "summed: a row of eight"),
        ("partly(np.ones(9), 5)", "partly: a row of eight"),
    ],
)
def test_an_index_that_is_outside_is_named_where_that_is_checked(call, place):
    environment = {**os.environ, "RELUNORM_CHECKED": "1"}
    run = subprocess.run(
        [sys.executable, "-c", FAULTY.format(call)],
        env=environment,
        cwd=os.path.dirname(__file__),
        capture_output=True,
        text=True,
    )
    assert run.returncode < 0
    assert run.stdout == "2.0 2.0\n"
    assert f"outside of its array: test_translate.{place}" in run.stderr


def test_a_broken_file_is_compiled_again(tmp_path, monkeypatch):
    monkeypatch.setattr("relunorm.compiled.machine.folder", lambda: tmp_path)
    assert kernel(beyond.py_func)(np.arange(3.0), 1) == 1.0
    (kept,) = tmp_path.iterdir()
    whole = kept.read_bytes()
    for broken in (whole[:40], b"", whole[:-3] + b"abc"):
        kept.write_bytes(broken)
        assert kernel(beyond.py_func)(np.arange(3.0), 2) == 2.0
        assert kept.read_bytes() == whole


def test_what_is_kept_is_not_compiled_again(tmp_path, monkeypatch):
    monkeypatch.setattr("relunorm.compiled.machine.folder", lambda: tmp_path)
    heard = []
    monkeypatch.setattr("relunorm.compiled.jit.when_compiling", [lambda: heard.append(1)])
    for _ in range(2):
        assert kernel(beyond.py_func)(np.arange(3.0), 1) == 1.0
    assert heard == [1]
