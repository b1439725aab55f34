"""Laws of the papers' worlds that answer the same question once."""

from __future__ import annotations

import hashlib
import pickle
from functools import cache, wraps


@cache
def asked_once(law):
    """The law, which computes an answer only where it has not been asked for it before.

    One for each law, so that worlds which keep it and worlds which spoil its answers share them.
    """
    known = {}

    @wraps(law)
    def asked(*given, **options):
        key = hashlib.sha256(pickle.dumps((given, options))).digest()
        if key not in known:
            known[key] = law(*given, **options)
        return known[key]

    return asked
