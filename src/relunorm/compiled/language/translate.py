"""Kernels as LLVM's assembly: statements of Python, one after the other, on values of known kinds.

What a kernel may use is what loops over arrays need: numbers, arrays, tuples and groups; ``for``
over ``range`` or a written tuple, ``while``, ``if``; calls of other parts and of `operations`. A
variable has one kind in a function: where a later assignment needs a wider one (0 and then 0.5),
the function is translated once more with that (`Wider`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from relunorm.compiled.language.assembly import NONE, Block, Value, result_type
from relunorm.compiled.language.expressions import Expressions
from relunorm.compiled.language.kinds import (
    INT,
    NOTHING,
    Array,
    Group,
    KernelError,
    Kind,
    flat,
    join,
)
from relunorm.compiled.language.sources import Source
from relunorm.compiled.operations import eight, operation

if TYPE_CHECKING:
    from relunorm.compiled.language.program import Instance, Program


class Wider(Exception):
    """A variable, or what a function returns, has to be of a wider kind."""


class Body(Expressions):
    """One function on its way.

    Args:
        kinds: of its arguments.
        known: of variables, and of what it returns, where a narrower kind was not enough.
    """

    def __init__(
        self, program: Program, source: Source, kinds: tuple[Kind, ...], known: dict[str, Kind]
    ):
        super().__init__(program, source)
        self.kinds, self.known = kinds, known
        self.variables, self.values = {}, {}
        self.loops: list[tuple[Block, Block]] = []
        self.returns: Kind | None = known.get("return")
        self.rets: list[tuple[Block, Value]] = []

    def function(self, instance: Instance) -> str:
        """The text of the function."""
        node = self.source.tree
        names = [argument.arg for argument in node.args.args]
        if len(names) != len(self.kinds):
            raise KernelError(f"{self.source.name} takes {len(names)} arguments")
        stored = {
            one.id
            for one in ast.walk(node)
            if isinstance(one, ast.Name) and type(one.ctx) is ast.Store
        }
        passed = []
        for name, kind in zip(names, self.kinds, strict=True):
            parts = tuple(f"%{name}.{at}" for at in range(len(flat(kind))))
            passed += [f"{one} {part}" for one, part in zip(flat(kind), parts, strict=True)]
            if name in stored:
                self.assign(name, Value(kind, parts))
            else:
                self.values[name] = Value(kind, parts)
        self.body(node.body)
        if not self.block.done:
            end = self.returns
            self.give(NONE if end is None or end == NOTHING else self.zero(end))
        instance.returns = kind = NOTHING if self.returns is None else self.returns
        for block, value in self.rets:
            self.block = block
            value = self.convert(value, kind)
            parts, kinds = value.parts, flat(kind)
            if not parts:
                self.do("ret void")
                continue
            whole = parts[0]
            if len(parts) > 1:
                whole = "poison"
                for at, part in enumerate(parts):
                    whole = self.make(
                        f"insertvalue {result_type(kinds)} {whole}, {kinds[at]} {part}, {at}"
                    )
            self.do(f"ret {result_type(kinds)} {whole}")
        lines = [
            f"define internal fastcc {result_type(flat(kind))} {instance.name}"
            f"({', '.join(passed)}) nounwind{' alwaysinline' if self.source.inline else ''} {{",
            "entry:",
            *self.slots,
            "br label %b0",
        ]
        for block in self.blocks:
            lines += [f"{block.label}:", *block.lines]
            if not block.lines or not (block.done or block.lines[-1].startswith("ret ")):
                lines.append("unreachable")
        return "\n".join([*lines, "}"])

    def give(self, value: Value) -> None:
        """Return a value."""
        kind = value.kind if self.returns is None else join(self.returns, value.kind)
        if self.returns is not None and kind != self.returns:
            raise Wider("return", kind)
        self.returns = kind
        self.rets.append((self.block, value))
        self.block.done = True

    def zero(self, kind: Kind) -> Value:
        of = {"ptr": "null", "double": "0.0", "float": "0.0"}
        return Value(kind, tuple(of.get(one, "0") for one in flat(kind)))

    def assign(self, name: str, value: Value) -> None:
        if name not in self.variables:
            kind = self.known.get(name, value.kind)
            self.variables[name] = kind, tuple(map(self.slot, flat(kind)))
        kind, slots = self.variables[name]
        both = join(kind, value.kind) if kind != value.kind else kind
        if both != kind:
            raise Wider(name, both)
        value = self.convert(value, kind)
        for one, slot, part in zip(flat(kind), slots, value.parts, strict=True):
            self.do(f"store {one} {part}, ptr {slot}")

    def body(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            if self.block.done:
                return
            translate = _STATEMENTS.get(type(statement))
            if translate is None:
                raise self.error(statement, f"kernels do not have {type(statement).__name__}")
            try:
                translate(self, statement)
            except KernelError as error:
                raise self.error(statement, str(error)) from None

    def error(self, node: ast.stmt, message: str) -> KernelError:
        if message.startswith("in "):  # of a part that is called
            return KernelError(message)
        return KernelError(f"in {self.source.name}, line {node.lineno}: {message}")

    def assignment(self, node: ast.Assign) -> None:
        value = self.expression(node.value)
        for target in node.targets:
            self.put(target, value)

    def put(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self.assign(target.id, value)
        elif isinstance(target, ast.Tuple):
            if isinstance(value.kind, Group):
                parts = [self.item(value, k) for k in range(len(value.kind.kinds))]
            else:
                parts = list(value)
            for one, part in zip(target.elts, parts, strict=True):
                self.put(one, part)
        elif isinstance(target, ast.Subscript):
            entry = self.entry(target)
            if isinstance(entry, Value):
                self.put_eight(entry, value)
            else:
                self.store(*entry, value)
        else:
            raise KernelError(f"nothing can be put into {ast.unparse(target)}")

    def entry(self, target: ast.Subscript) -> tuple[Array, str] | Value:
        """Where an entry of an array lies that is written to, or the row of eight."""
        array = self.expression(target.value)
        if not isinstance(array.kind, Array):
            raise KernelError(f"{array.kind} cannot be changed")
        place, lengths, single = self.entries(array, self.indices(target.slice))
        if single:
            return array.kind, place
        return Value(Array(array.kind.dtype, len(lengths)), (place, *lengths))

    def augmented(self, node: ast.AugAssign) -> None:
        target = node.target
        if isinstance(target, ast.Subscript):
            entry = self.entry(target)
            row = isinstance(entry, Value)
            old = operation(eight)(self, entry) if row else self.load(*entry)
            new = self.binary(type(node.op), old, self.expression(node.value))
            if row:
                self.put_eight(entry, new)
            else:
                self.store(*entry, new)
            return
        assert isinstance(target, ast.Name)
        known = self.variable(target.id)
        if known is None:
            raise KernelError(f"{target.id} is not known")
        self.assign(target.id, self.binary(type(node.op), known, self.expression(node.value)))

    def condition(self, node: ast.If) -> None:
        test, start = self.truth(self.expression(node.test)), self.block
        yes = self.begin()
        self.body(node.body)
        yes_end = self.block
        no, no_end = None, None
        if node.orelse:
            no = self.begin()
            self.body(node.orelse)
            no_end = self.block
        if yes_end.done and no_end is not None and no_end.done:
            self.branch(test, yes, no, start)  # type: ignore[arg-type]
            return
        done = self.begin()
        self.branch(test, yes, no or done, start)
        self.jump(yes_end, done)
        if no_end is not None:
            self.jump(no_end, done)

    def loop(self, node: ast.For) -> None:
        if node.orelse:
            raise KernelError("loops have no else")
        source = node.iter
        if isinstance(source, ast.Tuple):
            self.unrolled(node, [self.expression(one) for one in source.elts])
            return
        if not (isinstance(source, ast.Call) and self.known_object(source.func) is range):
            raise KernelError("loops go over range or a tuple")
        given = [self.convert(self.expression(one), INT) for one in source.args]
        first, last, step = "0", given[0].parts[0], self.constant(1)
        if len(given) > 1:
            first, last = given[0].parts[0], given[1].parts[0]
        if len(given) > 2:
            step = given[2]
        counter = self.slot("i64")
        self.do(f"store i64 {first}, ptr {counter}")
        before, head = self.block, self.begin()
        self.jump(before, head)
        at = self.make(f"load i64, ptr {counter}")
        more = self.make(f"icmp slt i64 {at}, {last}")
        if step.number is None:
            down = self.make(f"icmp slt i64 {step.parts[0]}, 0")
            more = self.select(down, self.make(f"icmp sgt i64 {at}, {last}"), more, "i1")
        elif step.number < 0:
            more = self.make(f"icmp sgt i64 {at}, {last}")
        inside = self.begin()
        latch, after = self.later(), self.later()
        latch.lines.append(f"%n{latch.label} = add nsw i64 {at}, {step.parts[0]}")
        latch.lines.append(f"store i64 %n{latch.label}, ptr {counter}")
        self.branch(more, inside, after, head)
        self.put(node.target, Value(INT, (at,)))
        self.around(node.body, latch, after)
        self.jump(latch, head)

    def around(self, statements: list[ast.stmt], again: Block, after: Block) -> None:
        """The body of a loop; what is written next comes after it."""
        self.loops.append((again, after))
        self.body(statements)
        self.loops.pop()
        self.jump(self.block, again)
        self.blocks += [again, after]
        self.block = after

    def unrolled(self, node: ast.For, values: list[Value]) -> None:
        for value in values:
            latch, after = self.later(), self.later()
            self.put(node.target, value)
            self.around(node.body, latch, after)
            self.jump(latch, after)

    def repetition(self, node: ast.While) -> None:
        if node.orelse:
            raise KernelError("loops have no else")
        before, head = self.block, self.begin()
        self.jump(before, head)
        more, end = self.truth(self.expression(node.test)), self.block
        inside = self.begin()
        latch, after = self.later(), self.later()
        self.branch(more, inside, after, end)
        self.around(node.body, latch, after)
        self.jump(latch, head)

    def leave(self, node: ast.stmt) -> None:
        self.jump(self.block, self.loops[-1][isinstance(node, ast.Break)])

    def result(self, node: ast.Return) -> None:
        self.give(NONE if node.value is None else self.expression(node.value))

    def alone(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.expression(node.value)


_STATEMENTS: dict[type, Callable[[Body, Any], None]] = {
    ast.Assign: Body.assignment,
    ast.AugAssign: Body.augmented,
    ast.If: Body.condition,
    ast.For: Body.loop,
    ast.While: Body.repetition,
    ast.Break: Body.leave,
    ast.Continue: Body.leave,
    ast.Return: Body.result,
    ast.Expr: Body.alone,
    ast.Pass: lambda body, node: None,
}
