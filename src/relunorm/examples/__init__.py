"""Small trained networks that ship with the package: ``relunorm.load("example:moons")``.

- ``moons``: 2 inputs, 24 + 24 relu units, 1 output (the log-odds of a point belonging to the lower
  of two half moons). Trained by scripts/train_example.py.
"""

from __future__ import annotations

from pathlib import Path

from relunorm.errors import InvalidInputError

_FOLDER = Path(__file__).parent


def example_path(name: str) -> Path:
    """The file of an example network."""
    known = sorted(path.stem for path in _FOLDER.glob("*.npz"))
    if name not in known:
        raise InvalidInputError(f"there is no example {name!r}; known are {', '.join(known)}")
    return _FOLDER / f"{name}.npz"
