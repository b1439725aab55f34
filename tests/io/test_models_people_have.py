"""Models as people have them, through everything a first session does with one.

Every model is loaded, described, reported on, normalized, written and compared with itself, and
certified on one row. The oracle is the model's own framework.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from people_models import MODELS, REFUSED

import relunorm as rn
from relunorm.errors import RelunormError


def test_there_are_forty() -> None:
    assert len(MODELS) + len(REFUSED) >= 40


@pytest.mark.parametrize("name", MODELS)
def test_a_first_session(name: str, tmp_path: Path) -> None:
    given = MODELS[name](tmp_path)
    network = rn.load(given.model, given.example)
    inputs = given.inputs

    answers = network.predict(inputs)
    assert answers.reshape(given.answers.shape).shape == given.answers.shape
    reach = max(1.0, float(np.abs(given.answers).max()))
    np.testing.assert_allclose(
        answers.reshape(given.answers.shape), given.answers, rtol=0, atol=3e-6 * reach * given.scale
    )

    described = json.loads(json.dumps(network.to_dict(), allow_nan=False))
    assert described["head"]["label"] == given.head == network.head.label
    assert tuple(described["head"]["classes"]) == given.classes

    page = rn.report(network, inputs, time_limit=0.6)
    assert all(entry["body"] is not None or entry["why"] for entry in page.sections.values())
    assert page.sections["network"]["status"] == "done"

    box = rn.Box.around(inputs.reshape(len(inputs), -1))
    small = rn.normalize(network, "minimal", inputs, time_limit=2.0)
    assert small.network.head == network.head
    assert small.network.units <= network.units
    moved = np.abs(small.network(inputs) - network(inputs)).max()
    assert moved <= 1e-9 * max(1.0, float(np.abs(network(inputs)).max()))

    rn.save(network, tmp_path / "again.onnx", dtype="float64")
    again = rn.load(tmp_path / "again.onnx")
    assert again.head == network.head
    compared = rn.compare(network, tmp_path / "again.onnx", box, time_limit=5.0)
    assert compared.verdict in ("equal", "within")
    assert compared.of == network.head.of

    decides = bool(given.classes) or network.decides_plainly
    delta = None if decides and len(network.output_shape) == 1 else 1.0
    row = rn.certify(network, inputs[:1], radius=0.0, delta=delta, time_limit=2.0).rows[0]
    assert row.verdict == "robust"


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_network_is_told_in_one_sentence(name: str, tmp_path: Path) -> None:
    make, message = REFUSED[name]
    given = make(tmp_path)
    if isinstance(given, Path):
        given.write_bytes(b"anything")
    with pytest.raises(RelunormError, match=message) as caught:
        rn.load(given)
    first = str(caught.value).splitlines()[0]
    assert len(first) < 500
    with pytest.raises(RelunormError, match=message):
        rn.lipschitz(given, (-1, 1))
