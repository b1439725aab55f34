"""What every document has to keep, and networks to make documents of."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import pytest

import relunorm as rn

jsonschema = pytest.importorskip("jsonschema")


@cache
def schema() -> Any:
    """The schema, once it was found to be one: that takes longer than to validate a document."""
    text = json.loads((files("relunorm.report") / "schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(text)
    return jsonschema.Draft202012Validator(text)


def check(document: dict[str, Any]) -> dict[str, Any]:
    """The document, once it has kept the schema and the rule about kinds."""
    problems = [f"{list(e.path)}: {e.message[:200]}" for e in schema().iter_errors(document)]
    assert not problems
    for name, entry in document["sections"].items():
        assert not list(unlabelled(entry["body"], False, name))
    json.dumps(document, allow_nan=False)
    return document


def unlabelled(node: Any, labelled: bool, place: str) -> Iterator[str]:
    """Places of numbers that no enclosing object gives a kind; a layer's number is its name."""
    if isinstance(node, dict):
        labelled = labelled or "kind" in node
        for key, value in node.items():
            yield from unlabelled(value, labelled, f"{place}.{key}")
    elif isinstance(node, list):
        for k, value in enumerate(node):
            yield from unlabelled(value, labelled, f"{place}[{k}]")
    elif isinstance(node, int | float) and not isinstance(node, bool) and not labelled:
        yield place


def random_network(*widths: int, seed: int = 0) -> rn.Network:
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(m, n)) / n**0.5 for n, m in itertools.pairwise(widths)]
    return rn.Network.from_weights(weights, [rng.normal(size=len(w)) / 2 for w in weights])
