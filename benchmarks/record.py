"""One benchmark's table as results/NAME.json, and the page made of them all.

    python benchmarks/record.py        # writes RESULTS.md anew from results/

A table is kept with its date, commit, machine and command, the latest one under a title; older ones
are in the history of the repository. A run on a tree with changes is printed and not kept: nobody
could say later what was measured.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("results")
PAGE = Path(__file__).with_name("RESULTS.md")

HEAD = """# Results

The latest table of every benchmark, written by `python benchmarks/record.py` from
`benchmarks/results/`; earlier ones are in the history of those files. A commit that ends in -dirty
had changes in its tree.
"""


def record(
    title: str, header: Sequence[str], rows: Sequence[Sequence[object]], note: str = ""
) -> str:
    """Print a table; on a clean tree keep it, and write the page anew.

    Args:
        title: what was measured, for example ``regions``; it names the file.
        header: column names, with units; a peer and a target have columns of their own.
        rows: one sequence per row; floats are shown with four significant digits.
        note: how it was measured (CPU or wall seconds, best or median of how many, threads).
    """
    table = {
        "title": title,
        "date": datetime.date.today().isoformat(),
        "commit": _commit(),
        "machine": _machine(),
        "command": f"python benchmarks/{Path(_caller()).name}",
        "note": note,
        "header": list(header),
        "rows": [[_plain(value) for value in row] for row in rows],
    }
    text = shown(table)
    print(text)
    if table["commit"].endswith("-dirty"):
        print("not kept: the tree has changes that are not committed")
        return text
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{slug(title)}.json").write_text(json.dumps(table, indent=1) + "\n", "utf-8")
    write_page()
    return text


def slug(title: str) -> str:
    """The file name of a title.

    >>> slug("training: many networks at once, {1,20,1}")
    'training-many-networks-at-once-1-20-1'
    """
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def shown(table: dict[str, Any]) -> str:
    """A table in markdown."""
    lines = [table["header"], ["---"] * len(table["header"]), *table["rows"]]
    body = "\n".join("| " + " | ".join(map(_cell, row)) + " |" for row in lines)
    commit = table["commit"] and f"commit {table['commit']}"
    facts = ", ".join(filter(None, [table["date"], commit, table["machine"]]))
    command = f"`{table['command']}`. " if table["command"] not in table["note"] else ""
    return f"\n## {table['title']}\n\n{facts}. {command}{table['note']}\n\n{body}\n"


def page() -> str:
    """All tables, by title."""
    tables = [json.loads(path.read_text("utf-8")) for path in FOLDER.glob("*.json")]
    return HEAD + "".join(shown(t) for t in sorted(tables, key=lambda t: t["title"].lower()))


def write_page() -> None:
    """Write RESULTS.md."""
    PAGE.write_text(page(), "utf-8")


def _plain(value: Any) -> str | int | float | bool | None:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return value.item() if hasattr(value, "item") else str(value)


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _caller() -> str:
    import __main__

    return getattr(__main__, "__file__", "") or "interactive"


def _commit() -> str:
    """The commit; results that were written before do not count as changes."""
    here = Path(__file__).parent
    name = _git("describe", "--always", cwd=here)
    changed = _git("status", "--porcelain", "--", ":/", ":!results", ":!RESULTS.md", cwd=here)
    return (name or "unknown") + ("-dirty" if changed else "")


def _git(*arguments: str, cwd: Path) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=cwd, capture_output=True, text=True
    ).stdout.strip()


def _machine() -> str:
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            ln.split(":", 1)[1].strip()
            for ln in info.read_text().splitlines()
            if ln.startswith("model name")
        ]
        model = names[0] if names else model
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}"


if __name__ == "__main__":
    write_page()
