"""The operations that are read, from the readers themselves, at the end of docs/formats.md.

python scripts/operations.py
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "formats.md"
HEADING = "## Operations that are read\n"


def text() -> str:
    """The page as the readers are now."""
    from relunorm.io.keras.layers import LAYERS
    from relunorm.io.onnx import operations as onnx
    from relunorm.io.torch import operations as torch

    own = (name for name in torch.OPERATIONS if name[0] != "_" and "." not in name)
    groups = (
        "Anything else is refused, in one error that names every place. What is at the end of a "
        "model is kept as its head.",
        "**torch** (names of aten operations, into which modules and functions are traced; batch "
        "norm and dropout in eval mode): " + _listed(set(own) - torch.OPENERS),
        "At the end of a torch model also: "
        + _listed(name for name in torch.OPENERS if name[0] != "_"),
        "**ONNX**: " + _listed(set(onnx.OPERATIONS) - onnx.OPENERS),
        "At the end also: " + _listed(onnx.OPENERS),
        "**Keras** (Activation with relu, leaky_relu, relu6, hard_sigmoid or linear inside a "
        "model; the curved ones at the end): " + _listed(LAYERS),
    )
    page = PAGE.read_text(encoding="utf-8")
    before, _, listed = page.partition(HEADING)
    rest = listed[listed.index("**scikit-learn**") :]
    wrapped = (
        textwrap.fill(group, 130, break_long_words=False, break_on_hyphens=False)
        for group in groups
    )
    return before + HEADING + "\n" + "\n\n".join(wrapped) + "\n\n" + rest


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(set(names))) + "."


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
