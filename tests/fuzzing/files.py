"""save and load: the same network comes back from every format, bit for bit."""

from __future__ import annotations

import tempfile
from pathlib import Path

from exact_answers import difference
from exact_oracle import read

import relunorm as rn
from fuzzing.nets import Kind, Rng, network
from fuzzing.outcome import Case, Outcome, jumps, short
from fuzzing.places import place_for

#: torch.export takes a second each.
FORMATS = ("npz", "safetensors", "onnx", "pt2", "torch", "keras")
SHARES = (0.25, 0.15, 0.45, 0.05, 0.05, 0.05)


def draw(rng: Rng) -> Case:
    """One network, some with a head, and one format."""
    steps = rng.random() < 0.3
    # Sparse maps of wider layers are gathered in ONNX.
    net = network(rng, Kind(inputs=(1, 2), steps=steps, width=int(rng.choice([4, 4, 10]))))
    if rng.random() < 0.3:
        net = net.replace(head=_head(rng, net.output_size))
    where = place_for(rng, net, balls=False, scales=False)
    return Case((net,), where, {"ending": str(rng.choice(FORMATS, p=SHARES))})


def _head(rng: Rng, outputs: int) -> rn.Head:
    """Not a scaling alone, which is an affine map to every format and becomes part of the last."""
    kinds = ["softmax", "sigmoid", "tanh", "argmax", "softplus"]
    first = rn.Step(str(rng.choice(kinds if outputs > 1 else kinds[1:3])))  # type: ignore[arg-type]
    scaled = first.kind in ("sigmoid", "tanh") and rng.random() < 0.5
    return rn.Head((first, rn.Step("scale", numbers=tuple(rng.normal(size=2))))[: 1 + scaled])


def judge(case: Case, out: Outcome) -> None:
    """The same network; from Keras, which orders branches its own way, the same function."""
    (net,), where, ending = case.networks, case.place, case.options["ending"]
    assert where is not None
    back = _back(net, ending)
    if back.digest == net.digest:
        return
    out.claim(ending == "keras", f"{ending}: another network comes back, {back!r}")
    out.claim(back.head == net.head, f"{ending}: the head {net.head} comes back as {back.head}")
    gaps = difference(read(net), read(back), where.inner, strata=jumps(net, back))
    out.claim(max(gaps) == 0, f"{ending}: outputs differ by {short(max(gaps))}")
    kinds = [
        sorted(map(str, (x.activation for x in n.layers for _ in range(x.width))))
        for n in (net, back)
    ]
    out.claim(kinds[0] == kinds[1], f"{ending}: units {kinds[0]} come back as {kinds[1]}")


def _back(net: rn.Network, ending: str) -> rn.Network:
    if ending == "torch":
        return rn.load(rn.to_torch(net), example=net.input_shape)
    if ending == "keras":
        return rn.load(rn.to_keras(net))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"net.{ending}"
        rn.save(net, path, dtype="float64")
        return rn.load(path)
