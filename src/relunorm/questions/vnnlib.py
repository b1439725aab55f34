"""Property files of the verification community: VNN-LIB 1.0, and 2.0 for one network.

A file declares inputs X and outputs Y and asserts linear constraints on them, joined by and, or
and not. It describes what must *not* happen: a verifier answers ``sat`` with an assignment that
satisfies all assertions, or ``unsat``. Numbers are read as written and rounded to float64 once, at
the end. What is not supported is refused with its line.

References: vnnlib.org; the rules of the yearly VNN-COMP.
"""

from __future__ import annotations

import gzip
import math
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from pathlib import Path

from relunorm.errors import PropertyFileError

#: Conjunctions a file may stand for once its disjunctions are multiplied out.
MOST_ALTERNATIVES = 100_000

#: How deep expressions may be nested once sums of sums and the like are one sum.
DEEPEST = 150

#: The largest float64.
LARGEST = Fraction(sys.float_info.max)

#: Input or output, and its number in C order.
Variable = tuple[str, int]

_TOKEN = re.compile(r";[^\n]*|\n|\(|\)|\"[^\"]*\"|[^\s()\[\];\"]*\[[^\]\n]*\]|[^\s()\[\];\"]+|\S")
_FLAT = re.compile(r"([XY])_(0|[1-9][0-9]*)$")
_INDEXED = re.compile(r"([^\s\[\]]+)\[([^\]]*)\]$")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?$")
_VERSION = re.compile(r"<?([0-9]+)\.([0-9]+)>?$")
_FLIPPED = {"<=": ">", ">=": "<", "<": ">=", ">": "<=", "=": "!=", "==": "!=", "!=": "=="}
_TYPES = {"real", "float16", "float32", "float64", "bfloat16"}


@dataclass(frozen=True)
class Linear:
    """sum of weights times variables plus a constant; as an atom: <= 0, or < 0 if strict."""

    weights: dict[Variable, Fraction]
    constant: Fraction
    line: int
    strict: bool = False

    def plus(self, other: Linear, factor: Fraction = Fraction(1)) -> Linear:
        weights = dict(self.weights)
        for name, weight in other.weights.items():
            weights[name] = weights.get(name, Fraction(0)) + factor * weight
        weights = {name: weight for name, weight in weights.items() if weight}
        return Linear(weights, self.constant + factor * other.constant, self.line)

    def times(self, factor: Fraction) -> Linear:
        weights = {name: factor * weight for name, weight in self.weights.items() if factor}
        return Linear(weights, factor * self.constant, self.line)


@dataclass(frozen=True)
class Assertions:
    """A property file: all of ``common`` and, for some entry of ``alternatives``, all of it.

    Args:
        common: atoms that hold in every case.
        alternatives: what a case adds; one empty entry where there is no disjunction.
        line: of the last declaration of an input, for messages.
    """

    inputs: int
    outputs: int
    common: tuple[Linear, ...]
    alternatives: tuple[tuple[Linear, ...], ...]
    line: int
    name: str


@dataclass(frozen=True)
class _List:
    """A parenthesised expression."""

    items: list[_Expression]
    line: int
    depth: int = 1

    @property
    def head(self) -> str:
        first = self.items[0] if self.items else None
        return first.text if isinstance(first, _Word) else ""


@dataclass(frozen=True)
class _Word:
    text: str
    line: int


_Expression = _List | _Word


@dataclass(frozen=True)
class _Joint:
    """A conjunction of ``every`` part, or a disjunction."""

    every: bool
    parts: list[_Formula]


_Formula = Linear | _Joint


def read_vnnlib(path: str | Path) -> Assertions:
    """The assertions of a .vnnlib file (or .vnnlib.gz)."""
    path = Path(path)
    raw = path.read_bytes()
    try:
        if raw[:2] == b"\x1f\x8b":
            raw = gzip.decompress(raw)
        text = raw.decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise PropertyFileError(f"{path}: not a text file that can be read: {error}") from None
    return parse_vnnlib(text, str(path))


def parse_vnnlib(text: str, name: str = "the property") -> Assertions:
    """The assertions of the text of a property file.

    >>> found = parse_vnnlib('''
    ... (declare-const X_0 Real) (declare-const Y_0 Real)
    ... (assert (<= X_0 1)) (assert (>= X_0 -1)) (assert (or (>= Y_0 3) (<= Y_0 -3)))''')
    >>> found.inputs, found.outputs, len(found.common), len(found.alternatives)
    (1, 1, 2, 2)
    """
    return _Reader(name).read(text)


@dataclass
class _Reader:
    name: str
    flat: dict[str, Variable] = field(default_factory=dict)
    tensors: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    declared: dict[str, int] = field(default_factory=dict)  # line of every name
    networks: int = 0
    line: int = 1

    def fail(self, line: int, what: str) -> PropertyFileError:
        return PropertyFileError(f"{self.name}, line {line}: {what}")

    def read(self, text: str) -> Assertions:
        asserted: list[_Formula] = []
        for expression in self.expressions(text):
            head = expression.head
            if head == "assert":
                if len(expression.items) != 2:
                    raise self.fail(expression.line, "an assert needs exactly one expression")
                asserted.append(self.formula(expression.items[1], positive=True))
            elif head in ("declare-const", "declare-fun"):
                self.declare_flat(expression)
            elif head == "declare-network":
                self.declare_network(expression)
            elif head == "vnnlib-version":
                self.version(expression)
            elif head not in ("set-logic", "set-info", "set-option", "check-sat", "exit"):
                raise self.fail(expression.line, f"{head or 'this'!r} is not supported here")
        inputs, outputs = self.count("X"), self.count("Y")
        common, alternatives = self.split(asserted)
        return Assertions(inputs, outputs, common, alternatives, self.line, self.name)

    def count(self, kind: str) -> int:
        """How many inputs or outputs there are; all numbers below must be declared."""
        what = "input" if kind == "X" else "output"
        if self.tensors:
            return math.prod(next(s for k, s in self.tensors.values() if k == kind))
        numbers = sorted(number for k, number in self.flat.values() if k == kind)
        if not numbers:
            raise PropertyFileError(f"{self.name}: no {what} is declared, expected {kind}_0")
        missing = sorted(set(range(numbers[-1])) - set(numbers))
        if missing:
            raise self.fail(
                self.declared[f"{kind}_{numbers[-1]}"],
                f"{kind}_{numbers[-1]} is declared, but {kind}_{missing[0]} is missing",
            )
        return len(numbers)

    def expressions(self, text: str) -> Iterable[_List]:
        line, stack = 1, []
        for match in _TOKEN.finditer(text):
            token = match.group()
            if token == "\n":
                line += 1
            elif token == "(":
                stack.append(_List([], line))
            elif token == ")":
                if not stack:
                    raise self.fail(line, "a closing parenthesis without an opening one")
                done = _flattened(stack.pop())
                if done.depth > DEEPEST:
                    raise self.fail(line, f"expressions are nested more than {DEEPEST} deep")
                if stack:
                    stack[-1].items.append(done)
                else:
                    yield done
            elif not token.startswith(";"):
                if not stack:
                    raise self.fail(line, f"{token[:40]!r} stands outside of all parentheses")
                stack[-1].items.append(_Word(token, line))
        if stack:
            raise self.fail(stack[-1].line, "an opening parenthesis is never closed")

    def declare_flat(self, expression: _List) -> None:
        """X_3 or Y_0, of the first version."""
        if self.networks:
            raise self.fail(expression.line, "a network and single variables are both declared")
        words = [item.text for item in expression.items if isinstance(item, _Word)]
        match = _FLAT.match(words[1]) if len(words) == 3 else None
        if match is None or len(words[1]) > 12:
            raise self.fail(
                expression.line, "expected a declaration such as (declare-const X_0 Real)"
            )
        if words[2].lower() not in _TYPES:
            raise self.fail(expression.line, f"type {words[2]!r} is not supported; write Real")
        self.name_once(words[1], expression.line)
        self.flat[words[1]] = match.group(1), int(match.group(2))
        if match.group(1) == "X":
            self.line = expression.line

    def name_once(self, name: str, line: int) -> None:
        if name in self.declared:
            raise self.fail(line, f"{name} was declared before, in line {self.declared[name]}")
        self.declared[name] = line

    def version(self, expression: _List) -> None:
        words = [item.text for item in expression.items if isinstance(item, _Word)]
        match = _VERSION.match(words[1]) if len(words) == 2 else None
        if match is None or int(match.group(1)) not in (1, 2):
            raise self.fail(expression.line, "expected version 1.0 or 2.0: (vnnlib-version <2.0>)")

    def declare_network(self, expression: _List) -> None:
        """One network with one input and one output tensor, of the second version."""
        self.networks += 1
        if self.flat:
            raise self.fail(expression.line, "a network and single variables are both declared")
        if self.networks > 1:
            raise self.fail(expression.line, "a second network: one network is supported")
        for item in expression.items[2:]:
            if not isinstance(item, _List) or item.head not in ("declare-input", "declare-output"):
                what = item.head if isinstance(item, _List) else item.text
                raise self.fail(item.line, f"{what!r} is not supported in a network")
            kind = "X" if item.head == "declare-input" else "Y"
            words = [part.text for part in item.items if isinstance(part, _Word)]
            if any(k == kind for k, _ in self.tensors.values()):
                raise self.fail(item.line, f"a second {item.head[8:]}: one is supported")
            if len(words) < 4 or words[2].lower() not in _TYPES:
                raise self.fail(
                    item.line,
                    f"expected ({item.head} NAME TYPE [SHAPE]) with one of the types "
                    f"{', '.join(sorted(_TYPES))}",
                )
            self.name_once(words[1], item.line)
            self.tensors[words[1]] = kind, self.whole(words[3], item.line)
            if kind == "X":
                self.line = item.line
        if {kind for kind, _ in self.tensors.values()} != {"X", "Y"}:
            raise self.fail(expression.line, "the network needs an input and an output")

    def whole(self, text: str, line: int) -> tuple[int, ...]:
        """[1, 5] as numbers."""
        inside = text[1:-1].strip() if text.startswith("[") and text.endswith("]") else "?"
        try:
            return tuple(int(part) for part in inside.split(",")) if inside else ()
        except ValueError:
            raise self.fail(line, f"{text!r} is not a list of whole numbers") from None

    def formula(self, expression: _Expression, *, positive: bool) -> _Formula:
        """A boolean expression, or its negation."""
        if isinstance(expression, _Word):
            if expression.text in ("true", "false"):
                return _Joint((expression.text == "true") == positive, [])
            raise self.fail(expression.line, f"{expression.text!r} is not a condition")
        head, parts = expression.head, expression.items[1:]
        if head in ("and", "or"):
            made = [self.formula(part, positive=positive) for part in parts]
            return _Joint((head == "and") == positive, made)
        if head == "not" and len(parts) == 1:
            return self.formula(parts[0], positive=not positive)
        if head == "=>" and len(parts) == 2:
            sides = zip(parts, (not positive, positive), strict=True)
            made = [self.formula(part, positive=side) for part, side in sides]
            return _Joint(not positive, made)
        if head in _FLIPPED and len(parts) == 2:
            left, right = (self.term(part) for part in parts)
            difference = left.plus(right, Fraction(-1))
            if any(abs(n) > LARGEST for n in (difference.constant, *difference.weights.values())):
                raise self.fail(expression.line, "a number is too large for float64")
            return _compared(head if positive else _FLIPPED[head], difference, expression.line)
        if head in _FLIPPED:
            raise self.fail(expression.line, f"{head} compares two terms, found {len(parts)}")
        raise self.fail(
            expression.line,
            f"{head or 'an expression without a name'!r} is not supported; expected and, or, not, "
            "=>, <=, >=, <, >, == or !=",
        )

    def term(self, expression: _Expression) -> Linear:
        """A linear term."""
        if isinstance(expression, _Word):
            return self.word(expression)
        head, line = expression.head, expression.line
        parts = [self.term(part) for part in expression.items[1:]]
        if head not in ("+", "-", "*", "/") or not parts:
            raise self.fail(line, f"{head or 'this'!r} is not a sum, difference or product")
        total = parts[0]
        if head == "-" and len(parts) == 1:
            return total.times(Fraction(-1))
        for part in parts[1:]:
            if head in "+-":
                total = total.plus(part, Fraction(1 if head == "+" else -1))
            elif head == "/":
                if part.weights or not part.constant:
                    raise self.fail(line, "division by a variable or by 0: terms must be linear")
                total = total.times(1 / part.constant)
            elif total.weights and part.weights:
                raise self.fail(line, "a product of two variables: terms must be linear")
            else:
                scale, other = (part, total) if not part.weights else (total, part)
                total = other.times(scale.constant)
        return total

    def word(self, word: _Word) -> Linear:
        if _NUMBER.match(word.text):
            return Linear({}, Fraction(word.text), word.line)
        variable = self.flat.get(word.text)
        if variable is None:
            variable = self.entry(word)
        return Linear({variable: Fraction(1)}, Fraction(0), word.line)

    def entry(self, word: _Word) -> Variable:
        """X[0,3] as a number in C order."""
        match = _INDEXED.match(word.text)
        name = match.group(1) if match else word.text
        if name not in self.tensors:
            raise self.fail(word.line, f"{name[:40]} is not declared")
        kind, shape = self.tensors[name]
        at = self.whole(f"[{match.group(2)}]", word.line) if match else ()
        if len(at) == 1 and math.prod(shape) == max(shape, default=1):
            flat = at[0]  # a vector, however many axes of length one it has
        elif len(at) == len(shape):
            flat = 0
            for index, size in zip(at, shape, strict=True):
                flat = flat * size + index if 0 <= index < size else -1 - math.prod(shape)
        else:
            raise self.fail(word.line, f"{word.text} has {len(at)} indices, expected {len(shape)}")
        if not 0 <= flat < math.prod(shape):
            raise self.fail(word.line, f"{word.text} lies outside of the shape {list(shape)}")
        return kind, flat

    def split(
        self, asserted: list[_Formula]
    ) -> tuple[tuple[Linear, ...], tuple[tuple[Linear, ...], ...]]:
        """Atoms that always hold, and the disjunctions multiplied out."""
        common: list[Linear] = []
        choices: list[list[tuple[Linear, ...]]] = []
        waiting = asserted[::-1]
        while waiting:
            part = waiting.pop()
            if isinstance(part, Linear):
                common.append(part)
            elif part.every:
                waiting += part.parts[::-1]
            else:
                choices.append(self.cases(part))
        return tuple(common), tuple(self.joined(choices))

    def cases(self, part: _Formula) -> list[tuple[Linear, ...]]:
        """The disjunctive normal form."""
        if isinstance(part, Linear):
            return [(part,)]
        inner = [self.cases(child) for child in part.parts]
        return self.joined(inner) if part.every else [case for cases in inner for case in cases]

    def joined(self, choices: list[list[tuple[Linear, ...]]]) -> list[tuple[Linear, ...]]:
        """One case of each choice, in every way."""
        if math.prod(map(len, choices)) > MOST_ALTERNATIVES:
            raise PropertyFileError(
                f"{self.name}: the disjunctions multiply out to more than {MOST_ALTERNATIVES:,} "
                "cases"
            )
        return [tuple(atom for case in chosen for atom in case) for chosen in product(*choices)]


def _flattened(made: _List) -> _List:
    """(+ a (+ b c)) as (+ a b c), so that long chains are not deep; with its depth."""
    items: list[_Expression] = []
    for item in made.items:
        joined = isinstance(item, _List) and item.head == made.head and len(item.items) > 1
        items += item.items[1:] if joined and made.head in ("+", "and", "or") else [item]  # type: ignore[union-attr]
    depth = 1 + max((item.depth for item in items if isinstance(item, _List)), default=0)
    return _List(items, made.line, depth)


def _compared(head: str, difference: Linear, line: int) -> _Formula:
    """difference (<=, >=, ...) 0 as atoms."""

    def atom(sign: int, strict: bool) -> Linear:
        part = difference.times(Fraction(sign))
        return Linear(part.weights, part.constant, line, strict)

    if head in ("=", "=="):
        return _Joint(True, [atom(1, False), atom(-1, False)])
    if head == "!=":
        return _Joint(False, [atom(1, True), atom(-1, True)])
    return atom(1 if head.startswith("<") else -1, strict=not head.endswith("="))
