"""Trained networks with known exact counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import relunorm as rn
from relunorm.stability import replay, stability

COUNTS = {
    "digits_100x100_prox_l1_0.0005": [(24, 23, 53), (28, 16, 56)],
    "digits_100x100_prox_l1_0.0002": [(10, 2, 88), (19, 2, 79)],
    "digits_100x100x100_prox_l1_0.0004": [(24, 19, 57), (28, 24, 48), (33, 13, 54)],
    "digits_400x400_prox_l1_0.0002": [(46, 18, 336), (83, 93, 224)],
    "digits_100x100x100x100x100_prox_l1_0.0002": [
        (17, 1, 82),
        (14, 2, 84),
        (30, 3, 67),
        (31, 4, 65),
        (32, 2, 66),
    ],
}


@pytest.mark.long
@pytest.mark.parametrize("name", COUNTS)
def test_digits(cases: Path, name: str) -> None:
    arrays = np.load(cases / "stability" / f"{name}.npz")
    count = sum(key.startswith("W") for key in arrays)
    network = rn.Network.from_weights(*([arrays[f"{x}{k}"] for k in range(count)] for x in "Wb"))
    domain = rn.Box.cube(64, 0, 1)
    found = stability(network, domain)
    counts = [tuple(x.counts[v] for v in ("dead", "active", "unstable")) for x in found.layers]
    assert counts == COUNTS[name]
    assert found.complete
    again = replay(network, domain, found.proofs)
    for layer in found.layers:
        assert (again.upper[layer.layer][layer.verdict == "dead"] <= 0).all()
        assert (again.lower[layer.layer][layer.verdict == "active"] >= 0).all()
        z = network.preactivations(layer.witness_active[layer.verdict == "unstable"])
        assert (np.diagonal(z[layer.layer][:, layer.verdict == "unstable"]) > 0).all()


@pytest.mark.long
@pytest.mark.parametrize("name", ["1_1", "1_9", "3_3"])
def test_acas_xu_over_property_3(cases: Path, name: str) -> None:
    network = rn.load(cases / "real" / f"ACASXU_run2a_{name}_batch_2000.onnx")
    domain = rn.Box(
        [-0.303531156, -0.009549297, 0.493380324, 0.3, 0.3],
        [-0.298552812, 0.009549297, 0.5, 0.5, 0.5],
    )
    found = stability(network, domain)
    assert found.complete
    samples = network.preactivations(domain.sample(20000, 0))
    for layer, z in zip(found.layers, samples, strict=True):
        assert (z[:, layer.verdict == "dead"] <= 0).all()
        assert (z[:, layer.verdict == "active"] >= 0).all()
