"""What may import what: rooms in one order, imports inside functions included."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "relunorm"

FILES = sorted(SOURCE.rglob("*.py"))


def room(file: Path) -> str:
    """The folder below ``relunorm`` that a file lies in, or the file itself on the ground floor."""
    return file.relative_to(SOURCE).with_suffix("").parts[0]


@cache
def imports(file: Path) -> tuple[tuple[str, str], ...]:
    """(module below ``relunorm``, name) of every import that runs, in functions too."""
    return tuple(_imports(file))


def _imports(file: Path) -> Iterator[tuple[str, str]]:
    tree = ast.parse(file.read_text("utf-8"))
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("relunorm"):
            module = (node.module or "").removeprefix("relunorm").removeprefix(".")
            for alias in node.names:
                yield (module, alias.name) if module else (alias.name, "")
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("relunorm."):
                    yield alias.name.removeprefix("relunorm."), ""


def test_rooms_stand_in_one_order():
    below: dict[str, set[str]] = defaultdict(set)
    for file in FILES:
        for module, _ in imports(file):
            other = module.split(".")[0]
            if other != room(file) and room(file) not in ("__init__", "__main__"):
                below[room(file)].add(other)
    try:
        TopologicalSorter(below).prepare()
    except CycleError as error:
        pytest.fail(f"rooms import each other in a circle: {' -> '.join(error.args[1])}")


def test_no_private_name_crosses_a_room():
    crossing = [
        (str(file.relative_to(SOURCE)), module, name)
        for file in FILES
        for module, name in imports(file)
        if module.split(".")[0] not in (room(file), "__version__")
        and any(part.startswith("_") for part in (*module.split("."), name))
    ]
    assert not crossing


def test_nothing_imports_the_command_line():
    for file in FILES:
        if room(file) not in ("cli", "__main__"):
            assert not any(module.split(".")[0] == "cli" for module, _ in imports(file))


#: The border turns what users have into domains, and so does what takes torch tensors.
CONVERTS = ("domain", "io", "nn")

KINDS_OF_DOMAINS = {"Domain", "Box", "Ball", "NormBall", "Polytope"}


def may_ask(text: str) -> bool:
    """Whether a text needs a closer look."""
    kinds = "|".join(KINDS_OF_DOMAINS)
    asking = re.search(r"isinstance|issubclass|type\(|\bcase ", text)
    return bool(asking and re.search(rf"\b({kinds})\b", text))


def asks_for_a_kind(node: ast.AST) -> bool:
    """Whether code depends on the class of a domain: isinstance, a comparison of types, a match."""
    if isinstance(node, ast.MatchClass):
        named: ast.AST = node.cls
    elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
        named = node.args[1]
    elif isinstance(node, ast.Compare) and "type(" in ast.unparse(node.left):
        named = node
    else:
        return False
    words = {n.id for n in ast.walk(named) if isinstance(n, ast.Name)}
    words |= {n.attr for n in ast.walk(named) if isinstance(n, ast.Attribute)}
    return bool(words & KINDS_OF_DOMAINS)


def test_domains_answer_for_themselves():
    asking = [
        f"{file.relative_to(SOURCE)}:{node.lineno}"  # type: ignore[attr-defined]
        for file in FILES
        if room(file) not in CONVERTS and may_ask(text := file.read_text("utf-8"))
        for node in ast.walk(ast.parse(text))
        if asks_for_a_kind(node)
    ]
    assert not asking, "add what is asked for to relunorm.domain.base.Domain"


@pytest.mark.parametrize(
    "code",
    [
        "isinstance(x, Box)",
        "isinstance(x, Ball | Polytope)",
        "isinstance(x, (int, rn.NormBall))",
        "type(x) is Box",
        "match x:\n    case Polytope(): pass",
    ],
)
def test_every_way_to_ask_for_a_kind_is_seen(code: str):
    assert may_ask(code)
    assert any(asks_for_a_kind(node) for node in ast.walk(ast.parse(code)))
