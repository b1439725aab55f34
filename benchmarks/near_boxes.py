"""How many boxes the search on near copies takes over the whole input box of ACAS Xu: an estimate.

    python benchmarks/near_boxes.py [--descents 300] [--only TEXT]

From the whole box one half is taken at random after every cut until its bound is at most a factor
times a difference that was found; a node counts 2 to the power of its depth (Knuth, Math. Comp. 29,
1975). The lower ends are those of benchmarks/results.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from near_copies import ACAS, BOXES, CASES, copies

import relunorm as rn
from relunorm.bounds.pairs.condensed.kernel import Bounder
from relunorm.bounds.pairs.condensed.units import OPEN
from relunorm.bounds.pairs.pair import Pair, pair_up

LOWER = {"float32": 2.0e-6, "float16": 0.0275, "8 bits": 1.06, "pruned": 0.26, "tuned": 0.102}
FACTORS = np.array([300.0, 100.0, 30.0, 10.0])


def estimate(pair: Pair, lower: float, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For every factor: boxes, their standard error and CPU seconds."""
    rng = np.random.default_rng(0)
    lo, hi = (np.tile(end, (count, 1)) for end in BOXES["all inputs"])
    bounder, outputs = Bounder(pair, lo[0], hi[0]), pair.maps[-1].size
    signs = np.full((count, bounder.units), OPEN, dtype=np.int8)
    boxes, seconds = np.zeros((count, len(FACTORS))), np.zeros(len(FACTORS))
    known, live, weight = np.full(count, np.inf), np.arange(count), 1.0
    while len(live):
        upper = np.empty((len(live), 2 * outputs))
        score, corner = np.empty_like(lo), np.empty_like(lo)
        begin = time.process_time()
        bounder.bound(lo, hi, signs, upper, score, corner)
        spent = (time.process_time() - begin) / len(live)
        cut = known[:, None] > FACTORS * lower  # the box around it was
        boxes[live] += weight * cut
        seconds += weight * cut.sum(axis=0) / count * spent
        known = np.minimum(known, upper.max(axis=1))
        go = known > FACTORS.min() * lower
        lo, hi, signs, score, known, live = (v[go] for v in (lo, hi, signs, score, known, live))
        at, across = np.arange(len(live)), score.argmax(axis=1)
        middle, left = lo[at, across] / 2 + hi[at, across] / 2, rng.random(len(live)) < 0.5
        lo[at, across] = np.where(left, lo[at, across], middle)
        hi[at, across] = np.where(left, middle, hi[at, across])
        weight *= 2
    return boxes.mean(axis=0), boxes.std(axis=0) / np.sqrt(count), seconds


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--descents", type=int, default=300)
    parser.add_argument("--only", default="", help="copies whose names hold this text")
    options = parser.parse_args()
    network = rn.load(str(CASES / ACAS)).folded()
    for kind, first, second in copies(network):
        pair = pair_up(first, second)
        if options.only not in kind or pair is None:
            continue
        found = estimate(pair, LOWER[kind], options.descents)
        for factor, boxes, error, seconds in zip(FACTORS, *found, strict=True):
            print(f"{kind}, factor {factor:g}: {boxes:.2g} +- {error:.1g} boxes, {seconds:.2g} s")


if __name__ == "__main__":
    main()
