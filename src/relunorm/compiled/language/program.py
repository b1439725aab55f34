"""A kernel with all of its parts as one program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from relunorm.compiled.language.assembly import result_type
from relunorm.compiled.language.kinds import HEAD, Array, KernelError, Kind, Tuple, flat
from relunorm.compiled.language.sources import Source
from relunorm.compiled.language.translate import Body, Wider


@dataclass
class Instance:
    """A function for given kinds: its name in the program, what it returns, and its text."""

    name: str
    returns: Kind | None = None
    text: str = ""


def _leaves(kinds: Iterable[Kind]) -> Iterator[Kind]:
    """Numbers, arrays and groups, also those in tuples."""
    for kind in kinds:
        yield from _leaves(kind.kinds) if isinstance(kind, Tuple) else [kind]


def _opened(array: str, ndim: int, passed: list[str]) -> list[str]:
    """Read an array of Python; appends what is passed on."""
    lines = [
        f"  {array}d = getelementptr i8, ptr {array}, i64 {HEAD}",
        f"  {array}b = load ptr, ptr {array}d",
        f"  {array}e = getelementptr i8, ptr {array}, i64 {HEAD + 16}",
        f"  {array}l = load ptr, ptr {array}e",
    ]
    passed.append(f"ptr {array}b")
    for axis in range(ndim):
        lines.append(f"  {array}p{axis} = getelementptr i64, ptr {array}l, i64 {axis}")
        lines.append(f"  {array}n{axis} = load i64, ptr {array}p{axis}")
        passed.append(f"i64 {array}n{axis}")
    return lines


@dataclass
class Program:
    """All functions that a kernel is made of."""

    checked: bool = False
    instances: dict[tuple[Source, tuple[Kind, ...]], Instance] = field(default_factory=dict)
    declared: dict[str, str] = field(default_factory=dict)
    places: list[str] = field(default_factory=list)  # what is checked, by number

    def instance(self, source: Source, kinds: tuple[Kind, ...]) -> Instance:
        """The translation of a function for the kinds of its arguments."""
        found = self.instances.get((source, kinds))
        if found is None:
            name = f'@"{source.name}.{len(self.instances)}"'
            found = self.instances[source, kinds] = Instance(name)
            known: dict[str, Kind] = {}
            while True:
                body = Body(self, source, kinds, known)
                try:
                    found.text = body.function(found)
                    break
                except Wider as wider:
                    known[wider.args[0]] = wider.args[1]
        if found.returns is None:
            raise KernelError(f"{source.name} calls itself")
        return found

    def text(
        self, source: Source, kinds: tuple[Kind, ...], entry: str, objects: bool
    ) -> tuple[str, Kind]:
        """The whole program and what it returns to Python.

        The function ``entry`` takes its arguments, and leaves what it returns, as words.

        Args:
            objects: whether the word of an array is the address of Python's object; otherwise its
                words are where it begins and the lengths of its axes.
        """
        main = self.instance(source, kinds)
        assert main.returns is not None
        lines = [f"define void @{entry}(ptr %given, ptr %out) {{"]
        passed: list[str] = []
        word = 0
        for kind in _leaves(kinds):
            as_object = objects and isinstance(kind, Array)
            for held in ["ptr"] if as_object else flat(kind):
                read = {"i1": "i64", "float": "double"}.get(held, held)
                lines.append(f"  %p{word} = getelementptr i64, ptr %given, i64 {word}")
                lines.append(f"  %a{word} = load {read}, ptr %p{word}")
                if read != held:
                    change = "trunc" if held == "i1" else "fptrunc"
                    lines.append(f"  %b{word} = {change} {read} %a{word} to {held}")
                passed.append(f"{held} %{'a' if read == held else 'b'}{word}")
                word += 1
            if as_object:
                lines += _opened(passed.pop().split()[1], kind.ndim, passed)  # type: ignore[union-attr]
        returned = flat(main.returns)
        call = f"call fastcc {result_type(returned)} {main.name}({', '.join(passed)})"
        lines.append(f"  %r = {call}" if returned else f"  {call}")
        for at, kind in enumerate(returned):
            value = "%r"
            if len(returned) > 1:
                value = f"%r{at}"
                lines.append(f"  {value} = extractvalue {result_type(returned)} %r, {at}")
            lines.append(f"  %o{at} = getelementptr i64, ptr %out, i64 {at}")
            if kind in ("i1", "float"):
                wide, change = ("i64", "zext") if kind == "i1" else ("double", "fpext")
                lines.append(f"  %w{at} = {change} {kind} {value} to {wide}")
                kind, value = wide, f"%w{at}"
            lines.append(f"  store {kind} {value}, ptr %o{at}")
        lines += ["  ret void", "}"]
        texts = [*self.declared.values(), *(one.text for one in self.instances.values())]
        # what lies at the address of a group is nothing that arrays hold
        notes = (
            '!0 = !{}\n!1 = !{!"kernels"}\n!2 = !{!"words", !1, i64 0}\n!3 = !{!2, !2, i64 0}\n'
            '!4 = !{!"entries", !1, i64 0}\n!5 = !{!4, !4, i64 0}'
        )
        return "\n".join([*texts, *lines, notes]), main.returns
