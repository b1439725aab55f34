"""The shape of a certificate's document: every key and the type of everything, nothing besides.

A key that is not known, a number written as text, true in place of 1: all of it is refused before
anything is read, so that no part of a document can mean more than `verify` looks at.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from relunorm.atomic import write_bytes
from relunorm.domain import KINDS, Domain
from relunorm.errors import InvalidInputError

Check = Callable[[Any, str], None]
Kind = TypeVar("Kind", bound="Documented")


@dataclass(frozen=True, repr=False)
class Documented:
    """A certificate as a document, in memory and on disk."""

    #: What it says it is; keys by which it is one, if a damaged one, so that `verify` says so.
    schema: ClassVar[str]
    parts: ClassVar[frozenset[str]] = frozenset()
    document: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The JSON document."""
        return self.document

    def save(self, path: str | Path) -> None:
        """Write the certificate as JSON, atomically."""
        write_bytes(path, json.dumps(self.document, allow_nan=False).encode())

    @classmethod
    def load(cls: type[Kind], path: str | Path) -> Kind:
        """Read a certificate; its claims are checked by `verify`, not here."""
        try:
            text = Path(path).read_text(encoding="utf-8")
            document = json.loads(text, object_pairs_hook=no_duplicates)
        except InvalidInputError as error:
            raise InvalidInputError(f"{path}: {error}") from None
        except (ValueError, RecursionError) as error:
            raise InvalidInputError(f"{path}: not a JSON document ({error})") from None
        keys = document.keys() if isinstance(document, dict) else frozenset()
        damaged = cls.parts and cls.parts <= keys
        if not damaged and ("schema" not in keys or document["schema"] != cls.schema):
            raise InvalidInputError(f"{path}: not a certificate of schema {cls.schema}")
        return cls(document)


def check_document(document: Any) -> None:
    """Raise `InvalidInputError` unless this is a certificate's document, and nothing more."""
    _CERTIFICATE(document, "")


def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON as a dict; raises where a key is given twice (`json.loads`)."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [key for key, _ in pairs]
        twice = next(key for key in names if names.count(key) > 1)
        raise InvalidInputError(f"the certificate gives the key {twice!r} twice")
    return found


def _refuse(path: str, found: str) -> None:
    raise InvalidInputError(f"the certificate{path and f' at {path}'}: {found}")


def number(value: Any, path: str) -> None:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse(path, f"{value!r:.40}, expected a number")
    if (isinstance(value, int) and abs(value) > 2**1000) or not math.isfinite(value):
        _refuse(path, f"{value!r:.40}, expected a finite number")


def whole(value: Any, path: str) -> None:
    """A whole number below 2^62."""
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**62:
        _refuse(path, f"{value!r:.40}, expected a whole number")


def flag(value: Any, path: str) -> None:
    """true or false."""
    if not isinstance(value, bool):
        _refuse(path, f"{value!r:.40}, expected true or false")


def text(value: Any, path: str) -> None:
    """Text."""
    if not isinstance(value, str):
        _refuse(path, f"{value!r:.40}, expected text")


def each(check: Check, count: int | None = None) -> Check:
    """A list, of so many entries."""

    def run(value: Any, path: str) -> None:
        if not isinstance(value, list):
            _refuse(path, f"{value!r:.40}, expected a list")
        if count is not None and len(value) != count:
            _refuse(path, f"{len(value)} entries, expected {count}")
        for i, entry in enumerate(value):
            check(entry, f"{path}[{i}]")

    return run


def maybe(check: Check) -> Check:
    """Something, or null."""
    return lambda value, path: None if value is None else check(value, path)


def record(**checks: Check) -> Check:
    """An object with these keys, all of them and no others."""

    def run(value: Any, path: str) -> None:
        if not isinstance(value, dict):
            _refuse(path, f"{value!r:.40}, expected an object")
        for key in value:
            if key not in checks:
                _refuse(path, f"the key {key!r:.40} is not known")
        for key, check in checks.items():
            if key not in value:
                _refuse(path, f"the key {key!r} is missing")
            check(value[key], f"{path}.{key}" if path else key)

    return run


def layers(check: Check) -> Check:
    """An object whose keys are numbers of layers."""

    def run(value: Any, path: str) -> None:
        if not isinstance(value, dict):
            _refuse(path, f"{value!r:.40}, expected an object")
        for key, entry in value.items():
            if not (isinstance(key, str) and key.isascii() and key.isdigit()):
                _refuse(path, f"the key {key!r:.40}, expected the number of a layer")
            check(entry, f"{path}.{key}")

    return run


def kind(**kinds: Check) -> Check:
    """An object whose key ``kind`` says which others it has."""

    def run(value: Any, path: str) -> None:
        kind = value.get("kind") if isinstance(value, dict) else None
        if not isinstance(kind, str) or kind not in kinds:
            _refuse(path, f"kind {kind!r:.40}, expected {', '.join(kinds)}")
        else:
            kinds[kind](value, path)

    return run


_NUMBERS = each(number)
_WHOLES = each(whole)
_ARRAY = record(dtype=text, shape=_WHOLES, data=text)
_SLOPES = {"tilt": layers(_ARRAY), "offset": layers(_ARRAY), "multipliers": maybe(_ARRAY)}
_SIDE = {"kind": text, "layer": whole, "unit": whole, "sign": whole}
_PROOF = kind(
    slopes=record(kind=text, method=text, layer=whole, units=_WHOLES, signs=_WHOLES, **_SLOPES),
    search=record(**_SIDE, limit=text, tape=_ARRAY),
    rational=record(**_SIDE, parts=whole),
)
_BY_AXES = (number, _NUMBERS, each(_NUMBERS))


def _domain(value: Any, path: str) -> None:
    """A domain with the numbers of its kind."""

    def fields(domain: type[Domain]) -> Check:
        axes = {**domain.fields, **({"box_duals": 2} if domain.only_rows else {})}
        return record(kind=text, **{name: _BY_AXES[count] for name, count in axes.items()})

    kind(**{name: fields(domain) for name, domain in KINDS.items()})(value, path)


_ERRORS = record(first=maybe(number), second=maybe(number), difference=maybe(number))
_CERTIFICATE = record(
    schema=text,
    domain=_domain,
    networks=each(record(digest=text, units=whole), 2),
    bounds=_NUMBERS,
    exceptions=each(record(network=whole, layer=whole, unit=whole, margin=number)),
    evaluation=record(float32=_ERRORS, float64=_ERRORS),
    order=each(whole, 2),
    proofs=each(
        maybe(record(schema=text, network=text, box_duals=maybe(_ARRAY), proofs=each(_PROOF))), 2
    ),
    relations=each(
        each(
            record(
                kind=each(text), block=_WHOLES, index=_WHOLES, factor=_NUMBERS, constant=_NUMBERS
            )
        ),
        2,
    ),
    difference=maybe(record(cuts=maybe(_ARRAY), multipliers=each(_ARRAY))),
    residual=maybe(
        record(
            search=maybe(
                record(
                    exponent=whole,
                    limit=number,
                    unit_steps=whole,
                    counts=maybe(_WHOLES),
                    tape=_ARRAY,
                )
            )
        )
    ),
    stepwise=flag,
    digest=text,
)
