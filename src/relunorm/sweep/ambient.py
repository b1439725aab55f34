"""Whether the caller has asked joblib for several jobs."""

from __future__ import annotations

import sys


def ambient_jobs() -> int:
    """Jobs of the ``joblib.parallel_config`` around the caller; 1 without one.

    Whoever made one has imported joblib, so nothing is imported here.
    """
    joblib = sys.modules.get("joblib")
    return 1 if joblib is None else int(joblib.effective_n_jobs(None))
