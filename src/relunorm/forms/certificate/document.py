"""The shape of a certificate's document: every key and the type of everything, nothing besides.

A key that is not known, a number written as text, true in place of 1: all of it is refused before
anything is read, so that no part of a document can mean more than `verify` looks at.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from relunorm.errors import InvalidInputError

Check = Callable[[Any, str], None]


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


def _number(value: Any, path: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse(path, f"{value!r:.40}, expected a number")
    if (isinstance(value, int) and abs(value) > 2**1000) or not math.isfinite(value):
        _refuse(path, f"{value!r:.40}, expected a finite number")


def _whole(value: Any, path: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**62:
        _refuse(path, f"{value!r:.40}, expected a whole number")


def _text(value: Any, path: str) -> None:
    if not isinstance(value, str):
        _refuse(path, f"{value!r:.40}, expected text")


def _each(check: Check, count: int | None = None) -> Check:
    def run(value: Any, path: str) -> None:
        if not isinstance(value, list):
            _refuse(path, f"{value!r:.40}, expected a list")
        if count is not None and len(value) != count:
            _refuse(path, f"{len(value)} entries, expected {count}")
        for i, entry in enumerate(value):
            check(entry, f"{path}[{i}]")

    return run


def _maybe(check: Check) -> Check:
    return lambda value, path: None if value is None else check(value, path)


def _record(**checks: Check) -> Check:
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


def _layers(check: Check) -> Check:
    """An object whose keys are numbers of layers."""

    def run(value: Any, path: str) -> None:
        if not isinstance(value, dict):
            _refuse(path, f"{value!r:.40}, expected an object")
        for key, entry in value.items():
            if not (isinstance(key, str) and key.isascii() and key.isdigit()):
                _refuse(path, f"the key {key!r:.40}, expected the number of a layer")
            check(entry, f"{path}.{key}")

    return run


def _kind(**kinds: Check) -> Check:
    """An object whose key ``kind`` says which others it has."""

    def run(value: Any, path: str) -> None:
        kind = value.get("kind") if isinstance(value, dict) else None
        if not isinstance(kind, str) or kind not in kinds:
            _refuse(path, f"kind {kind!r:.40}, expected {', '.join(kinds)}")
        else:
            kinds[kind](value, path)

    return run


_NUMBERS = _each(_number)
_WHOLES = _each(_whole)
_ARRAY = _record(dtype=_text, shape=_WHOLES, data=_text)
_SLOPES = {
    "tilt": _layers(_ARRAY),
    "offset": _layers(_ARRAY),
    "multipliers": _maybe(_ARRAY),
}
_SIDE = {"kind": _text, "layer": _whole, "unit": _whole, "sign": _whole}
_PROOF = _kind(
    slopes=_record(kind=_text, method=_text, layer=_whole, units=_WHOLES, signs=_WHOLES, **_SLOPES),
    branch=_record(**_SIDE, paths=_each(_each(_each(_whole, 3))), **_SLOPES),
    split=_record(
        kind=_text,
        layer=_whole,
        axis=_WHOLES,
        cut=_each(_text),
        children=_each(_each(_whole, 2)),
        closed=_each(_record(unit=_whole, sign=_whole, boxes=_WHOLES)),
    ),
    milp=_record(**_SIDE, margin=_text),
)
_DOMAIN = _kind(
    box=_record(kind=_text, lo=_NUMBERS, hi=_NUMBERS),
    ball=_record(kind=_text, center=_NUMBERS, radius=_number),
    polytope=_record(kind=_text, A=_each(_NUMBERS), b=_NUMBERS, box_duals=_each(_NUMBERS)),
    **{
        "norm-ball": _record(
            kind=_text, center=_NUMBERS, radius=_number, norm=_whole, lo=_NUMBERS, hi=_NUMBERS
        )
    },
)
_ERRORS = _record(first=_maybe(_number), second=_maybe(_number), difference=_maybe(_number))
_CERTIFICATE = _record(
    schema=_text,
    domain=_DOMAIN,
    networks=_each(_record(digest=_text, units=_whole), 2),
    bounds=_NUMBERS,
    exceptions=_each(_record(network=_whole, layer=_whole, unit=_whole, margin=_number)),
    evaluation=_record(float32=_ERRORS, float64=_ERRORS),
    trusted=_whole,
    order=_each(_whole, 2),
    proofs=_each(
        _maybe(
            _record(
                schema=_text,
                network=_text,
                box_duals=_maybe(_ARRAY),
                solver_trusted=_whole,
                proofs=_each(_PROOF),
            )
        ),
        2,
    ),
    relations=_each(
        _each(
            _record(
                kind=_each(_text),
                block=_WHOLES,
                index=_WHOLES,
                factor=_NUMBERS,
                constant=_NUMBERS,
            )
        ),
        2,
    ),
    digest=_text,
)
