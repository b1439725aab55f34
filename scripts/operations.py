"""What is read, from the tables of the readers themselves: that section of docs/formats.md.

python scripts/operations.py
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "formats.md"
HEADING = "## What is read\n"


def text() -> str:
    """The page as the readers are now."""
    from relunorm.io import sklearn, sklearn_transforms
    from relunorm.io.graph.operations import curved
    from relunorm.io.keras import functions, layers
    from relunorm.io.onnx import operations as onnx
    from relunorm.io.torch import operations as torch

    ends = curved(layers.ACTIVATIONS) | {"softmax", "log_softmax"}
    aten = {name.partition(".")[0] for name in torch.OPERATIONS if name[0] != "_"}
    models = (*sklearn.LINEAR, *sklearn.LOGISTIC)
    steps = (*sklearn_transforms.STEPS, *sklearn_transforms.SELECTIONS)
    paragraphs = (
        "These are the names that a reader knows; any other operation is refused with its place, "
        "the reason and what to do instead. Arguments that matter (a weight, an index, a "
        "condition) must not depend on the input. What can stand at the end only is kept as the "
        "model's head.",
        "**torch** (names of aten operations, into which modules and functions are traced): "
        + _listed(aten, torch.OPENERS),
        "**ONNX**: " + _listed(onnx.OPERATIONS, onnx.OPENERS),
        "**Keras layers**: " + _listed(layers.LAYERS, layers.OPENERS),
        "**Keras functions** (keras.ops, by their classes): "
        + _listed(functions.FUNCTIONS, functions.OPENERS),
        "**Keras activations**, by name: " + _listed({"linear", *layers.ACTIVATIONS}, ends),
        "**scikit-learn**: MLPRegressor and MLPClassifier with activation relu or identity, "
        "Pipeline, ColumnTransformer, FeatureUnion, TransformedTargetRegressor, searches with a "
        "best estimator. " + _listed((*models, *steps)),
    )
    before, _, after = PAGE.read_text(encoding="utf-8").partition(HEADING)
    wrapped = [
        textwrap.fill(part, 130, break_long_words=False, break_on_hyphens=False)
        for part in paragraphs
    ]
    return before + HEADING + "\n" + "\n\n".join(wrapped) + "\n" + after[after.index("\n## ") :]


def _listed(names: Iterable[str], last: Iterable[str] = ()) -> str:
    """Names in order, those that can stand at the end only apart."""
    found, ends = set(names), {name for name in last if name[0] != "_"}
    text = ", ".join(sorted(found - ends)) + "."
    return f"{text} At the end also: {', '.join(sorted(ends))}." if ends else text


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
