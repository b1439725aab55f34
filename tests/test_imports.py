"""What may import what: rooms in one order, imports inside functions included."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from relunorm.domain import KINDS

SOURCE = Path(__file__).resolve().parents[1] / "src" / "relunorm"

FILES = sorted(SOURCE.rglob("*.py"))


def room(file: Path) -> str:
    """The folder below ``relunorm`` that a file lies in, or the file itself on the ground floor."""
    return file.relative_to(SOURCE).with_suffix("").parts[0]


@cache
def imports(file: Path) -> tuple[tuple[str, str], ...]:
    """(module below ``relunorm``, name) of every import that runs, in functions too."""
    return tuple(_imports(file))


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """All that runs below a node; expressions, which hold no statement, are not looked into."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(node, name, ()):
            if isinstance(inner, ast.stmt):
                yield inner
            if not (isinstance(inner, ast.If) and ast.unparse(inner.test) == "TYPE_CHECKING"):
                yield from statements(inner)


def _imports(file: Path) -> Iterator[tuple[str, str]]:
    for node in statements(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("relunorm"):
            module = (node.module or "").removeprefix("relunorm").removeprefix(".")
            for alias in node.names:
                yield (module, alias.name) if module else (alias.name, "")
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("relunorm."):
                    yield alias.name.removeprefix("relunorm."), ""


def floors() -> dict[str, int]:
    """The floor of every room, as docs/design.md lists them."""
    text = (SOURCE.parents[1] / "docs" / "design.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", text, re.MULTILINE)
    found = {name: int(floor) for floor, name in rows}
    assert len(found) == len(rows) > 20
    return found


def test_rooms_stand_on_the_floors_of_the_design():
    on = floors()
    assert set(on) == {room(file) for file in FILES} - {"__init__", "__main__"}
    wrong = [
        (str(file.relative_to(SOURCE)), other)
        for file in FILES
        for other in {module.split(".")[0] for module, _ in imports(file)}
        if room(file) in on and other in on and other != room(file) and on[other] >= on[room(file)]
    ]
    assert not wrong


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

KINDS_OF_DOMAINS = {"Domain", *(kind.__name__ for kind in KINDS.values())}


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


def spelled_out(text: str) -> str:
    """Names that share their ends, one by one: ``io/{a,b}.py`` is ``io/a.py, io/b.py``."""
    several = re.compile(r"(`?[\w./]*)\{([\w./,]+)\}([\w./]*`?)")
    return several.sub(lambda m: ", ".join(m[1] + part + m[3] for part in m[2].split(",")), text)


def test_names_are_spelled_out():
    assert (
        spelled_out("a `b/{c,d/e}.py` f/test_{g,h}.")
        == "a `b/c.py`, `b/d/e.py` f/test_g., f/test_h."
    )


def listed(text: str, of: str) -> str:
    """What stands behind ``- Tests:`` and the like, up to the next entry of its list."""
    return " ".join(re.findall(rf"^- {of}: (.*?)(?=^- |^$|\Z)", text, re.MULTILINE | re.DOTALL))


def test_lists_of_tests_and_pages_are_found():
    text = "- Tests: a/test_b (c,\n  d), test_e.\n- Pages: f.\n\n- Tests: fuzzing/g.\n\nh"
    assert " ".join(listed(text, "Tests").split()) == "a/test_b (c, d), test_e. fuzzing/g."
    assert listed(text, "Pages").split() == ["f."]


ROOT = SOURCE.parents[1]
PAGES = [(ROOT / "docs" / name).read_text("utf-8") for name in ("design.md", "changes.md")]


def test_every_file_that_the_pages_name_is_there():
    text = spelled_out("\n".join(PAGES))
    files = re.findall(r"`([\w./]+\.(?:pyi?|js|json|toml|txt|yml|md))`", text)
    tests = re.findall(r"[\w/]*\b(?:test_\w+|fuzzing/\w+|planted_\w+)", text)
    sides = re.sub(r"that of [\w ]+|\([^)]*\)", "", listed(text, "Pages"))
    told = [name if name.isupper() else f"docs/{name}" for name in re.findall(r"\w+", sides)]
    assert len(files) > 150
    assert len(tests) > 70
    assert len(told) > 20
    named = [*files, *(f"{name}.md" for name in told)]
    named += [f"tests/{name.removeprefix('tests/')}.py" for name in tests]
    fixed = [name for name in named if not re.search("NAME|PAPER", name)]
    assert not [name for name in fixed if not (SOURCE / name).exists() | (ROOT / name).exists()]


def test_every_name_on_the_pages_is_in_the_code():
    text = spelled_out("\n".join(PAGES))
    tests = (ROOT / "tests").rglob("test_*.py")
    files = [*FILES, *(file for file in tests if file != Path(__file__))]
    code = "\n".join(file.read_text("utf-8") for file in files)
    known = {*re.findall(r"\w+", code), *(file.stem for file in FILES)}
    named = set(re.findall(r"`(?:task\.)?(\w+)`", text))
    assert len(named) > 100
    assert named <= known
    # and where files are named with it, in one of them
    text, files = "\n".join(PAGES), r"`([\w/{},]+\.py)`"
    told = re.findall(rf"`(\w+)`\s(?:of|in)\s{files}", text)
    told += [(name, group) for group, name in re.findall(rf"{files}\s\(`(\w+)`", text)]
    fixed = [(name, group) for name, group in told if not re.search("NAME|PAPER", group)]
    assert len(fixed) > 30
    for name, group in fixed:
        places = [(SOURCE / file, ROOT / file) for file in spelled_out(group).split(", ")]
        texts = [next(filter(Path.exists, both)).read_text("utf-8") for both in places]
        assert any(re.search(rf"\b{name}\b", part) for part in texts), (name, group)


def test_every_kind_of_change_has_tests():
    kinds = re.split(r"^## ", PAGES[1], flags=re.MULTILINE)[1:]
    assert len(kinds) > 20
    assert not [kind.partition("\n")[0] for kind in kinds if "Tests" not in kind]
