"""A kernel with all of its parts as one program."""

from __future__ import annotations

from dataclasses import dataclass, field

from relunorm.compiled.assembly import result_type
from relunorm.compiled.kinds import KernelError, Kind, flat
from relunorm.compiled.sources import Source
from relunorm.compiled.translate import Body, Wider


@dataclass
class Instance:
    """A function for given kinds: its name in the program, what it returns, and its text."""

    name: str
    returns: Kind | None = None
    text: str = ""


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

    def text(self, source: Source, kinds: tuple[Kind, ...], entry: str) -> tuple[str, Kind]:
        """The whole program and what it returns to Python.

        The function ``entry`` takes its arguments, and leaves what it returns, as words.
        """
        main = self.instance(source, kinds)
        assert main.returns is not None
        lines = [f"define void @{entry}(ptr %given, ptr %out) {{"]
        passed = []
        for at, kind in enumerate(part for one in kinds for part in flat(one)):
            lines.append(f"  %p{at} = getelementptr i64, ptr %given, i64 {at}")
            held = {"i1": "i64", "float": "double"}.get(kind, kind)
            lines.append(f"  %a{at} = load {held}, ptr %p{at}")
            if held != kind:
                change = "trunc" if kind == "i1" else "fptrunc"
                lines.append(f"  %b{at} = {change} {held} %a{at} to {kind}")
            passed.append(f"{kind} %{'b' if held != kind else 'a'}{at}")
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
