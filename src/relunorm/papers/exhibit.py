"""What re-running a figure, table or theorem yields: a table, and perhaps a figure."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Sample:
    """The data an exhibit runs on: points (n, d), class labels or targets where there are any, and
    where it came from.
    """

    x: NDArray[np.float64]
    y: NDArray[Any] | None
    source: str

    @classmethod
    def digits(cls) -> Sample:
        """The 1,797 8 x 8 digits that scikit-learn carries, scaled to [0, 1]."""
        from sklearn.datasets import load_digits

        bunch: Any = load_digits()
        return cls(bunch.data / 16.0, bunch.target.astype(np.int64), "scikit-learn digits")

    def subset(self, count: int, random_state: int) -> NDArray[np.float64]:
        """``count`` points drawn without replacement (all of them if there are fewer)."""
        rng = np.random.default_rng(random_state)
        return self.x[rng.permutation(len(self.x))[:count]]


@dataclass(frozen=True, eq=False)
class Exhibit:
    """One reproduced exhibit.

    Attributes:
        name: for files and the command line.
        title: what it shows.
        columns, rows: the table.
        figure: a matplotlib figure, or None for a table or theorem.
        note: how it compares with the paper.
        settings: sizes and seeds used.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    note: str = ""
    figure: Any = field(default=None, repr=False)
    settings: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": "relunorm.exhibit/1",
            "name": self.name,
            "title": self.title,
            "columns": list(self.columns),
            "rows": [[_plain(v) for v in row] for row in self.rows],
            "note": self.note,
            "settings": self.settings,
        }

    def save(self, folder: str | Path) -> list[Path]:
        """Write NAME.json, NAME.csv and, if there is a figure, NAME.png; returns the paths."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{self.name}.json", folder / f"{self.name}.csv"]
        text = json.dumps(self.to_dict(), indent=2, allow_nan=False)
        paths[0].write_text(text + "\n", encoding="utf-8")
        with paths[1].open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(self.columns)
            writer.writerows(self.rows)
        if self.figure is not None:
            paths.append(folder / f"{self.name}.png")
            self.figure.savefig(paths[-1], dpi=120)
        return paths


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
