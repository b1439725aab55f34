"""Two examples for the help of every command, read from ``examples.txt``; the tests parse each."""

from __future__ import annotations

from pathlib import Path


def _read() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for line in Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines():
        _, command, part, *_ = [*line.split(), ""]
        name = f"{command} {part}" if command == "dying" else command
        found[name] = (*found.get(name, ()), line)
    return found


#: Command -> lines to type, as they stand in its help.
EXAMPLES = _read()


def epilog(command: str) -> str:
    """The examples as the last part of a help page."""
    return "\n\n".join(["Examples:", *EXAMPLES[command]])
