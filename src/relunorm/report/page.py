"""The page: the document and the assets in one HTML file that asks the network for nothing.

No text of the document becomes markup: it travels as JSON with ``<``, ``>``, ``&`` and the two
line separators of Unicode escaped, and the scripts insert it as text. The content security policy
allows the scripts and styles of this file, by their hashes, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
from importlib.resources import files
from typing import Any

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
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    # a lone surrogate cannot be written as UTF-8
    return "".join(c if not 0xD800 <= ord(c) < 0xE000 else f"\\u{ord(c):04x}" for c in text)


def _asset(name: str) -> str:
    return (files("relunorm.report") / "assets" / name).read_text(encoding="utf-8")


def _hashes(texts: list[str]) -> str:
    digests = (hashlib.sha256(text.encode()).digest() for text in texts)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
