"""Tables that `relunorm fit` may be handed: a message of ours, or the right numbers."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from sklearn.metrics import r2_score, root_mean_squared_error

import relunorm as rn
from relunorm.cli import main
from relunorm.io.table import read_table

RNG = np.random.default_rng(0)
X = np.round(RNG.random((24, 2)), 6)
Y = np.round(X[:, 0] + np.abs(X[:, 1] - 0.5), 6)


def text(separator: str = ",", point: str = ".", names=("a", "b", "y"), rows=slice(None)) -> str:
    cells = [[f"{v:.6f}".replace(".", point) for v in row] for row in np.column_stack([X, Y])]
    return "\n".join(separator.join(row) for row in [names, *cells[rows]]) + "\n"


def added(line: str) -> bytes:
    return (text() + line + "\n").encode()


def fit(capsys, *arguments: str) -> tuple[int, str, str]:
    try:
        main(["fit", *arguments, "--quiet", "--json"])
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    shown = capsys.readouterr()
    return code, shown.out, shown.err


CSV_ERRORS = {
    "empty": (b"", "the table is empty"),
    "blank": (b"\n\n", "the table is empty"),
    "header only": (b"a,b,y\n", "names but no rows"),
    "one row": (text(rows=slice(1)).encode(), "1 row of data; a fit needs at least 3"),
    "only a target": (b"y\n1\n2\n3\n4\n", "0 input columns"),
    "no such target": (text(names=("a", "b", "c")).encode(), "no column 'y'; the columns are a"),
    "close target": (text(names=("a", "b", "Y")).encode(), "Did you mean 'Y'?"),
    "no header": (text().split("\n", 1)[1].encode(), "the columns are x0, x1, x2"),
    "names twice": (text(names=("a", "a", "y")).encode(), "same name 'a'"),
    "target twice": (text(names=("a", "y", "y")).encode(), "same name 'y'"),
    "index without a name": (text(names=("", "b", "y")).encode(), "index=False"),
    "text column": (added("red,2,3"), "line 26, column 'a': 'red' is not a number; drop"),
    "classes": (added("1,2,red"), "this is the target, and a regression predicts numbers"),
    "empty cell": (added("1,,3"), "an empty cell is not a number; fill or drop"),
    "not available": (added("1,NA,3"), "'NA' is not a number; fill or drop"),
    "NaN": (added("1,nan,3"), "NaN or infinite values, first in data row 25, column 'b'"),
    "infinite target": (added("1,2,inf"), "the target holds NaN or infinite"),
    "beyond float64": (added("1e400,2,3"), "NaN or infinite"),
    "too huge to scale": (added("1e300,2,3"), "too large or too small for float64 arithmetic: a;"),
    "short line": (added("1,2"), "line 26 has 2 cells, expected 3"),
    "long line": (added("1,2,3,4"), "line 26 has 4 cells, expected 3"),
    "quoted decimal comma": (added('"1,5",2,3'), "with decimal commas, separate the columns by"),
    "thousands": (added('"1,500.5",2,3'), "commas between thousands must go"),
    "underscore": (added("1_000,2,3"), "'1_000' is not a number"),
    "mixed points": (
        (text(";", ",") + "1.5;2,5;3\n").encode(),
        "with decimal commas, separate the columns by",
    ),
    "strange separator": (text(":").encode(), "a separator other than comma"),
    "latin-1": (text(names=("ä", "b", "y")).encode("latin-1"), "byte 0xe4 is not UTF-8"),
    "null bytes": (b"a,b,y\n\0\0,1,2\n", "null bytes"),
    "cut gz": (gzip.compress(text().encode())[:60], "not a readable .gz file"),
}


@pytest.mark.parametrize("case", CSV_ERRORS)
def test_a_bad_text_table_is_one_clear_error(tmp_path, capsys, case):
    data, message = CSV_ERRORS[case]
    path = tmp_path / "t.csv"
    path.write_bytes(data)
    code, shown, error = fit(capsys, str(path), "--target", "y")
    assert (code, shown) == (2, "")
    assert message in error
    assert len(error.splitlines()) <= 3


@pytest.mark.parametrize("options", [["--one-hot"], ["--one-hot", "--missing", "median"]])
def test_a_slip_in_a_column_of_numbers_is_named(tmp_path, capsys, options):
    rows = [f"{1.5 * k},{'ab'[k % 2]},{k}" for k in range(40)]
    rows[7] = "1O.5,a,7"
    (tmp_path / "t.csv").write_text("\n".join(["size,kind,price", *rows]) + "\n")
    with pytest.raises(SystemExit) as stop:
        main(["fit", str(tmp_path / "t.csv"), "--target", "price", *options])
    assert stop.value.code == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "line 9, column 'size': '1O.5' is not a number, unlike 39 of its 40 cells" in said


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("t.csv", text().encode()),
        ("t.csv", text(";").encode()),
        ("t.csv", text(";", ",").encode()),
        ("t.tsv", text("\t", ",").encode()),
        ("t.csv", text("|").encode()),
        ("t.txt", text("  ").encode()),
        ("t.csv", b"\xef\xbb\xbf" + text().encode()),
        ("t.csv", text().encode("utf-16")),
        ("t.csv", text().replace("\n", "\r\n").encode()),
        ("t.csv", b"# " + text().encode()),
        ("t.csv.gz", gzip.compress(text(";", ",").encode())),
        ("t.csv", gzip.compress(text().encode())),
        ("t.csv", text(names=(' "a"', ' "b"', "y")).encode()),
    ],
)
def test_dialects_give_the_same_numbers(tmp_path, name, data):
    path = tmp_path / name
    path.write_bytes(data)
    table = read_table(path, target="y")
    assert table.names == ("a", "b")
    assert np.array_equal(table.x, X)
    assert np.array_equal(table.y, Y)


def test_quoted_separators_in_names(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(text(";", names=('"a, m, n, o"', '"b;c"', "y")))
    assert read_table(path, target="y").names == ("a, m, n, o", "b;c")


NPZ_ERRORS = {
    "no x": ({"z": X}, (), "no array 'x'"),
    "no y": ({"x": X}, (), "Give --target; the columns are x0, x1"),
    "wrong target": ({"x": X, "y": Y}, ("--target", "z"), "not 'z'; leave the target out"),
    "short y": ({"x": X, "y": Y[:5]}, (), "24 rows of x but 5 of y"),
    "text": ({"x": X.astype(str), "y": Y}, (), "expected numbers of shape (n, d)"),
    "classes": ({"x": X, "y": np.array(["r", "b"] * 12)}, (), "expected numbers of shape (n,)"),
    "no outputs": ({"x": X, "y": Y[:, None][:, :0]}, (), "expected numbers of shape (n,)"),
    "one dimension": ({"x": X[:, 0], "y": Y}, (), "shape (24,)"),
    "x twice": ({"x": X, "X": X, "y": Y}, (), "x and y are there twice"),
}


@pytest.mark.parametrize("case", NPZ_ERRORS)
def test_a_bad_archive_is_one_clear_error(tmp_path, capsys, case):
    arrays, arguments, message = NPZ_ERRORS[case]
    np.savez(tmp_path / "t.npz", **arrays)
    code, shown, error = fit(capsys, str(tmp_path / "t.npz"), *arguments)
    assert (code, shown) == (2, "")
    assert message in error


def test_a_column_of_an_archive_can_be_the_target(tmp_path):
    np.savez(tmp_path / "t.npz", x=X, feature_names=["a", "b"])
    table = read_table(tmp_path / "t.npz", target="b")
    assert table.names == ("a",)
    assert np.array_equal(table.y, X[:, 1])


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("text", "column 'c' does not hold numbers but"),
        ("time", "column 'c' holds dates or times (timestamp"),
        ("missing", "NaN or infinite"),
        ("twice", "same name 'y'"),
        ("empty", "0 rows"),
        ("broken", "not a readable .parquet file"),
    ],
)
def test_a_bad_parquet_file_is_one_clear_error(tmp_path, capsys, kind, message):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path, n = tmp_path / "t.parquet", 0 if kind == "empty" else 24
    third = {
        "text": pa.array(["u"] * n),
        "time": pa.array(np.arange(0, n, dtype="datetime64[s]")),
        "missing": pa.array([None, *range(n - 1)] if n else [], type=pa.float64()),
    }.get(kind, pa.array(Y[:n]))
    names = ["a", "y", "y" if kind == "twice" else "c"]
    parquet.write_table(pa.table([pa.array(X[:n, 0]), pa.array(Y[:n]), third], names=names), path)
    if kind == "broken":
        path.write_bytes(path.read_bytes()[:50])
    code, shown, error = fit(capsys, str(path), "--target", "y")
    assert (code, shown) == (2, "")
    assert message in error
    assert (kind in ("text", "missing")) == ("--one-hot encodes words" in " ".join(error.split()))


def test_several_targets(tmp_path, capsys):
    (tmp_path / "t.csv").write_text(text())
    path = str(tmp_path / "t.csv")
    arguments = ("--target", "y", "--target", "a", "--hidden", "3", "--json")
    code, shown, _ = fit(capsys, path, *arguments)
    document = json.loads(shown)
    assert (code, document["target"], document["inputs"]) == (0, "y, a", ["b"])
    code, shown, _ = fit(capsys, path, *arguments, "--holdout", "0", "-o", str(tmp_path / "n.npz"))
    table = read_table(tmp_path / "t.csv", ["y", "a"])
    found = rn.load(tmp_path / "n.npz")(table.x)
    for k, row in enumerate(json.loads(shown)["errors"][0]["outputs"]):
        assert row["target"] == ("y", "a")[k]
        assert row["train_r2"] == pytest.approx(r2_score(table.y[:, k], found[:, k]), abs=1e-9)
        off = root_mean_squared_error(table.y[:, k], found[:, k])
        assert row["train_rmse"] == pytest.approx(off, rel=1e-6, abs=1e-9)
    code, _, error = fit(capsys, path, "--target", "y", "--target", "y")
    assert code == 2
    assert "the target 'y' is named twice" in error


@pytest.mark.parametrize(
    ("rows", "hidden", "note"),
    [
        (text().split("\n")[1:2] * 20, 3, "the target is constant"),
        (text().split("\n")[1:4] * 8, 5, "5 units were asked for, 1 placed"),
        (text().split("\n")[1:9], 50, "50 units were asked for, 4 placed"),
        ([f"{a}e150,{b}e-150,{y}e120" for (a, b), y in zip(X, Y, strict=True)], 3, ""),
    ],
    ids=["one row repeated", "three rows repeated", "more units than rows", "huge and tiny"],
)
def test_degenerate_rows_give_a_sensible_fit(tmp_path, capsys, rows, hidden, note):
    (tmp_path / "t.csv").write_text("\n".join(["a,b,y", *rows]) + "\n")
    path = str(tmp_path / "t.csv")
    code, shown, _ = fit(capsys, path, "--target", "y", "--hidden", str(hidden), "--holdout", "0")
    document = json.loads(shown)
    assert code == 0
    assert note in " ".join(document["notes"])
    fitted = document["errors"][0]
    values = [float(row.split(",")[2]) for row in rows]
    assert fitted["train_rmse"] <= np.std(values) + 1e-9 * np.abs(values).max()
