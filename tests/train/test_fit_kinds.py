"""``relunorm fit``: classes, straight pieces, pictures, words and gaps."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest

import relunorm as rn
from relunorm.cli import main
from relunorm.cli.training import fit_models
from relunorm.clock import NO_LIMIT, Clock
from relunorm.io.domains import parse_domain
from relunorm.io.table import Table
from relunorm.train import effects

RNG = np.random.default_rng(0)
X = RNG.random((90, 2))
KIND = np.where(X[:, 0] + 0.05 * RNG.normal(size=90) > 0.5, "oak", "ash")


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    try:
        main(["fit", *arguments])
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def write(path, **columns) -> str:
    lines = [
        ",".join(columns),
        *(",".join(map(str, r)) for r in zip(*columns.values(), strict=True)),
    ]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_words_as_classes(tmp_path, capsys):
    table = write(tmp_path / "d.csv", a=X[:, 0], b=X[:, 1], kind=KIND)
    out = str(tmp_path / "m.npz")
    arguments = ("--target", "kind", "--classify", "--hidden", "3", "--alpha", "0.01")
    code, shown, _ = run(capsys, table, *arguments, "-o", out, "--json")
    document = json.loads(shown)
    assert code == 0
    assert document["classes"] == ["ash", "oak"]
    names = [row["model"] for row in document["errors"]]
    assert names == ["relu network", "logistic regression", "gradient boosting"]
    assert document["errors"][0]["holdout_accuracy"] > 0.8
    assert document["errors"][0]["holdout_log_loss"] < 0.4
    network = rn.load(out)
    right = (network(X)[:, 0] > 0) == (KIND == "oak")
    assert right.mean() > 0.9
    code, shown, _ = run(capsys, table, *arguments, "--quiet")
    assert code == 0
    assert "log-loss" in shown


def test_three_numbers_as_classes(tmp_path, capsys):
    table = write(tmp_path / "d.csv", a=X[:, 0], b=X[:, 1], y=np.floor(3 * X[:, 1]).astype(int))
    code, shown, _ = run(capsys, table, "--target", "y", "--classify", "--alpha", "0.01", "--json")
    assert code == 0
    assert json.loads(shown)["classes"] == ["0", "1", "2"]


def test_pieces_with_their_bound(tmp_path, capsys):
    x = np.sort(RNG.random(80))
    y = np.interp(x, [0, 0.3, 0.7, 1], [0, 1, 0.2, 0.5]) + 0.01 * RNG.normal(size=80)
    table, picture = write(tmp_path / "d.csv", x=x, y=y), tmp_path / "p.png"
    code, shown, _ = run(
        capsys, table, "--target", "y", "--pieces", "3", "--plot", str(picture), "--json"
    )
    document = json.loads(shown)
    pieces = document["pieces"]
    assert code == 0
    assert document["holdout_rows"] == 0
    assert pieces["pieces"] == 3
    assert pieces["knots"][1:3] == pytest.approx([0.3, 0.7], abs=0.02)
    assert 0 < pieces["lower_bound_mse"] <= pieces["mse"] < 2e-4
    assert pieces["gap"] == pytest.approx(pieces["mse"] / pieces["lower_bound_mse"] - 1, abs=1e-6)
    fitted = np.interp(x, pieces["knots"], pieces["values"])
    assert np.mean((fitted - y) ** 2) == pytest.approx(pieces["mse"])
    assert picture.read_bytes().startswith(b"\x89PNG")
    code, shown, _ = run(capsys, table, "--target", "y", "--pieces", "3", "--quiet")
    assert code == 0
    assert "slope" in shown
    assert "certified" in shown
    assert run(capsys, "--help")[0] == 0
    told = " ".join(run(capsys, "--help")[1].replace("│", " ").split())
    assert "a proved lower bound on the error of any such fit" in told


def test_effects_are_drawn(tmp_path, capsys):
    table = write(tmp_path / "d.csv", a=X[:, 0], b=X[:, 1], y=np.abs(X[:, 0] - 0.5) + X[:, 1])
    picture = tmp_path / "e.svg"
    arguments = ("--hidden", "4", "--alpha", "1e-4", "--plot", str(picture), "--quiet")
    code, shown, _ = run(capsys, table, "--target", "y", *arguments)
    assert code == 0
    assert "drawn in" in shown
    assert "<svg" in picture.read_text()


def test_effects_are_labelled_with_the_classes(tmp_path, capsys, monkeypatch):
    drawn = []
    draw = effects.plot_effects
    monkeypatch.setattr(
        effects, "plot_effects", lambda *given, **how: drawn.append(how) or draw(*given, **how)
    )
    table = write(tmp_path / "d.csv", a=X[:, 0], b=X[:, 1], kind=np.digitize(X[:, 0], [0.3, 0.6]))
    arguments = ("--hidden", "2", "--alpha", "0.1", "--plot", str(tmp_path / "e.svg"), "--json")
    assert run(capsys, table, "--target", "kind", "--classify", *arguments)[0] == 0
    assert drawn == [{"labels": ["score of 0", "score of 1", "score of 2"]}]


def test_classes_with_one_row_and_tables_with_one_class(tmp_path, capsys):
    """The only row of a class is not held out; a single class is named as the table writes it."""
    for at in range(3):
        kind = np.where(np.arange(40) == at, "cat", "dog")
        table = write(tmp_path / "d.csv", a=X[:40, 0], b=X[:40, 1], kind=kind)
        arguments = ("--target", "kind", "--classify", "--hidden", "2", "--alpha", "0.1", "--json")
        code, shown, _ = run(capsys, table, *arguments)
        assert code == 0
        assert json.loads(shown)["classes"] == ["cat", "dog"]
        assert json.loads(shown)["holdout_rows"] == 8
    table = write(tmp_path / "d.csv", a=X[:40, 0], kind=["dog"] * 40)
    code, _, error = run(capsys, table, *arguments)
    assert code == 2
    assert "column 'kind' holds one class only, dog" in " ".join(error.split())


def test_words_and_gaps_on_request(tmp_path, capsys):
    hue = np.where(X[:, 0] > 0.5, "red", "blue")
    gaps = np.where(np.arange(90) % 9 == 0, "NA", X[:, 1].round(4).astype(str))
    y = (hue == "red") + X[:, 1]
    table = write(tmp_path / "d.csv", hue=hue, b=gaps, y=y)
    plain = (table, "--target", "y", "--hidden", "3", "--alpha", "1e-3", "--json")
    code, _, error = run(capsys, *plain)
    assert code == 2
    assert "'red' is not a number" in error or "'blue' is not a number" in error
    assert "--one-hot encodes words" in " ".join(error.split())
    code, _, error = run(capsys, *plain, "--one-hot")
    assert code == 2
    assert "line 2, column 'b': a gap" in error
    code, _, error = run(capsys, *plain, "--missing", "median")
    assert code == 2
    assert "use --one-hot" in error
    code, shown, _ = run(capsys, *plain, "--one-hot", "--missing", "median")
    document = json.loads(shown)
    assert code == 0
    assert document["inputs"] == ["hue=blue", "hue=red", "b"]
    assert document["errors"][0]["train_r2"] > 0.9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--pieces", "3"), "--pieces fits one input, but there are 2"),
        (("--pieces", "3", "--classify"), "no --classify"),
        (("--pieces", "3", "--solver", "adam"), "leave --hidden, --solver and --alpha out"),
        (("--plot", "x.txt"), ".png, .pdf or .svg"),
        (("--plot", "no/such/folder/x.png"), "does not exist"),
        (("--missing", "zero"), "use refuse or median"),
        (("--classify", "--restarts", "2"), "--restarts is for regression"),
        (("--classify", "--target", "b"), "give --target once"),
        (("--classify", "--solver", "greedy"), "use auto, logistic, adam"),
    ],
)
def test_what_does_not_go_together(tmp_path, capsys, arguments, message):
    table = write(tmp_path / "d.csv", a=X[:, 0], b=X[:, 1], y=(X[:, 0] > 0.5).astype(int))
    code, _, error = run(capsys, table, "--target", "y", *arguments)
    assert code == 2
    assert message in " ".join(error.split())


@pytest.mark.parametrize("column", ["b", "y"])
def test_an_infinite_cell_is_named(tmp_path, capsys, column):
    values = {"a": X[:, 0], "b": X[:, 1].copy(), "y": X[:, 0] + X[:, 1]}
    values[column][4] = -np.inf
    table = write(tmp_path / "d.csv", **values)
    code, _, error = run(capsys, table, "--target", "y", "--missing", "median")
    assert code == 2
    assert f"line 6, column '{column}': -inf is infinite" in " ".join(error.split())


def test_a_target_of_words_points_to_classify(tmp_path, capsys):
    table = write(tmp_path / "d.csv", a=X[:, 0], kind=KIND)
    code, _, error = run(capsys, table, "--target", "kind", "--one-hot")
    assert code == 2
    assert "use --classify" in " ".join(error.split())


@pytest.mark.parametrize(("y", "fault"), [(X[:, 0], "fractions"), (np.eye(90), "90 columns")])
def test_a_target_of_numbers_is_not_classified(tmp_path, capsys, y, fault):
    np.savez(tmp_path / "d.npz", x=X, y=y)
    code, shown, error = run(capsys, str(tmp_path / "d.npz"), "--classify")
    assert (code, shown) == (2, "")
    assert fault in error
    assert "leave --classify out" in " ".join(error.split())


@pytest.mark.parametrize("ending", ["onnx", "npz"])
def test_a_fitted_file_reads_its_own_table(tmp_path, capsys, ending):
    hue = np.where(np.arange(90) % 7 == 0, "none", np.where(X[:, 0] > 0.5, "red", "blue"))
    hue[3] = ""
    gaps = np.where(np.arange(90) % 9 == 0, "NA", X[:, 1].round(4).astype(str))
    table = write(tmp_path / "d.csv", hue=hue, b=gaps, kind=KIND)
    out = str(tmp_path / f"m.{ending}")
    flags = ("--classify", "--one-hot", "--missing", "median")
    options = ("--target", "kind", "--hidden", "2", "--alpha", "0.1")
    code, shown, _ = run(capsys, table, *options, *flags, "-o", out, "--json")
    assert code == 0
    network = rn.load(out)
    assert network.head.classes == ("ash", "oak")
    assert network.head.label == "sigmoid"
    names = ["hue=blue", "hue=none", "hue=red", "b"]
    assert [n for column in network.columns for n in column.inputs] == names
    assert json.loads(shown)["inputs"] == names
    # by hand: a gap among words is 0 everywhere, one among numbers the median of the rows fitted
    fill = network.columns[1].fill
    inputs = np.column_stack(
        [
            *(hue == word for word in ("blue", "none", "red")),
            [float(g) if g != "NA" else fill for g in gaps],
        ]
    ).astype(float)
    right = (network(inputs)[:, 0] > 0) == (KIND == "oak")
    with pytest.raises(SystemExit) as stop:
        main(["certify", out, "--data", table, "--target", "kind", "--eps", "0", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert [row["correct"] for row in document["rows"]] == right.tolist()
    assert document["classes"] == ["ash", "oak"]
    assert stop.value.code == (0 if right.all() else 1)
    box = parse_domain(f"data:{table}?target=kind", network)
    assert box.lo.tolist() == inputs.min(axis=0).tolist()
    other = write(tmp_path / "e.csv", kind=["ash"], b=[0.5], hue=["green"])
    with pytest.raises(SystemExit):
        main(["certify", out, "--data", other, "--target", "kind", "--eps", "0"])
    assert "'green' is not one of blue, none, red" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(("labels", "told"), [((1, 2), True), ((0.5, 1), False)])
def test_a_target_of_two_whole_numbers_may_be_classes(tmp_path, capsys, labels, told):
    table = write(tmp_path / "d.csv", a=X[:, 0], y=np.where(KIND == "oak", *labels))
    code, shown, _ = run(capsys, table, "--target", "y", "--hidden", "1", "--json")
    assert code == 0
    assert any("if they are classes, --classify" in n for n in json.loads(shown)["notes"]) == told


def test_long_numbers_of_classes_stay_apart(tmp_path, capsys):
    kind = np.where(X[:, 0] > 0.5, 1_000_002, 1_000_001)
    table = write(tmp_path / "d.csv", a=X[:, 0], b=X[:, 1], kind=kind)
    out = str(tmp_path / "m.npz")
    arguments = ("--target", "kind", "--classify", "--hidden", "2", "--alpha", "0.1", "--json")
    code, shown, _ = run(capsys, table, *arguments, "-o", out)
    assert code == 0
    assert json.loads(shown)["classes"] == ["1000001", "1000002"]
    assert rn.load(out).head.classes == (1_000_001, 1_000_002)


def test_a_class_of_one_row_among_many_has_a_comparison():
    """Boosting holds rows of every class out above 10,000 of them, which one row does not allow."""
    x = np.random.default_rng(0).normal(size=(10_500, 1))
    y = (x[:, 0] > 0).astype(float)
    y[7] = 2.0
    models = list(fit_models.classification_baselines(Table(x, y, ("a",), "y"), NO_LIMIT))
    assert [model.name for model in models] == ["logistic regression", "gradient boosting"]
    assert models[1].predict(x[:5]).shape == (5, 3)


@pytest.mark.parametrize("classify", [False, True])
def test_simpler_models_keep_to_the_clock(classify):
    """Wherever it runs out: a model with fewer rounds that says so, or none; the first one always.

    With time enough, doubling the rounds leads to the same models as one call without a limit.
    """
    fit = fit_models.classification_baselines if classify else fit_models.regression_baselines
    table = Table(X, (X[:, 0] > X[:, 1]) + 0.0 if classify else X[:, 0] ** 2, ("a", "b"), "y")
    whole = list(fit(table, NO_LIMIT))
    simplest = "logistic regression" if classify else "linear"
    assert [(one.name, one.note) for one in whole] == [(simplest, ""), ("gradient boosting", "")]
    rounds = set()
    for looks in range(1, 60, 2):
        late = partial(next, iter([0.0] * looks), 1e6)  # from the look after so many
        first, boosting = fit(table, Clock(1.0, late))
        assert first.predict is not None
        if boosting.predict is None:
            assert boosting.note == "gradient boosting is left out: the time limit left none for it"
            rounds.add(0)
        elif boosting.name != "gradient boosting":
            rounds.add(int(boosting.name.removesuffix(" of 100 rounds").split()[-1]))
        else:
            np.testing.assert_allclose(boosting.predict(X), whole[1].predict(X), rtol=1e-9)
            rounds.add(100)
    assert {0, 1, 100} <= rounds


@pytest.mark.parametrize("extra", [(), ("--classify",)])
def test_ctrl_c_while_simpler_models_are_fitted_keeps_the_network(
    tmp_path, capsys, monkeypatch, extra
):
    def interrupt(*_):
        raise KeyboardInterrupt

    for name in ("regression_baselines", "classification_baselines"):
        monkeypatch.setattr(fit_models, name, interrupt)
    table = write(tmp_path / "d.csv", a=X[:, 0], b=X[:, 1], y=(X[:, 0] > 0.5).astype(int))
    out = tmp_path / "m.npz"
    arguments = ("--target", "y", "--hidden", "2", "--alpha", "0.1", "--json", "-o", str(out))
    _, shown, _ = run(capsys, table, *arguments, *extra)
    document = json.loads(shown)
    assert [row["model"] for row in document["errors"]] == ["relu network"]
    assert "nothing to compare with" in document["notes"][-1]
    assert rn.load(out).input_size == 2


def test_the_rounding_of_a_constant_is_no_loss_of_digits(tmp_path, capsys):
    table = write(tmp_path / "d.csv", a=X[:, 0], b=X[:, 1], y=np.full(len(X), 0.1))
    arguments = ("--hidden", "2", "--alpha", "0.1", "--json", "-o", str(tmp_path / "m.onnx"))
    _, shown, _ = run(capsys, table, "--target", "y", *arguments)
    assert not any("float32" in note for note in json.loads(shown)["notes"])


def test_pieces_of_a_target_whose_squares_have_no_float64(tmp_path, capsys):
    table = write(tmp_path / "d.csv", a=X[:, 0], y=1e200 * np.abs(X[:, 0] - 0.4) + 1e199 * X[:, 1])
    picture = tmp_path / "p.png"
    arguments = ("--target", "y", "--pieces", "2", "--plot", str(picture), "--quiet")
    code, shown, _ = run(capsys, table, *arguments)
    assert code == 0
    assert "mean squared error beyond float64" in " ".join(shown.split())
    assert picture.exists()
