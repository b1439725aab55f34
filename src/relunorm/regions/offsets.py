"""Lists of lists as one flat array and offsets: list i goes from ``ptr[i]`` to ``ptr[i + 1]``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def joined_offsets(parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The offsets of several flat arrays put one behind the other.

    >>> joined_offsets([np.array([0, 3, 5]), np.array([0, 2])]).tolist()
    [0, 3, 5, 7]
    """
    if len(parts) == 1:
        return parts[0]
    ends = np.cumsum([0, *(int(part[-1]) for part in parts)])
    shifted = [part[:-1] + end for part, end in zip(parts, ends[:-1], strict=True)]
    return np.concatenate([*shifted, ends[-1:]]).astype(np.int64)
