"""Every subject by name, and one case of it by seed and number."""

from __future__ import annotations

import traceback
import warnings
import zlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fuzzing import (
    comparing,
    exports,
    extrema,
    files,
    forging,
    forms,
    lines,
    lookups,
    naming,
    questions,
    regions,
    stability,
)
from fuzzing.outcome import Case, Outcome
from relunorm.errors import RelunormError


class Subject(NamedTuple):
    """How a case is drawn, and how the answers to it are judged."""

    draw: Callable[[np.random.Generator], Case]
    judge: Callable[[Case, Outcome], None]


SUBJECTS = {
    "stability": Subject(stability.draw, stability.judge),
    "normalize": Subject(forms.draw, forms.judge),
    "compare": Subject(comparing.draw, comparing.judge),
    "verify": Subject(forging.draw, forging.judge),
    "regions": Subject(regions.draw, regions.judge),
    "region_at": Subject(lookups.draw, lookups.judge),
    "along": Subject(lines.draw_along, lines.judge_along),
    "on_plane": Subject(lines.draw_plane, lines.judge_plane),
    "maximize": Subject(extrema.draw_maximize, extrema.judge_maximize),
    "decide": Subject(extrema.draw_decide, extrema.judge_decide),
    "lipschitz": Subject(extrema.draw_lipschitz, extrema.judge_lipschitz),
    "certify": Subject(questions.draw_certify, questions.judge_certify),
    "check": Subject(questions.draw_check, questions.judge_check),
    "sensitivity": Subject(questions.draw_sensitivity, questions.judge_sensitivity),
    "to_c": Subject(exports.draw, exports.judge),
    "fingerprint": Subject(naming.draw_fingerprint, naming.judge_fingerprint),
    "digest": Subject(naming.draw_digest, naming.judge_digest),
    "files": Subject(files.draw, files.judge),
}


def draw_case(subject: str, seed: int, number: int) -> Case:
    """The same three arguments always give the same case."""
    return SUBJECTS[subject].draw(
        np.random.default_rng([seed, zlib.crc32(subject.encode()), number])
    )


def judged(subject: str, case: Case) -> Outcome:
    """What the oracle says; a refusal in words counts as unknown, any other exception as wrong."""
    out = Outcome()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            SUBJECTS[subject].judge(case, out)
        except RelunormError:
            out.unknown += 1
        except Exception:
            out.wrong.append("crashed: " + traceback.format_exc(limit=-4))
    return out
