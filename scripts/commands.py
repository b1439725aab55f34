"""docs/commands.md: every command with its help, examples and options, from the parser itself.

python scripts/commands.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[1] / "docs" / "commands.md"


def text() -> str:
    """The page as the commands are now."""
    import typer

    from relunorm.cli import app
    from relunorm.cli.output import Command

    lines = [
        "# Commands",
        "",
        "What `relunorm COMMAND --help` shows. Every command takes `--json`; exit codes: 0 done, "
        "1 the check failed, 2 bad input, 3 not finished in the time given, 130 interrupted.",
        "",
        "A `--time-limit` counts the work itself: starting Python and loading packages (about 3 s "
        "where torch or scikit-learn is needed), reading the model and compiling, the first time, "
        "come on top.",
        "",
    ]

    def describe(group: Any, before: str) -> None:
        for name, command in sorted(group.commands.items()):
            if hasattr(command, "commands"):
                describe(command, f"{before}{name} ")
                continue
            lines.extend([f"## {before}{name}", "", *_paragraphs(command.help or "")])
            examples = command.epilog.split("\n\n")[1:]
            if isinstance(command, Command):
                command.fill()
            lines.extend(["```text", *examples, "```", "", "| | |", "| --- | --- |"])
            lines.extend(_row(param) for param in command.params)
            lines.append("")

    describe(typer.main.get_command(app), "")
    return "\n".join(lines)


def _row(param: Any) -> str:
    if param.opts[0].startswith("-"):
        value = "" if param.is_flag else " VALUE"
        spelled = ", ".join(f"`{option}{value}`" for option in param.opts)
    else:
        spelled = f"`{(param.metavar or param.name).upper()}`"
    told = " ".join((getattr(param, "help", "") or "").split()).replace("|", r"\|")
    return f"| {spelled} | {told} |"


def _paragraphs(text: str) -> list[str]:
    return [" ".join(part.split()) + "\n" for part in text.split("\n\n")]


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
