"""Exported programs in files: same function as the module, and nothing in them is ever run."""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import random
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch_models import MODELS, model

import relunorm as rn
from relunorm.errors import ModelFileError, RelunormError, UnsupportedOperationError


def exported(name: str, path: Path, dtype: torch.dtype = torch.float64) -> nn.Module:
    module, shape = model(name, dtype), MODELS[name][1]
    batch = torch.zeros(2, *shape, dtype=dtype)
    program = torch.export.export(
        module, (batch,), dynamic_shapes=({0: torch.export.Dim("batch")},), strict=False
    )
    torch.export.save(program, path)
    return module


@pytest.fixture(scope="module")
def sample(tmp_path_factory) -> dict[str, bytes]:
    """The members of a small valid archive."""
    path = tmp_path_factory.mktemp("pt2") / "sample.pt2"
    exported("mlp", path)
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


MODEL = "sample/models/model.json"
WEIGHTS = "sample/data/weights/model_weights_config.json"
CONSTANTS = "sample/data/constants/model_constants_config.json"


def edited(members: dict[str, bytes], member: str, change) -> dict[str, bytes]:
    """The members with one JSON document changed in place by a function."""
    document = json.loads(members[member])
    change(document)
    return {**members, member: json.dumps(document).encode()}


@pytest.mark.parametrize("name", [n for n in MODELS if n != "parametrized"])
@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_same_function_as_the_module(name, tmp_path):
    module, shape = exported(name, tmp_path / "model.pt2"), MODELS[name][1]
    network = rn.load(tmp_path / "model.pt2")
    batch = torch.randn(30, *shape, generator=torch.Generator().manual_seed(0)).double()
    expected = module(batch).detach().numpy().reshape(30, -1)
    assert np.abs(network(batch.numpy()) - expected).max() <= 1e-12 * np.abs(expected).max()
    assert network.origin == str(tmp_path / "model.pt2")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_other_number_types(dtype, tmp_path):
    module = exported("mlp", tmp_path / "model.pt2", dtype).double()
    batch = torch.randn(30, 7, generator=torch.Generator().manual_seed(0)).double()
    expected = module(batch).detach().numpy()
    found = rn.load(tmp_path / "model.pt2")(batch.numpy())
    assert np.abs(found - expected).max() <= 1e-12 * np.abs(expected).max()


def test_weights_computed_from_parameters(tmp_path):
    module = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2)).double()
    nn.utils.parametrizations.weight_norm(module[0])
    nn.utils.parametrizations.spectral_norm(module[2]).eval()
    module.eval()
    batch = torch.randn(30, 4, generator=torch.Generator().manual_seed(0)).double()
    torch.export.save(torch.export.export(module, (batch,)), tmp_path / "model.pt2")
    expected = module(batch).detach().numpy()
    found = rn.load(tmp_path / "model.pt2")(batch.numpy())
    assert np.abs(found - expected).max() <= 1e-12 * np.abs(expected).max()


def test_block_without_gradients(tmp_path):
    class Block(nn.Module):
        def forward(self, x):
            x = x * 3
            with torch.no_grad():
                y, z = torch.relu(x), -x
                z = z + y
            return (z + 1, x)[0] - y

    batch = torch.randn(9, 3, generator=torch.Generator().manual_seed(0))
    program = torch.export.export(Block(), (batch,))
    assert "set_grad_enabled" in str(program.graph)
    torch.export.save(program, tmp_path / "model.pt2")
    expected = Block()(batch).numpy()
    for source in (program, tmp_path / "model.pt2"):
        assert np.abs(rn.load(source)(batch.numpy()) - expected).max() <= 1e-6


def test_unsupported_operations_name_the_modules(tmp_path):
    module = nn.Sequential(nn.Linear(3, 3), nn.GELU(), nn.ReLU(), nn.SiLU())
    torch.export.save(torch.export.export(module, (torch.zeros(1, 3),)), tmp_path / "model.pt2")
    with pytest.raises(UnsupportedOperationError, match="2 operations") as caught:
        rn.load(tmp_path / "model.pt2")
    assert [place for place, _ in caught.value.operations] == ["1", "3"]


class Bomb:
    """A pickle that leaves a marker behind when it is loaded."""

    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.fixture
def bomb(tmp_path):
    """Bytes of pickles that go off, and the marker they would leave."""
    marker = tmp_path / "marker"
    content = pickle.dumps(Bomb(marker))
    pickle.loads(content)
    assert marker.exists()  # it does go off
    marker.rmdir()
    saved = io.BytesIO()
    torch.save(Bomb(marker), saved)
    yield content, saved.getvalue()
    assert not marker.exists()


def test_sample_inputs_are_never_opened(sample, bomb, tmp_path):
    for content in bomb:
        members = {**sample, "sample/data/sample_inputs/model.pt": content}
        rn.load(write(tmp_path / "model.pt2", members))


def test_pickled_weight_is_refused(sample, bomb, tmp_path):
    def change(document):
        document["config"]["0.weight"]["use_pickle"] = True

    members = {**edited(sample, WEIGHTS, change), "sample/data/weights/weight_0": bomb[1]}
    with pytest.raises(ModelFileError, match=r"model.pt2.*'0.weight'.*pickle"):
        rn.load(write(tmp_path / "model.pt2", members))


@pytest.mark.parametrize("prefix", ["opaque_obj_", "custom_obj_"])
def test_pickled_objects_are_never_opened(prefix, sample, bomb, tmp_path):
    file = f"sample/data/constants/{prefix}0"

    def unused(document):
        document["config"]["thing"] = {
            "path_name": f"{prefix}0",
            "is_param": False,
            "use_pickle": True,
            "tensor_meta": None,
        }

    members = {**edited(sample, CONSTANTS, unused), file: bomb[0]}
    rn.load(write(tmp_path / "model.pt2", members))

    def used(document):
        specs = document["graph_module"]["signature"]["input_specs"]
        specs[0] = {"tensor_constant": {"arg": {"name": "c"}, "tensor_constant_name": "thing"}}

    with pytest.raises(ModelFileError, match="pickle"):
        rn.load(write(tmp_path / "model.pt2", edited(members, MODEL, used)))


def test_older_layouts_with_pickled_weights_are_refused(sample, bomb, tmp_path):
    members = {**sample, "sample/data/weights/model.pt": bomb[1]}
    rn.load(write(tmp_path / "model.pt2", members))
    old = {"version": b"8.20", "serialized_state_dict.pt": bomb[1]}
    old["serialized_exported_program.json"] = sample[MODEL]
    with pytest.raises(ModelFileError, match=r"older torch.*trust"):
        rn.load(write(tmp_path / "model.pt2", old))


def test_symbolic_sizes_are_not_evaluated(sample, tmp_path):
    marker = tmp_path / "marker"
    code = f"__import__('os').mkdir({str(marker)!r})"

    def change(document):
        for meta in document["graph_module"]["graph"]["tensor_values"].values():
            for size in meta["sizes"]:
                if "as_expr" in size:
                    size["as_expr"]["expr_str"] = code
        document["guards_code"] = [code]

    rn.load(write(tmp_path / "model.pt2", edited(sample, MODEL, change)))
    assert not marker.exists()


def call(target: str, **arguments) -> dict:
    inputs = [{"name": name, "arg": value, "kind": 1} for name, value in arguments.items()]
    outputs = [{"as_tensor": {"name": "extra"}}]
    return {"target": target, "inputs": inputs, "outputs": outputs, "metadata": {}}


@pytest.mark.parametrize(
    "node",
    [
        call(
            "torch.ops.aten.from_file.default",
            filename={"as_string": "made-by-model"},
            shared={"as_bool": True},
            size={"as_int": 8},
        ),
        call("torch.ops.aten.rand.default", size={"as_ints": [2]}),
        call("torch.ops.aten.save.default", filename={"as_string": "made-by-model"}),
        call("os.system", command={"as_string": "touch made-by-model"}),
        call("torch.load", f={"as_string": "made-by-model"}),
    ],
)
def test_only_harmless_operations_run_on_constants(node, sample, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def change(document):
        document["graph_module"]["graph"]["nodes"].insert(0, node)

    with pytest.raises(UnsupportedOperationError):
        rn.load(write(tmp_path / "model.pt2", edited(sample, MODEL, change)))
    assert os.listdir(tmp_path) == ["model.pt2"]


def test_huge_constant_is_refused_before_it_is_made(sample, tmp_path):
    node = call(
        "torch.ops.aten.full.default", size={"as_ints": [1 << 40]}, fill_value={"as_float": 1.0}
    )

    def change(document):
        document["graph_module"]["graph"]["nodes"].insert(0, node)

    with pytest.raises(RelunormError, match="entries"):
        rn.load(write(tmp_path / "model.pt2", edited(sample, MODEL, change)))


def test_not_an_archive(tmp_path):
    for content in (b"x", b"PK\x03\x04" + bytes(40), b"\x80\x04K\x01." * 9, pickle.dumps([1])):
        path = tmp_path / "model.pt2"
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match=r"model\.pt2"):
            rn.load(path)


def test_truncated(sample, tmp_path):
    content = write(tmp_path / "whole.pt2", sample).read_bytes()
    path = tmp_path / "model.pt2"
    for length in np.linspace(1, len(content) - 1, 40).astype(int):
        path.write_bytes(content[:length])
        with pytest.raises(ModelFileError, match=r"model\.pt2"):
            rn.load(path)


def test_compressed_members_are_refused(sample, tmp_path):
    members = {**sample, "sample/data/weights/weight_0": bytes(1 << 24)}
    path = write(tmp_path / "model.pt2", members, zipfile.ZIP_DEFLATED)
    with pytest.raises(ModelFileError, match="compressed"):
        rn.load(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sizes", [{"as_int": 1 << 40}, {"as_int": 7}]),
        ("sizes", [{"as_int": -16}, {"as_int": 7}]),
        ("strides", [{"as_int": 1 << 40}, {"as_int": 1}]),
        ("strides", [{"as_int": -7}, {"as_int": 1}]),
        ("storage_offset", {"as_int": 3}),
        ("dtype", 9),
        ("layout", 2),
    ],
)
def test_tensor_that_claims_what_is_not_there(field, value, sample, tmp_path):
    def change(document):
        document["config"]["0.weight"]["tensor_meta"][field] = value

    with pytest.raises(ModelFileError, match=r"model\.pt2"):
        rn.load(write(tmp_path / "model.pt2", edited(sample, WEIGHTS, change)))


def test_huge_tensor_by_repetition_is_refused(sample, tmp_path):
    def change(document):
        meta = document["config"]["0.weight"]["tensor_meta"]
        meta["sizes"] = [{"as_int": 1 << 30}, {"as_int": 1 << 10}]
        meta["strides"] = [{"as_int": 0}, {"as_int": 0}]

    with pytest.raises(ModelFileError, match="claims shape"):
        rn.load(write(tmp_path / "model.pt2", edited(sample, WEIGHTS, change)))


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b"[" * 100_000, b"\xff\xfe", b'{"schema_version": {"major": 7}}']
)
def test_graph_that_is_not_one(content, sample, tmp_path):
    with pytest.raises(ModelFileError, match=r"model\.pt2"):
        rn.load(write(tmp_path / "model.pt2", {**sample, MODEL: content}))


def test_missing_members(sample, tmp_path):
    optional = ("sample_inputs", ".data", "byteorder", "archive_version")
    for name in sample:
        if not any(part in name for part in optional):
            members = {key: value for key, value in sample.items() if key != name}
            with pytest.raises(ModelFileError, match=r"model\.pt2"):
                rn.load(write(tmp_path / "model.pt2", members))


def mutate(value, rng: random.Random, rate: float):
    """A copy of a JSON document with some leaves exchanged, dropped or blown up."""
    if isinstance(value, dict):
        return {k: mutate(v, rng, rate) for k, v in value.items() if rng.random() > rate / 10}
    if isinstance(value, list):
        items = [mutate(v, rng, rate) for v in value if rng.random() > rate / 10]
        return items * 2 if rng.random() < rate / 10 else items
    if rng.random() > rate:
        return value
    odd = [None, -1, 0, 1, 2, 10**6, 10**30, 1.5, True, "", "linear", "x", [], {}, [1, 2], "NaN"]
    return copy.copy(rng.choice(odd))


def loads(path: Path) -> bool:
    """Whether a file loads; any error other than the package's own goes through."""
    try:
        rn.load(path)
    except RelunormError as error:
        if path.name not in str(error):
            raise
        return False
    return True


def test_mutated_graphs_give_results_or_package_errors(tmp_path):
    members = {}
    for name in ("lenet", "pieces"):
        exported(name, tmp_path / "sample.pt2")
        with zipfile.ZipFile(tmp_path / "sample.pt2") as archive:
            members[name] = {n: archive.read(n) for n in archive.namelist()}
    rng = random.Random(0)
    errors = 0
    for _ in range(250):
        case = members[rng.choice(["lenet", "pieces"])]
        part = rng.choice([MODEL, MODEL, WEIGHTS])
        document = mutate(json.loads(case[part]), rng, rng.choice([0.0005, 0.002, 0.01]))
        path = write(tmp_path / "model.pt2", {**case, part: json.dumps(document).encode()})
        errors += not loads(path)
    assert errors > 60


def test_mutated_bytes_give_results_or_package_errors(sample, tmp_path):
    content = write(tmp_path / "whole.pt2", sample).read_bytes()
    rng = random.Random(1)
    path = tmp_path / "model.pt2"
    for _ in range(200):
        damaged = bytearray(content)
        for _ in range(rng.choice([1, 4, 30])):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        path.write_bytes(damaged)
        loads(path)
