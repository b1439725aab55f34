"""What `report` returns: one JSON document that can become one page."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from relunorm.atomic import write_bytes

SCHEMA = "relunorm.report/2"


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
        from relunorm.report.page import render

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
