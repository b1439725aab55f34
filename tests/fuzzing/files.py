"""save and load: the same network comes back from every format."""

from __future__ import annotations

import tempfile
from pathlib import Path

from exact_answers import difference
from exact_oracle import read

import relunorm as rn
from fuzzing.nets import Kind, Rng, network
from fuzzing.outcome import Case, Outcome, jumps, magnitudes, short
from fuzzing.places import place_for


def draw(rng: Rng) -> Case:
    """One network and one format."""
    steps = rng.random() < 0.2
    net = network(rng, Kind(inputs=(1, 2), steps=steps))
    where = place_for(rng, net, balls=False, scales=False)
    ending = str(rng.choice(["npz", "npz", "safetensors", "onnx", "onnx", "onnx", "pt2"]))
    if ending == "pt2" and rng.random() < 0.7:
        ending = "onnx"  # torch.export takes a second each
    return Case((net,), where, {"ending": ending})


def judge(case: Case, out: Outcome) -> None:
    """The same function, and the same network where the format can hold it."""
    (net,), where, ending = case.networks, case.place, case.options["ending"]
    assert where is not None
    options = {"dtype": "float64"} if ending == "onnx" else {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"net.{ending}"
        rn.save(net, path, **options)  # type: ignore[arg-type]
        back = rn.load(path)
    if ending in ("npz", "safetensors"):
        out.claim(back.digest == net.digest, f"{ending}: another network comes back, {back!r}")
    gaps = difference(read(net), read(back), where.inner, strata=jumps(net, back))
    size = magnitudes(net, where.domain).max()
    out.claim(max(gaps) <= 1e-13 * size, f"{ending}: outputs differ by {short(max(gaps))}")
    kinds = [[x.activation for x in n.layers if x.has_units] for n in (net, back)]
    leaky = all(a.kind in ("relu", "leaky") for a in kinds[0])  # a step may be written as two
    out.claim(
        kinds[0] == kinds[1] or not leaky,
        f"{ending}: activations {kinds[0]} come back as {kinds[1]}",
    )
