"""Adapters, each tested where its package is installed."""

from __future__ import annotations

import os
import pickle
import re
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from relunorm.dying import DeadUnitMonitor
from relunorm.dying.adapters import Reviving, to_mlflow, to_tensorboard
from relunorm.errors import InvalidInputError, MissingDependencyError


def model() -> nn.Module:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    nn.init.constant_(net[0].weight, 0.5)  # inputs are positive: every unit but one is active
    net[0].bias.data.fill_(0.1)[1] = -1e3
    return net


def watch(log) -> None:
    net = model()
    with DeadUnitMonitor(net, log=log, log_every=2):
        for _ in range(4):
            net(torch.rand(8, 3))


class Writer:
    def __init__(self):
        self.rows = []

    def add_scalar(self, name, value, step):
        self.rows.append((name, value, step))

    def log_metric(self, key, value, step):
        self.rows.append((key, value, step))


def test_tensorboard_protocol():
    writer = Writer()
    watch(to_tensorboard(writer))
    assert ("relu/dead/1", 0.25, 4) in writer.rows


def test_tensorboard_files(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        watch(to_tensorboard(writer))
    assert any(file.stat().st_size for file in tmp_path.iterdir())


def test_mlflow_protocol_and_missing_package():
    writer = Writer()
    watch(to_mlflow(writer))
    assert {"relu/dead", "relu/dead.1"} <= {name for name, _, _ in writer.rows}
    if find_spec("mlflow") is None:
        with pytest.raises(MissingDependencyError, match="pip install mlflow"):
            to_mlflow()


@pytest.mark.filterwarnings("ignore")  # of mlflow's own dependencies
def test_mlflow_files(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # newer versions ask for it
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4))
    net.append(net[1])  # its second call has the name 1#1, and MLflow allows no #
    try:
        with mlflow.start_run() as run, DeadUnitMonitor(net, log=to_mlflow(), log_every=2):
            for _ in range(4):
                net(torch.rand(8, 3))
        client = mlflow.MlflowClient()
        kept = client.get_run(run.info.run_id).data.metrics
        history = client.get_metric_history(run.info.run_id, "relu/dead")
    finally:
        mlflow.set_tracking_uri(before)
    assert set(kept) == {f"relu/{name}" for name in
                         ("dead", "dormant", "linear", "dead.1", "dead.1_1")}  # fmt: skip
    assert [metric.step for metric in history] == [2, 4]


@pytest.mark.parametrize(
    ("package", "module"),
    [("lightning", "lightning"), ("transformers", "huggingface"), ("skorch", "skorch")],
)
def test_missing_framework_says_what_to_install(package, module):
    if find_spec(package) or (package == "lightning" and find_spec("pytorch_lightning")):
        pytest.skip(f"{package} is installed")
    from importlib import import_module

    adapter = import_module(f"relunorm.dying.adapters.{module}")
    for name in ("DeadUnits", *(["Revive"] if module != "keras" else [])):
        with pytest.raises(MissingDependencyError, match="pip install"):
            getattr(adapter, name)


def test_revival_takes_its_batch_from_the_first_training_pass():
    """The protocol the callbacks share, without a framework."""
    net, x = model(), torch.rand(32, 3)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    revive = Reviving()
    revive.options = {"rule": "live", "every": 3}
    revive.start(net)
    net.eval()(torch.rand(1, 3))  # a sanity check before training is no training pass
    net.train()
    for _ in range(6):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
        revive.after_update(optimizer)
    assert revive.reviver is not None
    assert torch.equal(revive.reviver.batch[0], x)
    assert [(at, found.count) for at, found in revive.reviver.history] == [(3, 1), (6, 0)]
    assert pickle.loads(pickle.dumps(revive)).reviver is None
    revive.stop()
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())


def test_skorch():
    pytest.importorskip("skorch", reason="skorch is not installed")
    from skorch import NeuralNetRegressor

    from relunorm.dying.adapters.skorch import DeadUnits, Revive

    revive = Revive(rule="live", every=2)
    for extra, dead in (([], 0.25), ([revive], 0.0)):
        net = NeuralNetRegressor(
            model(), max_epochs=4, callbacks=[DeadUnits(), *extra], verbose=0, train_split=None,
            optimizer=torch.optim.Adam, lr=1e-3,
        )  # fmt: skip
        net.fit(torch.rand(32, 3).numpy(), torch.rand(32, 1).numpy())
        assert DeadUnits is not Revive
        with DeadUnitMonitor(net.module_) as monitor:
            net.predict(torch.rand(32, 3).numpy())
        assert monitor.report()["1"].dead.mean() == dead
        assert net.history[-1]["relu/dead/1"] == 0.25 or extra
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.module_.modules())


@pytest.mark.filterwarnings("ignore")  # Lightning trails behind torch's deprecations
def test_lightning(tmp_path):
    lightning = pytest.importorskip("lightning", reason="lightning is not installed")
    from relunorm.dying.adapters.lightning import DeadUnits, Revive

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = model()

        def training_step(self, batch, index):
            return self.net(batch[0]).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    module, watch = Module(), DeadUnits(log_every=1)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.rand(32, 3)), 8)
    trainer = lightning.Trainer(
        max_epochs=1, callbacks=[watch], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, accelerator="cpu",
        default_root_dir=str(tmp_path),
    )  # fmt: skip
    trainer.fit(module, data)
    assert float(trainer.callback_metrics["relu/dead/1"]) == 0.25
    assert watch.monitor is not None
    assert watch.monitor.batches == 4
    assert not any(m._forward_hooks for m in module.modules())
    revive = Revive(rule="live", every=2)
    trainer = lightning.Trainer(
        max_epochs=1, callbacks=[revive], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, accelerator="cpu",
        default_root_dir=str(tmp_path),
    )  # fmt: skip
    trainer.fit(module, data)
    assert [(at, found.count) for at, found in revive.reviver.history] == [(2, 1), (4, 0)]
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())


def test_hugging_face(tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    from relunorm.dying.adapters.huggingface import DeadUnits, Revive

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = model()

        def forward(self, x, labels=None):
            output = self.net(x)
            return {"loss": (output - labels).square().mean(), "logits": output}

    rows = [{"x": torch.rand(3), "labels": torch.rand(1)} for _ in range(32)]
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), max_steps=4, logging_steps=2, report_to=[], use_cpu=True,
        disable_tqdm=True, save_strategy="no",
    )  # fmt: skip
    revive = Revive(rule="live", every=4)
    trainer = transformers.Trainer(
        Model(), arguments, train_dataset=rows, callbacks=[DeadUnits(), revive]
    )
    trainer.train()
    assert [(at, found.count) for at, found in revive.reviver.history] == [(4, 1)]
    logged = [row for row in trainer.state.log_history if "relu/dead" in row]
    assert logged
    assert logged[-1]["relu/dead/net.1"] == 0.25


#: Keras' own conversions of torch tensors.
of_keras = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


@of_keras
def test_keras_on_torch():
    keras = pytest.importorskip("keras", reason="keras is not installed")
    from relunorm.dying.adapters.keras import DeadUnits

    dense = keras.layers.Dense
    layers = [keras.Input((3,)), dense(4, "relu", name="first"), dense(4, name="second")]
    net = keras.Sequential([*layers, keras.layers.ReLU(name="act"), dense(1)])
    kernel, bias = net.layers[0].get_weights()
    kernel[:], bias[:] = 0.5, [0.1, -1e3, 0.1, 0.1]
    net.layers[0].set_weights([kernel, bias])
    net.compile("sgd", "mse")
    x = np.random.default_rng(0).random((64, 3))
    watch = DeadUnits()
    history = net.fit(x, x[:, :1], epochs=2, verbose=0, callbacks=[watch]).history
    assert history["relu_dead_first"][-1] == 0.25
    assert [site.name for site in watch.monitor.report().sites] == ["first", "act"]
    assert watch.monitor.batches == 4  # two each epoch; what Keras does to find shapes is no batch


@of_keras
def test_keras_revival():
    """A dead unit's renewal leaves Keras's own predictions as they are; its moments are 0."""
    keras = pytest.importorskip("keras", reason="keras is not installed")
    from relunorm.dying.adapters.keras import Revive

    dense, adam = keras.layers.Dense, keras.optimizers.Adam
    keras.utils.set_random_seed(0)
    x = np.random.default_rng(0).random((64, 3)).astype("float32")

    def build():
        layers = [keras.Input((3,)), dense(4, "relu", name="first"), dense(4)]
        net = keras.Sequential([*layers, keras.layers.ReLU(name="act"), dense(1)])
        for at, unit in ((0, 1), (1, 2)):
            kernel, bias = net.layers[at].get_weights()
            kernel[:], bias[:] = abs(kernel) + 0.1, 0.1
            bias[unit] = -1e3
            net.layers[at].set_weights([kernel, bias])
        return net

    def fit(net, optimizer, epochs, **options):
        net.compile(optimizer, "mse")
        revive = Revive(**options)
        net.fit(x, x[:, :1], batch_size=16, epochs=epochs, verbose=0, callbacks=[revive])
        return revive.history

    net = build()
    before, old = net.predict(x, verbose=0), [w.copy() for w in net.get_weights()]
    history = fit(net, keras.optimizers.SGD(0.0), 1, every=4, tau=0.0)
    assert history == [(4, {"first": [1], "act": [2]})], history
    new = net.get_weights()
    assert np.array_equal(before, net.predict(x, verbose=0))
    assert not new[4][2].any()
    assert new[1][1] == 0
    assert new[3][2] == 0
    assert not np.delete(new[2][1], 2).any()
    assert new[2][1, 2]
    assert (new[0][:, 1] != old[0][:, 1]).all()
    assert np.array_equal(np.delete(new[0], 1, 1), np.delete(old[0], 1, 1))
    optimizer, net = adam(1e-3), build()
    fit(net, optimizer, 1, every=4, tau=0.0)  # the last batch's end
    for moments in (optimizer._momentums, optimizer._velocities):
        kernel, bias, after = (v.numpy() for v in moments[:3])
        assert not kernel[:, 1].any()
        assert not bias[1]
        assert not after[1].any()
        assert kernel[:, 0].any()
        assert after[0].any()
    refused = [(keras.optimizers.Nadam(), build()), (adam(use_ema=True), build())]
    given = keras.Input((3,))
    refused.append((adam(), keras.Model(given, dense(1)(dense(4, "relu")(given)))))
    words = ("the optimizer is", "the optimizer averages", "the model is")
    for (optimizer, net), said in zip(refused, words, strict=True):
        with pytest.raises(InvalidInputError, match=f"^{said}"):
            fit(net, optimizer, 1)


def documented() -> dict[str, str]:
    """The programs in the docs, by the framework they import."""
    page = (Path(__file__).parents[2] / "docs" / "dying.md").read_text(encoding="utf-8")
    page = page.partition("### In a training framework")[2].partition("\n### ")[0]
    programs = [part.partition("```")[0] for part in page.split("```python\n")[1:]]
    return {re.findall(r"adapters\.(\w+) import", code)[0]: code for code in programs}


@pytest.mark.parametrize(
    ("adapter", "packages"),
    [("lightning", ["lightning"]), ("huggingface", ["transformers", "accelerate"]),
     ("skorch", ["skorch"]), ("keras", ["keras"])],
)  # fmt: skip
@of_keras
def test_the_programs_in_the_docs_run(adapter, packages, tmp_path, monkeypatch, capsys):
    for package in packages:
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERAS_BACKEND", os.environ["KERAS_BACKEND"])  # the program sets it
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # frameworks may use what torch deprecates
        exec(compile(documented()[adapter], "docs/dying.md", "exec"), {"__name__": "__main__"})
    assert 0 <= float(capsys.readouterr().out.split()[-1]) <= 1
