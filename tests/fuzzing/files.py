"""save and load: the same network comes back from every format."""

from __future__ import annotations

import tempfile
from pathlib import Path

from exact_answers import difference
from exact_oracle import read
from fuzzing.nets import Kind, Rng, network
from fuzzing.outcome import Outcome, jumps, magnitudes, short
from fuzzing.places import place

import relunorm as rn


def check(rng: Rng, out: Outcome) -> None:
    """One network through one format."""
    steps = rng.random() < 0.2
    net = network(rng, Kind(inputs=(1, 2), steps=steps))
    where = place(rng, net.input_size, balls=False, scales=False)
    out.networks, out.place = [net], where
    ending = str(rng.choice(["npz", "npz", "safetensors", "onnx", "onnx", "onnx", "pt2"]))
    if ending == "pt2" and rng.random() < 0.7:
        ending = "onnx"  # torch.export takes a second each
    options = {"dtype": "float64"} if ending == "onnx" else {}
    out.asked.append(f"load(save(net, 'net.{ending}', **{options}))")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"net.{ending}"
        rn.save(net, path, **options)  # type: ignore[arg-type]
        back = rn.load(path)
    out.networks.append(back)
    if ending in ("npz", "safetensors"):
        out.claim(back.digest == net.digest, f"{ending}: another network comes back, {back!r}")
    gaps = difference(read(net), read(back), where.inner, strata=jumps(net, back))
    size = magnitudes(net, where.domain).max()
    out.claim(max(gaps) <= 1e-13 * size, f"{ending}: outputs differ by {short(max(gaps))}")
    kinds = [[x.activation for x in n.layers if x.has_units] for n in (net, back)]
    out.claim(kinds[0] == kinds[1], f"{ending}: activations {kinds[0]} come back as {kinds[1]}")
