"""The README as the package index shows it: links into the repository become links to the web."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Readme(MetadataHookInterface):
    """Sets ``readme``; named in pyproject.toml."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Put absolute links into the place of relative ones, once [project.urls] says where."""
        urls = metadata.get("urls", {})
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        if not {"Documentation", "Source"} <= set(urls):
            metadata["readme"] = {"content-type": "text/markdown", "text": text}
            return
        pages, files = urls["Documentation"].rstrip("/"), urls["Source"].rstrip("/")
        text = re.sub(r"\]\(docs/([\w/-]+)\.md", rf"]({pages}/\1.html", text)
        text = re.sub(r"\]\(docs/([\w/-]+\.png)", rf"]({pages}/_images/\1", text)
        text = re.sub(r"\]\((?!https?:|#)([\w./-]+)", rf"]({files}/blob/main/\1", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
