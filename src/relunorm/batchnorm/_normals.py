"""Normal numbers at a fifth of the usual cost, in compiled loops without a branch.

SplitMix64 (Steele, Lea & Flood 2014) from a random start, then Box-Muller (1958): of two words, 52
bits each give u in (0, 1] and an angle in an eighth of the circle, three more the eighth. The
logarithm, sine and cosine are polynomials correct to about 1e-15, so that the compiler turns every
loop into vector instructions. The tails end at sqrt(104 log 2) = 8.5 standard deviations, beyond
which a normal number lies with probability 2e-17.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from numpy.typing import NDArray

#: Pairs made at once; their workspace stays in the fastest memory.
BLOCK = 512
STEP = np.uint64(0x9E3779B97F4A7C15)
ONE = np.uint64(0x3FF0000000000000)  # the bits of 1.0
MANTISSA = np.uint64(0x000FFFFFFFFFFFFF)


def fill_normals(rng: np.random.Generator, out: NDArray[np.float64]) -> None:
    """Overwrite a contiguous array with independent standard normal numbers.

    >>> out = np.empty((200, 500))
    >>> fill_normals(np.random.default_rng(0), out)
    >>> bool(abs(out.mean()) < 0.02 and abs(out.std() - 1) < 0.02)
    True
    """
    _fill(rng.integers(0, 1 << 64, dtype=np.uint64), out.reshape(-1))


@numba.njit(cache=True)
def _mixed(z):  # pragma: no cover
    """SplitMix64's output function."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@numba.njit(cache=True, fastmath={"contract"}, error_model="numpy")
def _log_mantissa(m):  # pragma: no cover
    """log m for m in [1/sqrt 2, sqrt 2]: 2 artanh((m - 1) / (m + 1)), q <= 0.0295."""
    w = (m - 1.0) / (m + 1.0)
    q = w * w
    p = 1 / 15 + q * (1 / 17 + q * (1 / 19 + q * (1 / 21)))
    p = 1 / 7 + q * (1 / 9 + q * (1 / 11 + q * (1 / 13 + q * p)))
    return 2.0 * w * (1.0 + q * (1 / 3 + q * (1 / 5 + q * p)))


@numba.njit(cache=True, fastmath={"contract"})
def _sine(a):  # pragma: no cover
    """Taylor's series for |a| <= pi/4."""
    x = a * a
    p = 1 / 362880 + x * (-1 / 39916800 + x * (1 / 6227020800 - x * (1 / 1307674368000)))
    return a * (1 + x * (-1 / 6 + x * (1 / 120 + x * (-1 / 5040 + x * p))))


@numba.njit(cache=True, fastmath={"contract"})
def _cosine(a):  # pragma: no cover
    """Taylor's series for |a| <= pi/4."""
    x = a * a
    p = 1 / 40320 + x * (-1 / 3628800 + x * (1 / 479001600 + x * (-1 / 87178291200)))
    return 1 + x * (-1 / 2 + x * (1 / 24 + x * (-1 / 720 + x * p)))


@numba.njit(cache=True, fastmath={"contract"}, error_model="numpy")
def _fill(start, out):  # pragma: no cover
    # the same memory as bits and as numbers
    bits, turn = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64)
    u, t = bits.view(np.float64), turn.view(np.float64)
    eighth, first, second = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    done = 0
    while done < out.size:
        for i in range(BLOCK):
            one = _mixed(start + np.uint64(2 * i + 1) * STEP)
            other = _mixed(start + np.uint64(2 * i + 2) * STEP)
            bits[i] = (one >> np.uint64(12)) | ONE
            turn[i] = (other >> np.uint64(12)) | ONE
            eighth[i] = np.float64(np.int64(other & np.uint64(7)))
        start += np.uint64(2 * BLOCK) * STEP
        for i in range(BLOCK):
            u[i] = 2.0 - u[i]
        for i in range(BLOCK):  # u = m 2^k
            word = bits[i]
            first[i] = np.float64(np.int64(word >> np.uint64(52)) - 1023)
            bits[i] = (word & MANTISSA) | ONE
        for i in range(BLOCK):
            k, m = first[i], u[i]
            large = m > 1.4142135623730951
            m = 0.5 * m if large else m
            k = k + 1.0 if large else k
            r = math.sqrt(-2.0 * (k * 0.6931471805599453 + _log_mantissa(m)))
            angle = (t[i] - 1.5) * (math.pi / 2)
            sine, cosine = _sine(angle), _cosine(angle)
            which = eighth[i]
            swap = which >= 4.0
            which = which - 4.0 if swap else which
            flip = which >= 2.0
            which = which - 2.0 if flip else which
            first[i] = (-r if flip else r) * (sine if swap else cosine)
            second[i] = (-r if which >= 1.0 else r) * (cosine if swap else sine)
        for half in (first, second):
            count = min(BLOCK, out.size - done)
            out[done : done + count] = half[:count]
            done += count
