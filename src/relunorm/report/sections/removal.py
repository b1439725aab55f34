"""What can be removed without changing the function, with the proof and the smaller network."""

from __future__ import annotations

import base64
import json
import re
import tempfile
from pathlib import Path
from typing import Any

from relunorm.clock import Clock
from relunorm.display.shown import counted, plain
from relunorm.errors import RelunormError
from relunorm.forms.normalize import Normalized, normalize
from relunorm.forms.removal.reduced import summarize
from relunorm.io import load, save
from relunorm.network import Network
from relunorm.report.case import Case
from relunorm.report.numbers import quantity

#: Bytes of files the document carries, at most.
MAX_FILES = 700_000
#: Removed units that are listed one by one, at most.
MAX_LISTED = 500


def compute(case: Case, seconds: float) -> dict[str, Any]:
    """`normalize` to the minimal form; the difference is a proved bound over the domain."""
    clock = Clock(seconds)
    analysis = case.stability(0.5 * seconds)
    found = normalize(case.network, "minimal", case.domain, analysis=analysis, time_limit=clock)
    files, refused = _files(found, case.name)
    undecided = len(found.undecided)
    return {
        "form": found.form,
        "before": _sizes(found.original),
        "after": _sizes(found.network),
        "after_words": repr(found.network),
        "reasons": {
            "kind": "exact",
            "counts": found.counts,
            "rows": plain(summarize(found.removed)),
        },
        "removed": {
            "kind": "exact",
            "total": len(found.removed),
            "rows": [plain(r.to_dict()) for r in found.removed[:MAX_LISTED]],
        },
        "undecided": quantity(undecided, "exact"),
        "difference": _difference(found),
        "files": files,
        "files_refused": refused,
        "command": "relunorm verify CERTIFICATE MODEL REDUCED",
        "partial": _missing(found),
    }


def _missing(found: Normalized) -> str:
    if found.stopped:
        return "the time was up before everything was proved"
    undecided = len(found.undecided)
    return f"{counted(undecided, 'unit')} stayed undecided in the time given" if undecided else ""


def _sizes(network: Network) -> dict[str, Any]:
    return {
        "kind": "exact",
        "layers": len(network.hidden),
        "units": network.units,
        "channels": network.channels,
        "parameters": network.parameters,
        "widths": [network.layers[i].width for i in network.hidden][:200],
    }


def _difference(found: Normalized) -> dict[str, Any] | None:
    if found.certificate is None:
        return None
    return quantity(found.certificate.bound, "bound", "replays without a solver", "upper")


def _files(found: Normalized, name: str) -> tuple[list[dict[str, Any]], str]:
    """The smaller network and its certificate, where they fit and replay."""
    if found.certificate is None:
        if found.stopped:
            return [], "the time was up before a certificate was made"
        return [], "there is no certificate: none exists for steps, or the bounds overflow float64"
    proof = json.dumps(found.certificate.to_dict(), allow_nan=False).encode()
    if len(proof) + 8 * found.network.parameters > MAX_FILES:
        return [], "they are too large for this page; relunorm normalize writes them to files"
    stem = safe_stem(name)
    files = [_file(f"{stem}-certificate.json", "application/json", proof, "certificate")]
    for ending in (".npz", ".onnx"):
        content = _written(found.network, ending)
        if content is not None:
            files.append(_file(f"{stem}-reduced{ending}", "application/octet-stream", content,
                               "reduced"))  # fmt: skip
    return files, ""


def _written(network: Network, ending: str) -> bytes | None:
    """The network in a format, if a file of that format holds it to the last bit."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"reduced{ending}"
        try:
            save(network, path, dtype="float64")
            same = load(path).digest == network.digest
        except RelunormError:  # the package for the format is not installed, or it cannot hold it
            return None
        return path.read_bytes() if same else None


def _file(name: str, media_type: str, content: bytes, role: str) -> dict[str, Any]:
    return {
        "name": name,
        "role": role,
        "media_type": media_type,
        "bytes": {"value": len(content), "kind": "exact"},
        "base64": base64.b64encode(content).decode(),
    }


def safe_stem(name: str) -> str:
    """A file name's stem from anything: no folders, no dots in front, letters and digits only.

    >>> safe_stem("example:moons"), safe_stem("../../etc/passwd.onnx"), safe_stem("<img>")
    ('moons', 'passwd', 'model')
    """
    last = re.split(r"[/\\:]", name)[-1]
    stem = re.sub(r"\.[A-Za-z0-9]+$", "", last)
    return stem[:60] if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", stem) else "model"
