"""Expressions of Python on values of known kinds, and the entries of arrays and groups."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from relunorm.compiled.language.assembly import Value, result_type, together
from relunorm.compiled.language.kinds import (
    BOOL,
    EIGHT,
    ENTRIES,
    FLOATS,
    INT,
    LANES,
    WORD,
    Array,
    Group,
    KernelError,
    Kind,
    Lanes,
    Number,
    Tuple,
    flat,
    join,
)
from relunorm.compiled.language.scalars import COMPARED, KNOWN, Scalars
from relunorm.compiled.language.sources import Source
from relunorm.compiled.operations import operation


class Expressions(Scalars):
    """Writes expressions.

    Attributes:
        variables: by name the kind and where it lies.
        values: arguments that are never assigned to.
    """

    variables: dict[str, tuple[Kind, tuple[str, ...]]]
    values: dict[str, Value]

    def known_object(self, node: ast.expr) -> Any:
        """What a name outside the function means; `KernelError` where it is none."""
        if isinstance(node, ast.Name) and self.variable_kind(node.id) is None:
            return self.source.meaning(node.id)
        if isinstance(node, ast.Attribute):
            owner = self.known_object(node.value)
            if hasattr(owner, node.attr):
                return getattr(owner, node.attr)
        raise KernelError(f"{ast.unparse(node)} is not known")

    def variable_kind(self, name: str) -> Kind | None:
        if name in self.values:
            return self.values[name].kind
        return self.variables[name][0] if name in self.variables else None

    def is_outside(self, node: ast.expr) -> bool:
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(node, ast.Name) and self.variable_kind(node.id) is None

    def expression(self, node: ast.expr) -> Value:
        translate = _EXPRESSIONS.get(type(node))
        if translate is None:
            raise KernelError(f"kernels do not have {type(node).__name__}")
        return translate(self, node)

    def variable(self, name: str) -> Value | None:
        if name in self.values:
            return self.values[name]
        if name not in self.variables:
            return None
        kind, slots = self.variables[name]
        parts = [
            self.make(f"load {one}, ptr {s}") for one, s in zip(flat(kind), slots, strict=True)
        ]
        return Value(kind, tuple(parts))

    def name_or_number(self, node: ast.Name) -> Value:
        found = self.variable(node.id)
        return self.constant(self.known_object(node)) if found is None else found

    def attribute(self, node: ast.Attribute) -> Value:
        if self.is_outside(node):
            return self.constant(self.known_object(node))
        value, kind = self.expression(node.value), None
        kind = value.kind
        if isinstance(kind, Group):
            return self.item(value, kind.fields.index(node.attr))
        if isinstance(kind, Tuple) and kind.cls is not None:
            return self.item(value, kind.cls._fields.index(node.attr))  # type: ignore[attr-defined]
        if isinstance(kind, Array) and node.attr == "shape":
            return together([Value(INT, (length,)) for length in value.parts[1:]])
        raise KernelError(f"{kind} has no {node.attr}")

    def subscript(self, node: ast.Subscript) -> Value:
        value = self.expression(node.value)
        index = node.slice
        if not isinstance(value.kind, Array):
            number = self.expression(index).number
            if not isinstance(number, int):
                raise KernelError("a tuple is indexed by a whole number written out")
            return self.item(value, number)
        place, lengths, single = self.entries(value, self.indices(index))
        if single:
            return self.load(value.kind, place)
        return Value(Array(value.kind.dtype, len(lengths)), (place, *lengths))

    def indices(self, index: ast.expr) -> list[ast.expr]:
        return list(index.elts) if isinstance(index, ast.Tuple) else [index]

    def binary_node(self, node: ast.BinOp) -> Value:
        one, other = self.expression(node.left), self.expression(node.right)
        if one.number is not None and other.number is not None and type(node.op) in KNOWN:
            return self.constant(KNOWN[type(node.op)](one.number, other.number))
        return self.binary(type(node.op), one, other)

    def unary(self, node: ast.UnaryOp) -> Value:
        value = self.expression(node.operand)
        kind, part = value.kind, value.parts[0]
        if isinstance(node.op, ast.Not):
            return self.value(BOOL, f"xor i1 {self.truth(value)}, true")
        if isinstance(node.op, ast.USub):
            if value.number is not None and kind is not WORD:
                return self.constant(-value.number)
            if kind in FLOATS:
                return self.value(kind, f"fneg{self.fast} {kind.llvm} {part}")
            return self.value(INT, f"sub i64 0, {self.convert(value, INT).parts[0]}")
        if isinstance(node.op, ast.Invert) and kind in (INT, WORD, BOOL):
            return self.value(kind, f"xor {kind.llvm} {part}, -1")  # type: ignore[union-attr]
        raise KernelError(f"kernels do not have {type(node.op).__name__} of {kind}")

    def comparison(self, node: ast.Compare) -> Value:
        values = [self.expression(one) for one in (node.left, *node.comparators)]
        found: Value | None = None
        for compared, one, other in zip(node.ops, values, values[1:], strict=False):
            if type(compared) not in COMPARED:
                raise KernelError(f"kernels do not have {type(compared).__name__}")
            this = self.compare(type(compared), one, other)
            found = this if found is None else self.binary(ast.BitAnd, found, this)
        assert found is not None
        return found

    def several(self, node: ast.BoolOp) -> Value:
        """``and`` and ``or``, of truth values: what comes later is looked at only if it matters."""
        decided, ends = ("false" if isinstance(node.op, ast.And) else "true"), []
        for one in node.values[:-1]:
            found, block = self.truth(self.expression(one)), self.block
            ends.append((found, block, self.begin()))
        last, final = self.truth(self.expression(node.values[-1])), self.block
        done = self.begin()
        for found, block, later in ends:
            yes, no = (later, done) if decided == "false" else (done, later)
            self.branch(found, yes, no, block)
        self.jump(final, done)
        sources = ", ".join(f"[{decided}, %{block.label}]" for _, block, _ in ends)
        return self.value(BOOL, f"phi i1 {sources}, [{last}, %{final.label}]")

    def choice(self, node: ast.IfExp) -> Value:
        condition, start = self.truth(self.expression(node.test)), self.block
        yes = self.begin()
        one, one_end = self.expression(node.body), self.block
        no = self.begin()
        other, other_end = self.expression(node.orelse), self.block
        self.branch(condition, yes, no, start)
        if isinstance(one.kind, Number) and isinstance(other.kind, Number):
            kind: Kind = self.common(one, other)
        else:
            kind = join(one.kind, other.kind)
        self.block = one_end
        one = self.convert(one, kind)
        self.block = other_end
        other = self.convert(other, kind)
        done = self.begin()
        self.jump(one_end, done)
        self.jump(other_end, done)
        parts = [
            self.make(f"phi {held} [{a}, %{one_end.label}], [{b}, %{other_end.label}]")
            for held, a, b in zip(flat(kind), one.parts, other.parts, strict=True)
        ]
        return Value(kind, tuple(parts))

    def call(self, node: ast.Call) -> Value:
        if node.keywords:
            raise KernelError("arguments are given in order")
        if isinstance(node.func, ast.Attribute) and not self.is_outside(node.func):
            if node.func.attr != "reshape":
                raise KernelError(f"arrays in kernels have no {node.func.attr}")
            return self.reshaped(self.expression(node.func.value), self.expression(node.args[0]))
        called = self.known_object(node.func)
        given = [self.argument(one) for one in node.args]
        if isinstance(called, Source):
            return self.run(called, given)
        if isinstance(called, type) and hasattr(called, "_fields"):
            return together(given, called)
        return operation(called)(self, *given)

    def argument(self, node: ast.expr) -> Any:
        """A value; of what is no number, itself."""
        if isinstance(node, (ast.Name, ast.Attribute)) and self.is_outside(node):
            found = self.known_object(node)
            if isinstance(found, type):
                return found
        return self.expression(node)

    def run(self, source: Source, given: list[Value]) -> Value:
        """Call another part."""
        one = self.program.instance(source, tuple(value.kind for value in given))
        assert one.returns is not None
        kinds = flat(one.returns)
        passed = ", ".join(
            f"{kind} {part}"
            for value in given
            for kind, part in zip(flat(value.kind), value.parts, strict=True)
        )
        call = f"call fastcc {result_type(kinds)} {one.name}({passed})"
        if not kinds:
            self.do(call)
            return Value(one.returns, ())
        whole = self.make(call)
        if len(kinds) == 1:
            return Value(one.returns, (whole,))
        parts = [
            self.make(f"extractvalue {result_type(kinds)} {whole}, {k}") for k in range(len(kinds))
        ]
        return Value(one.returns, tuple(parts))

    def entries(self, value: Value, indices: list[ast.expr]) -> tuple[str, list[str], bool]:
        """Where a part of an array begins, the lengths of its axes, and whether it is one entry."""
        assert isinstance(value.kind, Array)
        begin, *lengths = value.parts
        offset, cut = None, None
        for axis, index in enumerate(indices):
            if isinstance(index, ast.Slice):
                if axis != len(indices) - 1 or index.step is not None:
                    raise KernelError("a part of an array has to be contiguous")
                at, cut = self.cut(index, lengths[axis])
            else:
                at = self.index(index, lengths[axis])
            if offset is None:
                offset = at
            else:
                row = self.make(f"mul nsw i64 {offset}, {lengths[axis]}")
                offset = self.make(f"add nsw i64 {row}, {at}")
        rest = lengths[len(indices) :]
        for length in rest:
            offset = self.make(f"mul nsw i64 {offset}, {length}")
        entry = ENTRIES[value.kind.dtype][0]
        place = self.make(f"getelementptr inbounds {entry}, ptr {begin}, i64 {offset}")
        return place, rest if cut is None else [cut, *rest], cut is None and not rest

    def index(self, node: ast.expr, length: str) -> str:
        value = self.expression(node)
        if value.kind not in (INT, WORD, BOOL):
            raise KernelError(f"an index is {value.kind}")
        if value.number is not None and value.number < 0:  # counted from the end
            return self.make(f"add nsw i64 {length}, {value.number}")
        at = self.convert(value, INT).parts[0]
        self.check(f"icmp ult i64 {at}, {length}", ast.unparse(node))
        return at

    def check(self, condition: str, place: str) -> None:
        """Where kernels are checked: end the process unless it holds, with the place."""
        if not self.program.checked:
            return
        holds = self.make(condition)
        before, fault, after = self.block, self.begin(), self.begin()
        self.branch(holds, after, fault, before)
        name = "@relunorm_outside"
        self.program.declared[name] = f"declare void {name}(i64)"
        fault.lines.append(f"call void {name}(i64 {len(self.program.places)})")
        self.program.places.append(f"{self.source.name}: {place}")
        self.jump(fault, after)

    def cut(self, part: ast.Slice, length: str) -> tuple[str, str]:
        """Beginning and length of a slice, as Python clips them; ends are not negative."""
        first, last = "0", length
        if part.upper is not None:
            end = self.convert(self.expression(part.upper), INT).parts[0]
            last = self.intrinsic("smin", "i64", end, length)
        if part.lower is not None:
            begin = self.convert(self.expression(part.lower), INT).parts[0]
            first = self.intrinsic("smin", "i64", begin, length)
        many = last if first == "0" else self.make(f"sub nsw i64 {last}, {first}")
        return first, self.intrinsic("smax", "i64", many, "0")

    def load(self, kind: Array, place: str) -> Value:
        entry, number, widen, _ = ENTRIES[kind.dtype]
        read = self.make(f"load {entry}, ptr {place}, !tbaa !5")
        if widen:
            read = self.make(f"{widen} {entry} {read} to {number.llvm}")
        return Value(number, (read,))

    def lanes_at(self, row: Value, at: Value, count: Value | None) -> tuple[Lanes, str]:
        """The kind of numbers side by side in a row, and where they begin, or so many of them."""
        if not isinstance(row.kind, Array) or row.kind.ndim != 1 or row.kind.dtype not in LANES:
            raise KernelError(f"numbers side by side are those of a row of floats, not {row.kind}")
        kind, begin = LANES[row.kind.dtype], self.convert(at, INT).parts[0]
        many = str(kind.count) if count is None else self.convert(count, INT).parts[0]
        end = self.make(f"add nsw i64 {begin}, {many}")
        self.check(f"icmp ule i64 {end}, {row.parts[1]}", f"a row of {kind.name}")
        entry = kind.entry.llvm
        return kind, self.make(f"getelementptr inbounds {entry}, ptr {row.parts[0]}, i64 {begin}")

    def put_eight(self, row: Value, value: Value) -> None:
        """Put eight numbers into a row of eight."""
        if row.kind != Array("float64", 1):
            raise KernelError(f"eight numbers are put into a row of float64, not {row.kind}")
        self.check(f"icmp eq i64 8, {row.parts[1]}", f"a row of {EIGHT.name}")
        part = self.convert(value, EIGHT).parts[0]
        self.do(f"store {EIGHT.llvm} {part}, ptr {row.parts[0]}, align 8, !tbaa !5")

    def store(self, kind: Array, place: str, value: Value) -> None:
        entry, number, _, narrow = ENTRIES[kind.dtype]
        if not isinstance(value.kind, Number):
            raise KernelError(f"an entry of an array cannot be {value.kind}")
        part = self.convert(value, number).parts[0]
        if narrow:
            part = self.make(f"{narrow} {number.llvm} {part} to {entry}")
        self.do(f"store {entry} {part}, ptr {place}, !tbaa !5")

    def item(self, value: Value, number: int) -> Value:
        """One value in a tuple or a group."""
        kind = value.kind
        if isinstance(kind, Tuple):
            return list(value)[number]
        if not isinstance(kind, Group):
            raise KernelError(f"{kind} has no items")
        one, first = kind.kinds[number], kind.first(range(len(kind.kinds))[number])
        parts = []
        note = ", !invariant.load !0" if kind.fixed else ""
        for word, held in enumerate(flat(one)):
            place = f"getelementptr inbounds i64, ptr {value.parts[0]}, i64 {first + word}"
            parts.append(self.make(f"load {held}, ptr {self.make(place)}, !tbaa !3{note}"))
        return Value(one, tuple(parts))

    def reshaped(self, value: Value, shape: Value) -> Value:
        if not isinstance(value.kind, Array) or not isinstance(shape.kind, Tuple):
            raise KernelError("arrays are reshaped by a tuple")
        return Value(Array(value.kind.dtype, len(shape.parts)), (value.parts[0], *shape.parts))


_EXPRESSIONS: dict[type, Callable[[Expressions, Any], Value]] = {
    ast.Constant: lambda body, node: body.constant(node.value),
    ast.Name: Expressions.name_or_number,
    ast.Attribute: Expressions.attribute,
    ast.Tuple: lambda body, node: together([body.expression(one) for one in node.elts]),
    ast.BinOp: Expressions.binary_node,
    ast.UnaryOp: Expressions.unary,
    ast.Compare: Expressions.comparison,
    ast.BoolOp: Expressions.several,
    ast.IfExp: Expressions.choice,
    ast.Subscript: Expressions.subscript,
    ast.Call: Expressions.call,
}
