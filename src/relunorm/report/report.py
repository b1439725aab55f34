"""`report`: look at a network from every side the package knows, within a time limit.

The page is the document and the assets in one HTML file that asks the network for nothing. No text
of the document becomes markup: it travels as JSON with ``<``, ``>``, ``&`` and the two line
separators of Unicode escaped, and the scripts insert it as text. The content security policy allows
the scripts and styles of this file, by their hashes, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

import relunorm
from relunorm.atomic import write_bytes
from relunorm.clock import Clock, Listener
from relunorm.errors import InvalidInputError
from relunorm.io.border import Model, Place, as_network
from relunorm.io.table import Table
from relunorm.network.columns import apart
from relunorm.report.case import Case, make_case
from relunorm.report.plane import PRINTED, printed
from relunorm.report.runner import run_sections
from relunorm.report.sections.advice import advise
from relunorm.report.spelling import regions_again

SCHEMA = "relunorm.report/3"

_ASSETS = sorted(file.name for file in (files("relunorm.report") / "assets").iterdir())

#: Each adds its functions to ``window.relunormReport``, in any order; main calls them, last.
SCRIPTS = (*(name for name in _ASSETS if name.endswith(".js") and name != "main.js"), "main.js")
STYLES = ("page.css",)

_ESCAPES = {
    "<": "\\u003c",
    ">": "\\u003e",
    "&": "\\u0026",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>relunorm report</title>
<link rel="icon" href="data:,">
{styles}
</head>
<body>
<div id="page"><noscript>This page draws its numbers with a script, which this browser does not
run. The same document is printed by <code>relunorm report MODEL --json</code>.</noscript></div>
<script type="application/json" id="report">{document}</script>
{scripts}
</body>
</html>
"""


@dataclass(frozen=True, repr=False)
class Report:
    """Everything that was found about one network.

    Attributes:
        document: the one JSON document; its schema ships as ``relunorm/report/schema.json``.
    """

    document: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The document, JSON-safe."""
        return self.document

    @property
    def sections(self) -> dict[str, Any]:
        """The sections by name: network, quality, robustness, sensitivity, removal, ..."""
        return self.document["sections"]

    @property
    def advice(self) -> list[str]:
        """What to do next, in words."""
        return [item["text"] for item in self.document["advice"]]

    def html(self) -> str:
        """The page: one self-contained file that asks the network for nothing."""
        return render(self.document)

    def save(self, path: str | Path) -> None:
        """Write the page, atomically."""
        write_bytes(path, self.html().encode())

    def _repr_html_(self) -> str:
        """The page itself, in a frame."""
        return (
            f'<iframe srcdoc="{escape(self.html())}" width="100%" height="720" '
            'style="border:1px solid #ccc"></iframe>'
        )

    def __repr__(self) -> str:
        done = [name for name, entry in self.sections.items() if entry["body"] is not None]
        missing = [n for n, entry in self.sections.items() if entry["status"] == "not computed"]
        tail = f"; not computed: {', '.join(missing)}" if missing else ""
        return f"Report({self.document['model']['name']}: {', '.join(done)}{tail})"


def report(
    model: Model,
    data: ArrayLike | Table | None = None,
    target: ArrayLike | str | Sequence[str] | None = None,
    domain: Place | None = None,
    *,
    slice: Any = None,
    name: str = "",
    target_name: str = "",
    classes: ArrayLike | None = None,
    feature_names: Sequence[str] | None = None,
    time_limit: float | Clock = 10.0,
    progress: Listener | None = None,
) -> Report:
    """One document (and page) about a network: how well it does, what to do, and what it is.

    Args:
        model: a `Network`, or anything `load` reads.
        data: rows of inputs: an array (n, d), n inputs of the network's own shape, a DataFrame, or
            a `relunorm.io.table.Table`, which has its target, its names and its file with it.
        target: their targets: numbers, for the advice about scale, or class labels (text); or the
            name of a column of the DataFrame, or a list of names.
        domain: where to look; by default the box around the data, else [-1, 1]^d, and it says so.
        slice: for more than two inputs, the plane to draw: two inputs by number or name, or the
            plane through three inputs given as rows. By default, for a classifier, the plane
            through a typical row of each class; else that of the data's two main directions.
        name: what to call the network; its origin by default.
        target_name: what to call the target.
        classes: the class labels in the order of the outputs; makes a target of numbers one of
            classes, too. By default those of a scikit-learn classifier, else the labels sorted.
        feature_names: what the inputs are called; by default the columns of a DataFrame, or the
            names a scikit-learn model keeps.
        time_limit: seconds in all. Sections that need more say what is missing; what one leaves
            over the later ones get. Reading the model and compiling, the first time on a machine,
            are not counted.
        progress: called before each section with its title, its number, how many there are and
            the seconds left.

    Every number says whether it is exact, a sound bound or an estimate. Ctrl-C keeps the sections
    that are finished.

    >>> import relunorm as rn
    >>> found = rn.report(rn.Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]]), time_limit=5)
    >>> found.sections["lipschitz"]["body"]["upper"]["kind"]
    'exact'
    """
    whole = Clock()
    clock = Clock(time_limit)
    if not clock.limited:
        raise InvalidInputError(
            f"time_limit is {time_limit!r}, expected a number of seconds: without one a report on "
            "all but small networks never ends"
        )
    table: Table | None = None
    rows: Any = data
    if isinstance(data, Table):
        table, rows, target_name = data, data.x, target_name or data.target
        target = data.labels if target is None else target
        feature_names = data.own_names if feature_names is None else feature_names
    elif named := _columns_named(target, data):
        target_name = target_name or ", ".join(named)
        rows, target = apart(data, named)
    network = as_network(model, rows)
    name = name or (Path(model).name if isinstance(model, str | Path) else "")
    case = make_case(
        network, rows, target, domain, name=name, target_name=target_name, classes=classes,
        model=model, plane=slice, names=feature_names, table=table,
    )  # fmt: skip
    clock.grant(whole.elapsed())  # reading a model takes what it takes
    sections, interrupted = run_sections(case, clock, progress)
    if sections["regions"]["status"] == "not computed":
        sections["regions"] |= regions_again(case)
    return Report(
        {
            "schema": SCHEMA,
            "relunorm": relunorm.__version__,
            "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "model": {"name": case.name, "digest": _digest(case, sections)},
            "inputs": list(case.names) if case.named and len(case.names) <= PRINTED else None,
            "domain": _domain(case),
            "data": _data(case),
            "time": {
                "limit": round(clock.limit, 6),
                "seconds": round(whole.elapsed(), 3),
                "interrupted": interrupted,
            },
            "sections": sections,
            "advice": advise(sections, case, clock.limit),
        }
    )


def _columns_named(target: Any, data: Any) -> list[str]:
    """The columns of a DataFrame that a target names, and does not hold: a text, or a few."""
    if isinstance(target, str):
        return [target]
    listed = isinstance(target, list | tuple) and all(isinstance(each, str) for each in target)
    held = listed and set(target) <= set(getattr(data, "columns", ()))
    return list(target) if held and len(target) != len(data) else []


def _digest(case: Case, sections: dict[str, Any]) -> str:
    """As the first section found it: of a large network it is not cheap."""
    body = sections["network"]["body"]
    return case.network.digest if body is None else body["digest"]


def _domain(case: Case) -> dict[str, Any]:
    box = case.domain.bounding_box
    return {
        "words": repr(case.domain),
        "from": case.domain_from,
        "lo": printed(box.lo),
        "hi": printed(box.hi),
    }


def _data(case: Case) -> dict[str, Any] | None:
    if case.x is None:
        return None
    return {
        "rows": case.rows,
        "used": len(case.x),
        "columns": case.network.input_size,
        "target": case.target if case.y is not None else None,
        "classes": None if case.classes is None else case.classes.to_dict(),
    }


def render(document: dict[str, Any]) -> str:
    """The page of a document."""
    scripts = [_asset(name) for name in SCRIPTS]
    styles = [_asset(name) for name in STYLES]
    policy = (
        f"default-src 'none'; script-src {_hashes(scripts)}; style-src {_hashes(styles)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return _PAGE.format(
        policy=policy,
        styles="\n".join(f"<style>{text}</style>" for text in styles),
        document=embed(document),
        scripts="\n".join(f"<script>{text}</script>" for text in scripts),
    )


def embed(document: dict[str, Any]) -> str:
    """The document as JSON that no HTML parser can read anything else into.

    >>> embed({"name": "</script><b>"})
    '{"name":"\\\\u003c/script\\\\u003e\\\\u003cb\\\\u003e"}'
    """
    text = json.dumps(document, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    for character, written in _ESCAPES.items():
        text = text.replace(character, written)
    # a lone surrogate cannot be written as UTF-8
    return "".join(c if not 0xD800 <= ord(c) < 0xE000 else f"\\u{ord(c):04x}" for c in text)


def _asset(name: str) -> str:
    return (files("relunorm.report") / "assets" / name).read_text(encoding="utf-8")


def _hashes(texts: list[str]) -> str:
    digests = (hashlib.sha256(text.encode()).digest() for text in texts)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
