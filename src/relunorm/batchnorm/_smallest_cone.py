"""The smallest cell of an arrangement beyond three dimensions: listed, measured, and told apart."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from relunorm.batchnorm._cone_cut import (
    Cone,
    TimeUpError,
    TooComplexError,
    TooThinError,
    arrangement,
    cone_of,
)
from relunorm.batchnorm._cone_measure import ConeMeasure, Measure
from relunorm.batchnorm._cone_walk import cell_signs, walk
from relunorm.batchnorm._orthant_measure import OrthantMeasure
from relunorm.batchnorm._thin_corners import thin_corners
from relunorm.batchnorm.cells import CellVolumes, Seen, cell_count
from relunorm.clock import Clock, Teller

#: Samples per cell before any is looked at more closely.
FIRST = 256
#: Cells measured out of those collected: as many in thin corners, as many that seem small.
SHORTLIST = 64
#: Standard errors by which the smallest cell must stand apart.
APART = 3.0
#: How many times ``samples`` may be spent on telling cells apart.
EFFORT = 64
#: Share of the time limit in which cells are looked for; the rest is for measuring them.
SEARCH = 0.5
#: The relative error of `FIRST` samples up to which an orthant's measure is trusted.
TRUSTED = 0.3


def smallest_cone(
    lines: NDArray[np.float64],
    samples: int,
    max_cells: int,
    rng: np.random.Generator,
    tell: Teller,
) -> CellVolumes:
    """List the cells if they are at most ``max_cells``, else walk; measure until the time is up;
    find the smallest.
    """
    clock = tell.clock
    late, searched = clock.expired, clock.until(SEARCH)
    count, k = lines.shape
    cones = _listed(lines, max_cells, clock.until(SEARCH / 2).expired)
    listed = cones is not None
    doubts = []
    if cones is not None:
        signs = np.array([cone.signs(lines) for cone in cones])
        volumes = np.zeros(len(cones))
        order = list(range(len(cones)))
        seen = Seen()
    else:
        signs, volumes, order = _collected(lines, max_cells, rng, clock)
        seen = _seen(lines, signs, samples, rng)
        doubts.append(_unseen(len(signs), len(order), lines, seen, searched.expired()))
    measures: dict[int, Measure] = {}
    tried = thin = 0
    for tried, index in enumerate(order, 1):
        try:
            cone = cone_of(lines, signs[index], late) if cones is None else cones[index]
            measures[index] = _measured(cone, lines * signs[index][:, None], rng, late)
        except TooThinError:
            thin += 1
            continue
        except TooComplexError:
            continue
        except TimeUpError:
            tried -= 1
            break
        tell("cells measured", tried, len(order))
    if tried < len(order):
        doubts.append(f"the time limit left {len(order) - tried} cells unmeasured")
    if thin:
        doubts.append(f"{thin} cells are thinner than rounding and were not measured")
    if len(measures) + thin < tried:
        complex_cells = tried - thin - len(measures)
        doubts.append(
            f"{complex_cells} cells have too many extreme rays, or are too thin in too many "
            "dimensions, to be measured"
        )
    if not measures:
        return _rough(lines, signs, volumes, seen, doubts)
    smallest, rivals, ties = _tell_apart(measures, samples, rng, late)
    if rivals > ties:
        doubts.append(
            f"{rivals - ties} other cells are as small within the error; if one of them is "
            "smaller, then by a few standard errors"
        )
    chosen = measures[smallest]
    chosen.forget()
    chosen.sample(samples, rng)
    for index, measure in measures.items():
        volumes[index] = measure.value
    return CellVolumes(
        chosen.value,
        chosen.error,
        "estimate",
        k,
        count,
        np.vstack([signs, -signs]),
        np.concatenate([volumes, volumes]),
        smallest,
        2 * len(signs) if listed else None,
        rivals,
        seen,
        "; ".join(doubts),
        ties,
    )


def _listed(
    lines: NDArray[np.float64], max_cells: int, late: Callable[[], bool]
) -> list[Cone] | None:
    """One cell of each opposite pair, or None where there may be too many or it gets late."""
    if cell_count(*lines.shape) > max_cells:  # the most there can be
        return None
    try:
        return arrangement(lines, late)
    except TimeUpError:
        return None


def _unseen(found: int, chosen: int, lines: NDArray[np.float64], seen: Seen, late: bool) -> str:
    """What is in doubt where the cells were not listed."""
    total = cell_count(*lines.shape)
    advice = "most of them are out of reach"
    if late:
        advice = "the time limit ended the search for more"
    elif total <= 1_000_000:
        advice = (
            "raise max_cells to that number to list them all (about 0.2 ms a cell in four "
            "dimensions, ten times that in seven)"
        )
    return (
        f"{2 * found} of at most {total} cells were seen, which hold {100 * seen.share:.3g} +- "
        f"{100 * seen.error:.1g} % of the whole, and {2 * chosen} were chosen to be measured, "
        f"among them those in the thinnest corners; a smaller one may have been missed; {advice}"
    )


def _measured(
    cone: Cone, inner: NDArray[np.float64], rng: np.random.Generator, late: Callable[[], bool]
) -> Measure:
    """A first measure of the cone of all w with ``inner @ w > 0``."""
    try:
        measure: Measure = ConeMeasure(cone, late)
    except TooComplexError:
        if len(inner) > inner.shape[1]:
            raise
        measure = OrthantMeasure(inner)
    measure.sample(FIRST, rng)
    if isinstance(measure, OrthantMeasure) and not measure.error < TRUSTED * measure.value:
        raise TooComplexError("the values scatter too widely for their spread to be an error bar")
    return measure


def _collected(
    lines: NDArray[np.float64],
    max_cells: int,
    rng: np.random.Generator,
    clock: Clock,
) -> tuple[NDArray[np.int8], NDArray[np.float64], list[int]]:
    """Cells of an arrangement too large to list, one of each opposite pair, their rough measures,
    and which to measure well: those in thin corners and those that seem smallest.
    """
    few, many = min(SHORTLIST, max(1, max_cells // 4)), max(1, max_cells // 2)
    thin = thin_corners(lines, few, rng, clock.until(SEARCH / 2).expired)
    walked = walk(lines, many, thin, rng, clock.until(SEARCH).expired)
    signs, volumes = _one_of_each_pair(*walked)
    known, _ = _one_of_each_pair(cell_signs(lines, thin), np.zeros(len(thin)))
    thinnest = {row.tobytes() for row in known}
    order = [i for i, row in enumerate(signs) if row.tobytes() in thinnest]
    order += [i for i in np.argsort(volumes)[:SHORTLIST].tolist() if i not in set(order)]
    return signs, volumes, order


def _seen(
    lines: NDArray[np.float64], signs: NDArray[np.int8], samples: int, rng: np.random.Generator
) -> Seen:
    """The measure of the cells found, from fresh random directions."""
    drawn = cell_signs(lines, rng.standard_normal((samples, lines.shape[1])))
    known = {row.tobytes() for row in signs}
    share = float(np.mean([row.tobytes() in known for row in drawn * drawn[:, :1]]))
    # not 0 where none or all were known: the next one might differ
    return Seen(share, max(math.sqrt(share * (1 - share) / samples), 1 / samples))


def _tell_apart(
    measures: dict[int, Measure],
    samples: int,
    rng: np.random.Generator,
    late: Callable[[], bool],
) -> tuple[int, int, int]:
    """Sample whatever may be the smallest until one is left, what is left is known to be equal, or
    the effort is spent: the smallest, how many others it may be, and how many of them are equal.
    """
    left = EFFORT * samples
    while True:
        below = min(m.value + APART * m.error for m in measures.values())
        able = {i: m for i, m in measures.items() if m.value - APART * m.error <= below}
        smallest = min(able, key=lambda i: able[i].value)
        ties = sum(_equal(able[smallest], m) for m in able.values()) - 1
        left -= sum(m.samples for m in able.values())
        if len(able) == max(ties, 0) + 1 or left < 0 or late():
            return smallest, len(able) - 1, max(ties, 0)
        for measure in able.values():
            measure.sample(measure.samples, rng)
            if late():
                break


def _equal(one: Measure, other: Measure) -> bool:
    """Both measures without sampling error (pieces with orthogonal rays), and the same."""
    rounding = 1e-7 * one.value  # a standard error is the root of a difference of squares
    return max(one.error, other.error, abs(one.value - other.value)) <= rounding


def _one_of_each_pair(
    signs: NDArray[np.int8], volumes: NDArray[np.float64]
) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    """Cells come in opposite pairs of equal measure: keep the one that is + at its first line."""
    _, first = np.unique(signs * signs[:, :1], axis=0, return_index=True)
    return signs[first] * signs[first, :1], volumes[first]


def _rough(
    lines: NDArray[np.float64],
    signs: NDArray[np.int8],
    volumes: NDArray[np.float64],
    seen: Seen,
    doubts: list[str],
) -> CellVolumes:
    """No cell could be measured: say the rays' order of magnitude, with no error bar to trust."""
    smallest = int(np.argmin(volumes))
    doubts = [*doubts, "the value is a rough ray estimate that may be orders of magnitude off"]
    return CellVolumes(
        float(volumes[smallest]),
        float("inf"),
        "estimate",
        lines.shape[1],
        len(lines),
        np.vstack([signs, -signs]),
        np.concatenate([volumes, volumes]),
        smallest,
        None,
        0,
        seen,
        "; ".join(doubts),
    )
