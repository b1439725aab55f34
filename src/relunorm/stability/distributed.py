"""Mixed-integer programmes on processes, here or on a cluster, through joblib."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from relunorm.bounds.problem import Bounds, Problem
from relunorm.clock import Clock
from relunorm.domain.reach import Reach
from relunorm.network import Network
from relunorm.stability.milp import Answer, decide_side
from relunorm.sweep.ambient import ambient_jobs
from relunorm.sweep.tasks import WorkerDiedError, spread

#: Tasks a worker gets, on average: programmes differ much in their time.
TASKS = 8

Side = tuple[int, float]


@dataclass(frozen=True, eq=False)
class Decider:
    """The programmes of one layer, ready to travel; called with some of its sides.

    Attributes:
        lower, upper: bounds of the layers up to this one.
        clock: when to stop. Clocks of other machines should agree.
    """

    network: Network
    reach: Reach
    lower: list[np.ndarray]
    upper: list[np.ndarray]
    index: int
    clock: Clock

    def __call__(self, sides: Sequence[Side]) -> list[Answer]:
        """One answer a side."""
        problem = Problem(self.network, self.reach)
        bounds = Bounds(problem)
        for lower, upper in zip(self.lower, self.upper, strict=True):
            bounds.append(lower, upper)
        known = (problem, bounds, self.index)
        return [decide_side(*known, *side, self.clock, set()) for side in sides]


def decide_far(
    problem: Problem, bounds: Bounds, index: int, sides: Sequence[Side], clock: Clock
) -> list[Answer]:
    """One decision per side on the ambient joblib backend; every side is a programme of its own,
    so the answers do not depend on who solves which. A side whose worker died stays open.
    """
    decider = Decider(
        problem.network,
        problem.reach,
        bounds.lower[: index + 1],
        bounds.upper[: index + 1],
        index,
        clock,
    )
    size = max(1, len(sides) // (TASKS * ambient_jobs()))
    chunks = [sides[start : start + size] for start in range(0, len(sides), size)]
    answers: dict[int, list[Answer]] = {}
    with closing(spread(decider, chunks)) as found:
        for chunk, answer in found:
            if not isinstance(answer, WorkerDiedError):
                answers[chunk] = answer
    empty = [[Answer()] * len(chunk) for chunk in chunks]
    return [one for k in range(len(chunks)) for one in answers.get(k, empty[k])]
