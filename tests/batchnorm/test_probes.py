"""Probes on arrays, networks and torch modules; the module is left as it was."""

import json
import math

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from torch import nn

import relunorm as rn
from relunorm.batchnorm.gram import cluster_sizes
from relunorm.errors import InvalidInputError
from relunorm.network import Network
from relunorm.nn import datapoint_init_, decompose


def deep(norm=True, depth=3):
    torch.manual_seed(0)
    parts = []
    for k in range(depth):
        parts += [nn.Linear(5 if k == 0 else 8, 8)]
        parts += [nn.BatchNorm1d(8)] if norm else []
        parts += [nn.ReLU()]
    return nn.Sequential(*parts, nn.Dropout(0.5), nn.Linear(8, 2))


def batch(n=20):
    return np.random.default_rng(0).standard_normal((n, 5))


def test_measures_against_numpy():
    a = np.maximum(np.random.default_rng(1).standard_normal((12, 30)), 0)
    a[:, 3] = 0
    a[:, 4] = 1
    layer = rn.geometry(a)[0]
    gram = a @ a.T
    norms = np.linalg.norm(a, axis=1)
    angles = np.arccos(np.clip(gram / np.outer(norms, norms), -1, 1))[np.triu_indices(12, 1)]
    assert layer.rank == np.linalg.matrix_rank(a)
    assert layer.soft_rank == pytest.approx(np.trace(gram) ** 2 / (gram**2).sum())
    assert layer.mean_angle == pytest.approx(angles.mean())
    assert layer.angle_quantiles[3] == pytest.approx(np.median(angles))
    assert sum(layer.angle_histogram) == len(angles)
    others = (norms.sum() - norms.max()) / 11
    assert layer.norm_ratio_scaled == pytest.approx(others / norms.max() * 11)
    assert layer.dead == 1
    assert layer.broad_share == pytest.approx(((a > 0).mean(axis=0) >= 0.9).mean())
    assert sum(layer.activity_histogram) == 30


def test_odd_points_one_two_none():
    rng = np.random.default_rng(0)
    cluster = np.ones(20) + 0.05 * rng.standard_normal((9, 20))
    away = np.eye(20)[:2] * 60 - 3
    assert rn.geometry(np.vstack([cluster, away[:1]]))[0].odd.points == (9,)
    two = rn.geometry(np.vstack([cluster, away]))[0].odd
    assert sorted(two.points) == [9, 10]
    assert two.norm_gap > 5
    assert rn.geometry(cluster)[0].odd.count == 0
    assert rn.geometry(np.eye(3))[0].odd.count == 0


def test_network_and_module_agree():
    model = deep(norm=False).double().eval()
    linears = [m for m in model if isinstance(m, nn.Linear)]
    network = Network.from_weights(
        [m.weight.detach().numpy() for m in linears], [m.bias.detach().numpy() for m in linears]
    )
    X = batch()
    by_hooks, by_values = rn.geometry(model, X), rn.geometry(network, X)
    assert len(by_values) == len(by_hooks) + 1  # the input too
    for a, b in zip(by_hooks.layers, by_values.layers[1:], strict=True):
        np.testing.assert_allclose(a.norms, b.norms, rtol=1e-12)
        assert a.rank == b.rank
        assert a.activity_histogram == b.activity_histogram
    np.testing.assert_allclose(by_hooks[-1].pairs, by_values[-1].pairs, atol=1e-12)


@pytest.mark.parametrize("training", [True, False])
def test_the_module_is_left_as_it_was(training):
    model = deep().train(training)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    state = torch.get_rng_state()
    rn.geometry(model, batch())
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training is training
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    assert not any(m._forward_hooks for m in model.modules())


def test_chunks_give_the_same_answer():
    model = deep().double().eval()
    X = batch(33)
    whole, chunks = rn.geometry(model, X), rn.geometry(model, X, chunk=7)
    for a, b in zip(whole.layers, chunks.layers, strict=True):
        np.testing.assert_allclose(a.norms, b.norms, rtol=1e-12)
        assert a.mean_angle == pytest.approx(b.mean_angle, rel=1e-12)
        assert (a.activity_histogram, a.dead, a.rank) == (b.activity_histogram, b.dead, b.rank)
        assert b.rank_tolerance == a.rank_tolerance
    with pytest.raises(InvalidInputError, match="eval"):
        rn.geometry(model.train(), X, chunk=7)


def test_points_are_subsampled_but_activity_is_not():
    model = deep(norm=False).eval()
    probe = rn.geometry(model, batch(50), max_points=10)
    assert probe[0].points == 10
    assert probe.points == 50
    everything = rn.geometry(model, batch(50))
    assert probe[0].activity_histogram == everything[0].activity_histogram


def test_a_network_is_sliced_the_same_way():
    rng = np.random.default_rng(0)
    network = Network.from_weights([rng.standard_normal((6, 5)), rng.standard_normal((2, 6))])
    few, every = (rn.geometry(network, batch(50), max_points=m) for m in (8, 50))
    assert (few[1].points, few.points) == (8, 50)
    for a, b in zip(few.layers, every.layers, strict=True):
        assert a.activity_histogram == b.activity_histogram
    assert [x.name for x in rn.geometry(network, batch(), ["1"]).layers] == ["1"]


def test_choice_of_layers_reused_modules_and_functional_relu():
    class Functional(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(5, 6), nn.Linear(6, 6)

        def forward(self, x):
            x = torch.relu(self.a(x))
            return self.b(torch.relu(self.b(x)))

    model = Functional()
    assert [x.name for x in rn.geometry(model, batch()).layers] == ["a", "b", "b#2"]
    assert [x.name for x in rn.geometry(model, batch(), ["b"]).layers] == ["b", "b#2"]
    with pytest.raises(InvalidInputError, match="no module 'c'"):
        rn.geometry(model, batch(), ["c"])


def test_convolutions():
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU())
    x = torch.randn(9, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    layer = rn.geometry(decompose(model, rescale=False), x)[0]
    assert layer.shape == (3, 4, 4)
    assert layer.width == 48


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
def test_on_a_gpu():
    model = deep().double().eval()
    expected = rn.geometry(model, batch())
    for chunk in (None, 6):
        found = rn.geometry(model.cuda(), batch(), chunk=chunk)
        assert next(model.parameters()).is_cuda
        for a, b in zip(expected.layers, found.layers, strict=True):
            np.testing.assert_allclose(a.norms, b.norms, rtol=1e-10)
            assert a.activity_histogram == b.activity_histogram
    before = {k: v.clone() for k, v in model.train().state_dict().items()}
    state = torch.cuda.get_rng_state()
    rn.geometry(decompose(model, recenter=False, inplace=True), batch(), max_points=8)
    assert torch.equal(torch.cuda.get_rng_state(), state)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    two = TwoInputs().cuda()
    assert rn.geometry(two, (np.ones((4, 3)), torch.randn(4, 2)), chunk=3).points == 4


def test_json_repr_and_figure():
    probe = rn.geometry(deep().eval(), batch())
    document = json.loads(json.dumps(probe.to_dict(), allow_nan=False))
    assert document["schema"] == "relunorm.geometry/1"
    assert len(document["layers"]) == 3
    assert len(probe.figure().axes) == 6
    assert "3 layers" in repr(probe)
    assert probe["2"].name == "2"
    with pytest.raises(InvalidInputError, match="no layer"):
        probe["7"]


def test_limits_one_point_zero_points_duplicates():
    single = rn.geometry(np.ones((1, 4)))[0]
    assert single.mean_angle is None
    assert single.rank == 1
    zero = rn.geometry(np.vstack([np.zeros(3), np.eye(3)]))[0]
    assert zero.zero_points == 1
    assert zero.mean_angle == pytest.approx(math.pi / 2)
    same = rn.geometry(np.ones((5, 3)))[0]
    assert same.rank == 1
    assert same.cluster_sizes == (5,)
    json.dumps(rn.geometry(np.zeros((3, 3))).to_dict(), allow_nan=False)
    rn.geometry([np.zeros((3, 3)), np.zeros((3, 3))]).figure()


@pytest.mark.parametrize(
    ("model", "given", "message"),
    [
        (np.array([[np.nan, 1.0]]), None, "NaN"),
        (np.empty((0, 3)), None, "shape"),
        (np.ones(3), None, "shape"),
        ([[1.0, 2], [3, 4]], None, "a list holds one array for each layer"),
        ([np.ones((2, 3)), np.ones((3, 3))], None, "different numbers"),
        ([], None, "no activations"),
        (np.ones((2, 2)), np.ones((2, 2)), "without a batch"),
        (nn.Linear(5, 2), None, "needs a batch"),
        (nn.Linear(5, 2), np.full((2, 5), np.inf), "NaN"),
        (nn.Linear(5, 2), np.empty((0, 5)), "empty"),
    ],
)
def test_bad_input(model, given, message):
    with pytest.raises(InvalidInputError, match=message):
        rn.geometry(model, given)


def test_bad_settings():
    with pytest.raises(InvalidInputError, match="broad"):
        rn.geometry(np.eye(3), broad=0)
    with pytest.raises(InvalidInputError, match="rank_tolerance"):
        rn.geometry(np.eye(3), rank_tolerance=2)
    with pytest.raises(InvalidInputError, match="max_points"):
        rn.geometry(np.eye(3), max_points=0)
    for angle in (-1, 0, 4, math.nan, "wide"):
        with pytest.raises(InvalidInputError, match="cluster_angle"):
            rn.geometry(np.eye(3), cluster_angle=angle)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_chunks_with_modules_that_work_in_place(dtype):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(inplace=True)).to(dtype).eval()
    X = np.random.default_rng(0).standard_normal((20, 3))
    whole, chunked = (rn.geometry(model, X, layers=["0"], chunk=c)[0] for c in (None, 7))
    assert chunked.rank == whole.rank == 3 + 1
    np.testing.assert_allclose(chunked.norms, whole.norms, rtol=1e-5)
    assert chunked.soft_rank == pytest.approx(whole.soft_rank, rel=1e-5)


class Counting(nn.Module):
    """Puts a new tensor in the place of its buffer at every call."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))
        self.relu = nn.ReLU()

    def forward(self, x):
        self.calls = self.calls + 1
        return self.relu(x + self.calls)


@pytest.mark.parametrize("chunk", [None, 3])
def test_a_reassigned_buffer_is_put_back(chunk):
    model = Counting()
    buffer = model.calls
    rn.geometry(model, np.eye(8), chunk=chunk)
    assert model.calls is buffer
    assert float(buffer) == 0


@pytest.mark.parametrize("factor", [1e-200, 1e-300, 1e200, 1e300])
def test_scale_changes_the_norms_alone(factor):
    X = np.random.default_rng(0).standard_normal((8, 4))
    model = nn.Sequential(nn.Linear(4, 6, bias=False), nn.ReLU()).double()
    network = rn.Network.from_weights([np.eye(4), np.eye(4)], [np.zeros(4), np.zeros(4)])
    for probe in (
        lambda x: rn.geometry([x]),
        lambda x: rn.geometry(model, x),
        lambda x: rn.geometry(model, x, chunk=3),
        lambda x: rn.geometry(network, x),
    ):
        plain, scaled = probe(X), probe(X * factor)
        json.dumps(scaled.to_dict(), allow_nan=False)
        for a, b in zip(plain.layers, scaled.layers, strict=True):
            np.testing.assert_allclose(b.norms / factor, a.norms, rtol=1e-9)
            assert (b.rank, b.dead, b.zero_points) == (a.rank, a.dead, a.zero_points)
            assert b.soft_rank == pytest.approx(a.soft_rank)
            assert b.mean_angle == pytest.approx(a.mean_angle)


def test_bfloat16_keeps_its_rounding_unit():
    found = rn.geometry(torch.eye(4, dtype=torch.bfloat16))[0]
    assert found.rank == 4
    assert found.rank_tolerance == 4 * torch.finfo(torch.bfloat16).eps


def test_numpy_numbers_and_flat_batches():
    probe = rn.geometry([np.eye(4)], max_points=np.int64(3), random_state=np.int64(1))
    json.dumps(probe.to_dict(), allow_nan=False)
    network = Network.from_weights([np.eye(2)], [np.zeros(2)])
    with pytest.raises(InvalidInputError, match=r"expected .points, 2"):
        rn.geometry(network, [0.0, 1.0])
    with pytest.raises(InvalidInputError, match="random_state"):
        rn.geometry([np.eye(4)], max_points=2, random_state=-1)


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.relu = nn.Linear(3, 4), nn.Linear(2, 4), nn.ReLU()

    def forward(self, x, y):
        return {"out": self.relu(self.a(x) + self.b(y))}


def test_several_inputs_and_outputs_that_are_no_tensor():
    torch.manual_seed(0)
    model, x, y = TwoInputs(), np.random.default_rng(0).normal(size=(7, 3)), torch.randn(7, 2)
    with torch.no_grad():
        expected = rn.geometry(model(torch.tensor(x).float(), y)["out"])[0]
    for given in ((x, y), {"y": y, "x": x}):
        for chunk in (None, 3):
            found = rn.geometry(model, given, "relu", chunk=chunk)
            np.testing.assert_allclose(found[0].norms, expected.norms, rtol=1e-6)
    for given, message in (
        ((x, y[:3]), "different numbers"),
        ({}, "names no input"),
        (x, "does not take this batch.*missing"),
        ({"x": x, "z": y}, "unexpected keyword"),
        ((x, y * math.nan), "input 2 holds NaN"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            rn.geometry(model, given)
    with pytest.raises(InvalidInputError, match=r"output \(dict\)"):
        rn.geometry(model, (x, y), ["(model)"])


def test_indices_go_to_an_embedding_as_tensors():
    model = nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(8, 3), nn.ReLU())
    assert rn.geometry(model, torch.arange(10).reshape(5, 2)).points == 5


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Sequential(nn.LazyLinear(2), nn.ReLU()), "lazy"),
        (nn.Sequential(nn.Linear(5, 2, device="meta"), nn.ReLU()), "meta"),
        (nn.Linear(4, 2), "does not take this batch"),
        (nn.LSTM(5, 3), "no layer was probed"),
    ],
)
def test_models_that_cannot_be_probed(model, message):
    with pytest.raises(InvalidInputError, match=message):
        rn.geometry(model, batch())


def test_a_failing_model_is_left_as_it_was():
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(3, 2))
    with pytest.raises(InvalidInputError, match="does not take"):
        rn.geometry(model, batch())
    assert int(model[1].num_batches_tracked) == 0
    assert not model[2]._forward_hooks


@pytest.mark.parametrize("layers", [[], 3, ["q"], [3], "q"])
def test_names_that_match_nothing(layers):
    for model, given in ((deep().eval(), batch()), ([np.eye(3)], None)):
        with pytest.raises(InvalidInputError, match=r"layer|module"):
            rn.geometry(model, given, layers)


NOT_REAL = {
    "complex": np.eye(3) * 1j,
    "complex tensor": torch.eye(3) * 1j,
    "dates": np.full((3, 2), "2020-01-01", dtype="M8[D]"),
    "text": [["1", "2"], ["3", "4"]],
    "masked": np.ma.masked_less(np.eye(3), 0.5),
    "sparse tensor": torch.eye(3).to_sparse(),
    "no data": torch.empty(3, 3, device="meta"),
    "ragged": [[1, 2], [3]],
    "objects": [[object(), 1], [1, 2]],
    "nothing": None,
}


@pytest.mark.parametrize("what", NOT_REAL)
def test_only_real_numbers_are_taken(what):
    """By every entrance of the room; warnings are errors, so no part is dropped on the way."""
    X = NOT_REAL[what]
    calls = [
        lambda: rn.geometry(X),
        lambda: rn.geometry(nn.Linear(3, 2), X),
        lambda: rn.geometry(Network.from_weights([np.eye(3)]), X),
        lambda: rn.batchnorm.propagate(X, 2, 5),
        lambda: rn.batchnorm.gamma(X),
        lambda: rn.batchnorm.rank_condition(X),
        lambda: rn.batchnorm.sample_neuron_counts(X, 2),
        lambda: rn.batchnorm.Tree(X),
        lambda: rn.batchnorm.positive_transformation(X),
        lambda: datapoint_init_(nn.Linear(3, 2), X),
    ]
    if what != "text":  # exact mode reads "1/3"
        calls.append(lambda: rn.batchnorm.Tree(X, exact=True))
    for call in calls:
        with pytest.raises(InvalidInputError):
            call()


@pytest.mark.parametrize(
    "convert",
    [
        lambda x: x.tolist(),
        lambda x: x.astype(np.float16),
        lambda x: x.astype(np.int8),
        lambda x: torch.tensor(x, requires_grad=True),
        lambda x: torch.tensor(x, dtype=torch.bfloat16),
        lambda x: torch.tensor(x, dtype=torch.int16),
        lambda x: np.ma.masked_array(x),
    ],
)
def test_every_kind_of_real_number_is_taken(convert):
    x = np.array([[0.0, 1, 4], [2, 1, -3], [5, 0, 0], [1, 1, 7]])
    given = convert(x)
    assert rn.geometry([given])[0].soft_rank == pytest.approx(rn.geometry(x)[0].soft_rank)
    assert rn.batchnorm.gamma(given).gamma == rn.batchnorm.gamma(x).gamma
    same = [rn.batchnorm.propagate(v, 2, 9).grams for v in (x, given)]
    np.testing.assert_array_equal(*same)
    for exact in (False, True):
        trees = [rn.batchnorm.Tree(v, exact=exact).run(5).gram() for v in (x, given)]
        np.testing.assert_array_equal(*trees)
    assert datapoint_init_(nn.Linear(3, 4), given).exclusive == 4


@pytest.mark.parametrize("width", [4, 6, 20])
@pytest.mark.parametrize("chunk", [3, 20, 150])
def test_chunked_ranks_of_narrow_layers_are_those_of_the_whole(width, chunk):
    for seed in range(4):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, 30)).double()
        X = np.random.default_rng(seed).standard_normal((60, 3))
        whole, chunked = (rn.geometry(model, X, ["0", "1", "2"], chunk=c) for c in (None, chunk))
        for a, b in zip(whole.layers, chunked.layers, strict=True):
            assert a.rank == b.rank <= a.width
            assert a.rank_tolerance == b.rank_tolerance


def test_chunked_ranks_of_wide_layers_say_what_they_resolve():
    """A tolerance below the rounding of a Gram matrix is raised to it, not believed."""
    for seed in range(10):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 300)).double()
        X = np.random.default_rng(seed).standard_normal((60, 3))
        for given in (None, 1e-14):
            found = rn.geometry(model, X, "2", chunk=20, rank_tolerance=given)[0]
            assert found.rank_tolerance == (300 * 2.0**-52) ** 0.5
            assert found.rank == rn.geometry(model, X, "2")[0].rank <= 5


def test_the_page_counts_layers_and_shows_small_ranks_plainly():
    rng = np.random.default_rng(0)
    shapes = ((6, 3), (5, 6), (1, 5))
    network = Network.from_weights([rng.standard_normal(s) for s in shapes])
    figure = rn.geometry(network, rng.standard_normal((12, 3))).figure()
    assert "12 points through 2 layers" in figure.get_suptitle()
    FigureCanvasAgg(figure).draw()
    ranks = next(ax for ax in figure.axes if ax.get_title() == "rank of the batch")
    labels = [t.get_text() for t in (*ranks.get_yticklabels(), *ranks.get_yticklabels(minor=True))]
    assert not any("10^" in label for label in labels)
    wide = rn.geometry([np.eye(40), np.ones((40, 2))]).figure()
    FigureCanvasAgg(wide).draw()
    ranks = next(ax for ax in wide.axes if ax.get_title() == "rank of the batch")
    assert ranks.get_yscale() == "log"
    assert "10" in [t.get_text() for t in ranks.get_yticklabels()]


def test_bad_cluster_angle():
    for angle in (-1, 0, np.nan, 4):
        with pytest.raises(InvalidInputError, match="angle"):
            cluster_sizes(np.eye(3), angle)


class Turned(nn.Module):
    """The batch on the second axis."""

    def forward(self, x):
        return x.T


@pytest.mark.parametrize("n", [20, 23])
def test_chunks_as_long_as_the_features_are_no_batch(n):
    """Five features, chunks of five points: the turned layer seemed to have the batch first."""
    model = nn.Sequential(nn.Identity(), Turned())
    with pytest.raises(InvalidInputError, match="batch of"):
        rn.geometry(model, batch(n), layers=["1"], chunk=5)
    probe = rn.geometry(model, batch(n), chunk=5)
    assert [layer.name for layer in probe.layers] == ["0"]


def test_the_page_names_layers_and_counts_points():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 40))
    wide = rn.geometry([X[:, : max(3, 40 - 3 * k)] for k in range(16)]).figure()
    FigureCanvasAgg(wide).draw()
    ranks = wide.axes[1]
    low, high = ranks.get_ylim()
    inside = [
        t.get_text()
        for t, y in zip(ranks.get_yticklabels(), ranks.get_yticks(), strict=True)
        if low <= y <= high and t.get_text()
    ]
    assert len(inside) >= 3
    model = deep(norm=False).eval()
    labels = [t.get_text() for t in rn.geometry(model, batch()).figure().axes[0].get_xticklabels()]
    assert labels == ["1", "3", "5"]
    one = rn.geometry(model, batch(1)).figure()
    assert one.get_suptitle().startswith("Geometry of 1 point through")
    for k in (0, 2, 4, 5):
        assert [t.get_text() for t in one.axes[k].texts] == ["needs at least two points"]
