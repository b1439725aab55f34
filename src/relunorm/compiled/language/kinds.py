"""The kinds of values that kernels compute with, and their LLVM types.

Numbers are int64, uint64, float64, float32 or truth values; narrower integers are widened when
they are read from an array. EIGHT are eight float64 side by side, what a row of eight holds, and
SIXTEEN are as many float32 as take the same room; MASKS are truth values of them. Arrays are
contiguous: where they begin and how long their axes are says all. Tuples are taken apart wherever
they go; a group (`relunorm.compiled.groups`) is one address.
"""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from relunorm.compiled.groups import Grouped


class KernelError(TypeError):
    """A kernel does something that compiled code cannot, or gets what it cannot take."""


@dataclass(frozen=True)
class Number:
    """A number; ``rank`` orders those that can be made into each other."""

    name: str
    llvm: str
    rank: int

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, repr=False)
class Lanes(Number):
    """So many numbers of one kind side by side."""

    entry: Number
    count: int


BOOL = Number("bool", "i1", 0)
INT = Number("int64", "i64", 1)
WORD = Number("uint64", "i64", 1)
SINGLE = Number("float32", "float", 2)
REAL = Number("float64", "double", 3)
EIGHT = Lanes("eight float64", "<8 x double>", 4, REAL, 8)
SIXTEEN = Lanes("sixteen float32", "<16 x float>", 4, SINGLE, 16)
FLOATS = SINGLE, REAL, EIGHT, SIXTEEN

#: By how many there are.
MASKS = {n: Lanes(f"{n} bool", f"<{n} x i1>", -1, BOOL, n) for n in (8, 16)}

#: By dtype of an array: what is read from it at once.
LANES = {"float64": EIGHT, "float32": SIXTEEN}

#: By dtype: the LLVM type of an entry, what it is when read, and how it is widened and narrowed.
ENTRIES: dict[str, tuple[str, Number, str, str]] = {
    "float64": ("double", REAL, "", ""),
    "float32": ("float", SINGLE, "", ""),
    "int64": ("i64", INT, "", ""),
    "uint64": ("i64", WORD, "", ""),
    "int32": ("i32", INT, "sext", "trunc"),
    "uint32": ("i32", INT, "zext", "trunc"),
    "int16": ("i16", INT, "sext", "trunc"),
    "uint16": ("i16", INT, "zext", "trunc"),
    "int8": ("i8", INT, "sext", "trunc"),
    "uint8": ("i8", INT, "zext", "trunc"),
    "bool": ("i8", BOOL, "trunc", "zext"),
}


@dataclass(frozen=True)
class Array:
    """A contiguous array."""

    dtype: str
    ndim: int

    @property
    def entry(self) -> Number:
        return ENTRIES[self.dtype][1]


@dataclass(frozen=True)
class Tuple:
    """Several values; of a named tuple, with its class."""

    kinds: tuple[Kind, ...]
    cls: type | None = None


@dataclass(frozen=True)
class Group:
    """A group at an address; ``fixed`` where what lies there never changes."""

    cls: type
    kinds: tuple[Kind, ...]
    fixed: bool = True

    @property
    def fields(self) -> tuple[str, ...]:
        return self.cls._fields  # type: ignore[attr-defined]

    def first(self, field: int) -> int:
        """The word at which a field begins."""
        return sum(1 + k.ndim if isinstance(k, Array) else 1 for k in self.kinds[:field])


Kind = Number | Array | Tuple | Group
NOTHING = Tuple(())


def flat(kind: Kind) -> list[str]:
    """The LLVM types of what a value is handed on as."""
    if isinstance(kind, Number):
        return [kind.llvm]
    if isinstance(kind, Array):
        return ["ptr", *["i64"] * kind.ndim]
    if isinstance(kind, Group):
        return ["ptr"]
    return [part for one in kind.kinds for part in flat(one)]


def join(one: Kind, other: Kind) -> Kind:
    """What both can be made into."""
    if one == other:
        return one
    if isinstance(one, Number) and isinstance(other, Number):
        low, high = sorted((one, other), key=lambda kind: kind.rank)
        if high is SINGLE and low is not BOOL:
            return REAL  # int64 does not fit float32
        if high is SIXTEEN and low not in (SINGLE, BOOL):
            raise KernelError(f"{low} does not fit {high}: spread it")
        if low.rank < high.rank:
            return high
    if isinstance(one, Tuple) and isinstance(other, Tuple) and len(one.kinds) == len(other.kinds):
        kinds = map(join, one.kinds, other.kinds)
        return Tuple(tuple(kinds), one.cls if one.cls is other.cls else None)
    raise KernelError(f"a value is {one} here and {other} there")


#: Bytes before what NumPy keeps in an array: where it begins, how many axes it has, their lengths.
HEAD = object.__basicsize__

#: Bytes before those that an object of bytes holds; a 0 follows them.
BYTES = bytes.__basicsize__ - 1

_WORD_AT = ctypes.c_int64.from_address

#: What flags of NumPy have to be set: contiguous by rows, and aligned.
CONTIGUOUS = 0x0101


@cache
def _array(dtype: np.dtype[Any], ndim: int) -> Array:
    if dtype.name not in ENTRIES or not dtype.isnative:
        raise KernelError(f"a kernel cannot take an array of {dtype}")
    return Array(dtype.name, ndim)


def number_kind(value: Any) -> Number:
    """The kind of a number."""
    if isinstance(value, np.generic) and value.dtype.name in ENTRIES:
        return ENTRIES[value.dtype.name][1]
    for cls, kind in ((bool, BOOL), (int, INT), (float, REAL)):
        if isinstance(value, cls):
            return kind
    raise KernelError(f"a kernel cannot take {type(value).__name__}")


_groups: dict[tuple[Any, ...], Group] = {}


def placed_group(values: Any) -> tuple[int, Group, bytes]:
    """Where what a group holds is written down, its kind, and what is there; kept with the group.

    Groups of equal kinds share one object. It is looked up by what fields tell at once (`told`).
    Of threads that write down one group at once the first one's words are kept, for all of them.
    """
    kept = values.__dict__
    if "placed" not in kept:
        words: list[int] = []
        told: list[Any] = [type(values)]
        for value in values:
            if isinstance(value, np.ndarray):
                words += _WORD_AT(id(value) + HEAD).value, *value.shape
                told += value.dtype, value.ndim, value.flags.num & CONTIGUOUS
            elif isinstance(value, Grouped):
                address, kind, _ = placed_group(value)
                words.append(address)
                told.append(id(kind))
            else:
                words.append(_word(value))
                told.append(type(value))
        key = tuple(told)
        kind = _groups.get(key) or _groups.setdefault(key, _new_group(values))
        held = struct.pack(f"{len(words)}q", *words)
        return kept.setdefault("placed", (id(held) + BYTES, kind, held))
    return kept["placed"]


def _word(number: Any) -> int:
    if isinstance(number, float):
        return struct.unpack("q", struct.pack("d", number))[0]
    return int(number)


def _new_group(values: Any) -> Group:
    kinds = tuple(map(kind_of, values))
    for name, kind in zip(values._fields, kinds, strict=True):
        if kind in (BOOL, WORD, SINGLE) or isinstance(kind, Tuple):
            raise KernelError(
                f"a kernel cannot take {type(values).__name__}.{name}, which is {kind}"
            )
    return Group(type(values), kinds)


def kind_of(value: Any) -> Kind:
    """The kind of a value that Python hands over."""
    if isinstance(value, np.ndarray):
        if value.flags.num & CONTIGUOUS != CONTIGUOUS:
            raise KernelError("a kernel takes contiguous arrays")
        return _array(value.dtype, value.ndim)
    if isinstance(value, Grouped):
        return placed_group(value)[1]
    if isinstance(value, tuple):
        return Tuple(tuple(map(kind_of, value)), None)
    return number_kind(value)
