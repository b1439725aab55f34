"""Regression data for seed 002: a user's file, OpenML, or what scikit-learn carries."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.errors import InvalidInputError

Tables = dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]


def load_tables(sources: Iterable[str], target: str | None = None) -> Tables:
    """Data sets by name; ``target`` is the column to predict of files that name none.

    - ``diabetes``: scikit-learn's 442 patients; ``friedman``: 1,000 generated rows of Friedman's
      first function
    - ``FILE`` or ``FILE?target=COLUMN``: a table that `relunorm.io.table` reads
    - ``openml:NAME``: by `sklearn.datasets.fetch_openml`, which needs a network
    """
    tables: Tables = {}
    sources = list(sources)
    if target is not None and not any(map(_is_file, sources)):
        raise InvalidInputError(
            f"target {target!r} names a column of a file, but {', '.join(sources)} have their own"
        )
    for source in sources:
        named = source if target is None or not _is_file(source) else f"{source}?target={target}"
        name, table = _one(named)
        if name in tables:
            raise InvalidInputError(f"two data sets are called {name!r}")
        tables[name] = table
    return tables


def _is_file(source: str) -> bool:
    """Whether it is a file whose target is not yet named."""
    named = source in ("diabetes", "friedman") or source.startswith("openml:")
    return not named and "?target=" not in source


def _one(source: str) -> tuple[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    if source == "diabetes":
        from sklearn.datasets import load_diabetes

        bunch: Any = load_diabetes()
        return source, (bunch.data, bunch.target)
    if source == "friedman":
        from sklearn.datasets import make_friedman1

        made: Any = make_friedman1(1000, 8, noise=1.0, random_state=0)
        return source, (made[0], made[1])
    if source.startswith("openml:"):
        return source[7:], _openml(source[7:])
    from relunorm.io.table import read_table

    file, _, target = source.partition("?target=")
    table = read_table(Path(file), target or None)
    if table.y is None:
        raise InvalidInputError(f"{file}: which column is the target? write {file}?target=COLUMN")
    if table.y.ndim != 1:
        raise InvalidInputError(
            f"{file}: the target has shape {table.y.shape}, expected one column"
        )
    return Path(file).stem, (table.x, table.y)


def _openml(name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    from urllib.error import URLError

    from sklearn.datasets import fetch_openml

    try:
        bunch: Any = fetch_openml(name, version=1, as_frame=False, parser="liac-arff")
    except (URLError, OSError) as error:
        raise InvalidInputError(
            f"openml:{name} could not be fetched ({error}); pass a file"
        ) from None
    x = np.asarray(bunch.data, dtype=np.float64)
    y = np.asarray(bunch.target, dtype=np.float64)
    keep = np.isfinite(x).all(axis=1) & np.isfinite(y)
    return x[keep], y[keep]
