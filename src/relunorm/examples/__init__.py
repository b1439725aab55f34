"""Small trained networks that ship with the package: ``relunorm.load("example:moons")``.

- ``moons``: 2 inputs, 24 + 24 relu units, 1 output (the log-odds of a point belonging to the lower
  of two half moons). Trained by scripts/train_example.py on the 2000 points in data/moons.npz.
"""

from __future__ import annotations

from pathlib import Path

from relunorm.errors import InvalidInputError

_FOLDER = Path(__file__).parent


def example_path(name: str) -> Path:
    """The file of an example network."""
    return _known(_FOLDER, name)


def example_data_path(name: str) -> Path:
    """The file of the data an example network was trained on, with arrays x and y."""
    return _known(_FOLDER / "data", name)


def _known(folder: Path, name: str) -> Path:
    known = sorted(path.stem for path in folder.glob("*.npz"))
    if name not in known:
        raise InvalidInputError(f"there is no example {name!r}; known are {', '.join(known)}")
    return folder / f"{name}.npz"
