"""LLVM's assembly: values by their names, blocks of instructions, and what writes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from relunorm.compiled.language.kinds import NOTHING, Kind, Tuple, flat
from relunorm.compiled.language.sources import Source

if TYPE_CHECKING:
    from relunorm.compiled.language.program import Program


@dataclass(frozen=True)
class Value:
    """A value by the names of its parts; ``number`` where it is known now."""

    kind: Kind
    parts: tuple[str, ...]
    number: int | float | None = None

    def __iter__(self) -> Iterator[Value]:
        """The values in a tuple."""
        at = 0
        for kind in self.kind.kinds:  # type: ignore[union-attr]
            many = len(flat(kind))
            yield Value(kind, self.parts[at : at + many])
            at += many


def together(values: Sequence[Value], cls: type | None = None) -> Value:
    """A tuple of values."""
    kinds = tuple(value.kind for value in values)
    return Value(Tuple(kinds, cls), tuple(part for value in values for part in value.parts))


NONE = Value(NOTHING, ())


def result_type(kinds: list[str]) -> str:
    """The LLVM type of what a function returns."""
    if not kinds:
        return "void"
    return kinds[0] if len(kinds) == 1 else "{" + ", ".join(kinds) + "}"


@dataclass
class Block:
    """Instructions that end in a jump."""

    label: str
    lines: list[str] = field(default_factory=list)
    done: bool = False


class Writer:
    """Writes the instructions of one function.

    Attributes:
        fast: what LLVM may do to sums and products, in its words.
        block: what is written to.
        slots: variables, which lie on the stack until LLVM gives them registers.
    """

    def __init__(self, program: Program, source: Source):
        self.program, self.source = program, source
        self.fast = f" {source.fast}" if source.fast else ""
        self.count = 0
        self.slots: list[str] = []
        self.blocks: list[Block] = []
        self.block = self.begin()

    def number(self) -> int:
        """A new number, for names."""
        self.count += 1
        return self.count

    def begin(self) -> Block:
        """A new block, from now on the one that is written to."""
        self.block = Block(f"b{len(self.blocks)}")
        self.blocks.append(self.block)
        return self.block

    def later(self) -> Block:
        """A block that will be written to later."""
        return Block(f"l{self.number()}")

    def do(self, text: str) -> None:
        self.block.lines.append(text)

    def make(self, text: str) -> str:
        name = f"%v{self.number()}"
        self.block.lines.append(f"{name} = {text}")
        return name

    def value(self, kind: Kind, text: str) -> Value:
        return Value(kind, (self.make(text),))

    def jump(self, block: Block, to: Block) -> None:
        if not block.done:
            block.lines.append(f"br label %{to.label}")
            block.done = True

    def branch(self, condition: str, yes: Block, no: Block, block: Block) -> None:
        block.lines.append(f"br i1 {condition}, label %{yes.label}, label %{no.label}")
        block.done = True

    def slot(self, kind: str, size: int = 1) -> str:
        name = f"%s{self.number()}"
        many = f", i64 {size}" if size > 1 else ""
        self.slots.append(f"{name} = alloca {kind}{many}")
        return name

    def intrinsic(self, name: str, kind: str, *arguments: str) -> str:
        """Call one of LLVM's own functions on numbers of one kind."""
        short = {"double": "f64", "float": "f32", "<8 x double>": "v8f64", "<16 x float>": "v16f32"}
        full = f"@llvm.{name}.{short.get(kind, kind)}"
        self.program.declared[full] = f"declare {kind} {full}({', '.join([kind] * len(arguments))})"
        given = ", ".join(f"{kind} {one}" for one in arguments)
        return self.make(f"call{self.fast if kind in short else ''} {kind} {full}({given})")

    def select(self, condition: str, one: str, other: str, kind: str) -> str:
        return self.make(f"select i1 {condition}, {kind} {one}, {kind} {other}")
