"""Every subject by name, and one case of it by seed and number."""

from __future__ import annotations

import traceback
import warnings
import zlib

import numpy as np
from fuzzing import comparing, extrema, files, forging, forms, lines, naming, regions, stability
from fuzzing.outcome import Outcome

from relunorm.errors import RelunormError

SUBJECTS = {
    "stability": stability.check,
    "normalize": forms.check,
    "compare": comparing.check,
    "verify": forging.check,
    "regions": regions.check,
    "along": lines.check_along,
    "on_plane": lines.check_plane,
    "maximize": extrema.check_maximize,
    "decide": extrema.check_decide,
    "lipschitz": extrema.check_lipschitz,
    "fingerprint": naming.check_fingerprint,
    "digest": naming.check_digest,
    "files": files.check,
}


def run_case(subject: str, seed: int, number: int) -> Outcome:
    """One case; the same three arguments always give the same one."""
    rng = np.random.default_rng([seed, zlib.crc32(subject.encode()), number])
    out = Outcome()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            SUBJECTS[subject](rng, out)
        except RelunormError as error:
            out.unknown += 1
            out.asked.append(f"refused: {error}")
        except Exception:
            out.wrong.append("crashed: " + traceback.format_exc(limit=-4))
    return out
