"""Which exhibits a folder already holds: the one place that decides what need not run again.

An exhibit's JSON document is written last and carries the key of the run that made it. The key
hashes what was asked for and the code of the package, so a document of other settings or of an
older version is not taken for a result.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import relunorm


def run_key(settings: dict[str, Any]) -> str:
    """A hash of the settings of a run and of the package's source.

    >>> run_key({"full": False}) == run_key({"full": True})
    False
    """
    text = json.dumps([settings, code_version()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@lru_cache(maxsize=1)
def code_version() -> str:
    """The version and a hash of every source file of the package."""
    home = Path(relunorm.__file__).parent
    digest = hashlib.sha256(relunorm.__version__.encode())
    for path in sorted(home.rglob("*.py")):
        digest.update(path.relative_to(home).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def finished(folder: Path, name: str, key: str) -> dict[str, Any] | None:
    """The document of an exhibit that ``folder`` holds complete under ``key``, or None."""
    try:
        document = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict) or document.get("key") != key:
        return None
    endings = ["csv", *(["png", "svg"] if document.get("has_figure") else [])]
    return document if all((folder / f"{name}.{e}").is_file() for e in endings) else None
