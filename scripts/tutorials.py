"""The pages of docs/tutorials from the scripts of examples/, with what these print and draw.

    python scripts/tutorials.py [NAME ...]

A script is text in comments that begin with ``# %%`` and the code between them. A page is written
anew only from a run of its script, so that what it shows is what came out.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "tutorials"


def scripts() -> dict[str, Path]:
    """The scripts by the names of their pages, in order."""
    found = sorted((ROOT / "examples").glob("plot_*.py"))
    return {path.stem.split("_", 2)[2]: path for path in found}


def blocks(script: str) -> Iterator[tuple[str, str]]:
    """A script's pieces in order: ("text", Markdown) and ("code", Python)."""
    _, head, body = script.split('"""', 2)
    title, _, text = head.strip().partition("\n")
    yield "text", f"# {title}\n\n{_markdown(text.split(chr(10), 1)[1])}"
    for piece in body.split("# %%\n")[1:]:
        lines = piece.splitlines()
        count = next((k for k, line in enumerate(lines) if not line.startswith("#")), len(lines))
        yield "text", _markdown("\n".join(line[2:] for line in lines[:count]))
        code = "\n".join(lines[count:]).strip()
        if code:
            yield "code", code


def _markdown(text: str) -> str:
    """reStructuredText as the scripts use it: double backquotes, and blocks after two colons."""
    text = text.strip().replace("``", "`")
    head, colons, block = text.partition("::\n")
    if not colons:
        return text
    inner = "\n".join(line[4:] for line in block.strip("\n").splitlines())
    return f"{head}:\n\n```text\n{inner}\n```"


def shown(kind: str, content: str) -> str:
    """A piece as it stands on the page."""
    return content if kind == "text" else f"```python\n{content}\n```"


def page(name: str, path: Path) -> str:
    """The page of a script, which is run."""
    import matplotlib

    matplotlib.use("agg")
    parts, space, drawn = [], {"__name__": "__main__"}, 0
    for kind, content in blocks(path.read_text(encoding="utf-8")):
        parts.append(shown(kind, content))
        if kind == "text":
            continue
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(content, str(path), "exec"), space)
        if said.getvalue().strip():
            parts.append(f"```text\n{said.getvalue().strip()}\n```")
        for figure in _figures(space):
            drawn += 1
            figure.savefig(PAGES / f"{name}-{drawn}.png", dpi=90, bbox_inches="tight")
            parts.append(f"![What the code above draws]({name}-{drawn}.png)")
    link = f"../../examples/{path.name}"
    parts.append(f"The script of this page is [examples/{path.name}]({link}).")
    return "\n\n".join(parts) + "\n"


def _figures(space: dict[str, Any]) -> list[Any]:
    """Figures that were not there before: of pyplot, and those that results return."""
    import matplotlib.pyplot as plt
    from matplotlib.figure import Figure

    figures = [plt.figure(number) for number in plt.get_fignums()]
    figures += [v for v in space.values() if isinstance(v, Figure) and v not in figures]
    new = [figure for figure in figures if not hasattr(figure, "_on_page")]
    for figure in new:
        figure._on_page = True
    plt.close("all")
    return new


def main(names: list[str]) -> None:
    """Run the scripts named, or all, and write their pages."""
    PAGES.mkdir(exist_ok=True)
    for name, path in scripts().items():
        if not names or name in names:
            text = re.sub(r"[ \t]+\n", "\n", page(name, path))
            (PAGES / f"{name}.md").write_text(text, encoding="utf-8")
            print(f"docs/tutorials/{name}.md")


if __name__ == "__main__":
    main(sys.argv[1:])
