"""Tables whose target column holds text: numbered where it is allowed, refused where it is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from relunorm.errors import InvalidInputError, TableNote
from relunorm.io.domains import parse_domain
from relunorm.io.table import Table, read_table
from relunorm.io.table.mixed import read_mixed
from relunorm.network.columns import Column, arranged

ROWS = 'a,kind,b\n1,"z, last",2\n3,first,4\ntrue,first,6\n'


def csv_file(folder: Path, content: str = ROWS) -> Path:
    path = folder / "t.csv"
    path.write_text(content)
    return path


def npz_file(folder: Path) -> Path:
    path = folder / "t.npz"
    x = np.array([[1.0, 2], [3, 4], [1, 6]])
    np.savez(path, x=x, y=np.array(["z, last", "first", "first"]), target_name="kind")
    return path


def bytes_file(folder: Path) -> Path:
    path = folder / "t.npz"
    x = np.array([[1.0, 2], [3, 4], [1, 6]])
    np.savez(path, x=x, y=np.array([b"z, last", b"first", b"first"]), target_name="kind")
    return path


def parquet_file(folder: Path) -> Path:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = folder / "t.parquet"
    kind = arrow.array(["z, last", "first", "first"]).dictionary_encode()
    parquet.write_table(arrow.table({"a": [1, 3, 1], "kind": kind, "b": [2.0, 4, 6]}), path)
    return path


@pytest.mark.parametrize("make", [csv_file, npz_file, bytes_file, parquet_file])
def test_the_labels_come_back(make, tmp_path: Path) -> None:
    path = make(tmp_path)
    table = read_table(path, "kind", 2, text=True)
    assert table.classes == ("first", "z, last")
    assert table.y is not None
    assert table.y.tolist() == [1, 0, 0]
    assert table.labels is not None
    assert table.labels.tolist() == ["z, last", "first", "first"]
    assert table.x.tolist() == [[1, 2], [3, 4], [1, 6]]
    with pytest.raises(InvalidInputError):
        read_table(path, "kind", 2)


def test_a_column_of_numbers_stays_one(tmp_path: Path) -> None:
    path = csv_file(tmp_path, "a,y\n1,5\n2,true\n")
    table = read_table(path, "y", text=True)
    assert table.classes == ()
    assert table.labels is table.y
    assert isinstance(table, Table)
    assert table.y is not None
    assert table.y.tolist() == [5, 1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,kind\n1,x\n2,\n", "line 3, column 'kind': an empty cell"),
        ("a,kind\n1,x\nred,y\n", "line 3, column 'a': 'red' is not a number"),
        ("a,kind\n1,x\n2,y,z\n", "line 3 has 3 cells, expected 2"),
        ("a,kind\n1,x\n2,nan\n", "column 'kind'"),
    ],
)
def test_faults_are_named(content: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=message):
        read_table(csv_file(tmp_path, content), "kind", text=True)


def test_a_domain_leaves_the_labels_out(tmp_path: Path) -> None:
    box = parse_domain(f"data:{csv_file(tmp_path)}?target=kind", 2)
    assert box.bounding_box.lo.tolist() == [1, 2]
    assert box.bounding_box.hi.tolist() == [3, 6]


@pytest.mark.parametrize("make", [csv_file, parquet_file])
@pytest.mark.parametrize("text", [False, True])
def test_a_misspelled_target_is_met_before_the_text_it_meant(
    make, text: bool, tmp_path: Path
) -> None:
    path = make(tmp_path)
    with pytest.raises(
        InvalidInputError, match=r"no column 'Kind'; the columns are a, kind, b. Did you .* 'kind'"
    ):
        read_table(path, "Kind", 2, text=text)


@pytest.mark.parametrize("make", [csv_file, parquet_file])
def test_without_a_target_text_is_met_with_a_word_about_it(make, tmp_path: Path) -> None:
    with pytest.raises(
        InvalidInputError, match=r"column 'kind'.*if it is the target.*--target kind"
    ):
        read_table(make(tmp_path), None, 2, text=True)


def test_words_and_gaps_of_a_parquet_file_are_read_as_those_of_a_text(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    hue = arrow.array(["red", "blue", None, "red"]).dictionary_encode()
    columns = {"n": [1, None, 3, 4], "hue": hue, "up": [True, False, True, True]}
    y = arrow.array([0.1, 0.25, 1e-300, 7.0])
    parquet.write_table(arrow.table({**columns, "y": y}), tmp_path / "t.parquet")
    lines = ("n,hue,up,y", "1,red,True,0.1", ",blue,False,0.25", "3,,True,1e-300", "4,red,True,7.0")
    (tmp_path / "t.csv").write_text("\n".join(lines))
    paths = tmp_path / "t.csv", tmp_path / "t.parquet"
    text, found = (read_mixed(path, "y", one_hot=True, gaps=True) for path in paths)
    assert found.names == ("n", "hue=blue", "hue=red", "up")
    assert found.x[0].tolist() == [1, 0, 1, 1]
    assert np.isnan(found.x[1, 0])
    assert found.x[2].tolist() == [3, 0, 0, 1]
    filled = tuple(replace(c, fill=2.0 if not c.words else 0.0) for c in found.columns)
    again = [read_table(path, "y", columns=filled) for path in paths]
    for a, b in ((text, found), again):
        np.testing.assert_array_equal(a.x, b.x)
        np.testing.assert_array_equal(a.y, b.y)
        assert (a.names, a.columns) == (b.names, b.columns)
    assert again[1].x[1, 0] == 2


LINES = ("id,a,u,b,v,when", "k1,1,10,2,0.5,2024-01-31", "k2,3,20,4,0.25,2024-02-01")
MANY = {"id": ["k1", "k2"], "a": [1, 3], "u": [10, 20], "b": [2, 4], "v": [0.5, 0.25]}


def many_csv(folder: Path) -> Path:
    return csv_file(folder, "\n".join(LINES) + "\n")


def many_parquet(folder: Path) -> Path:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    when = arrow.array(np.array(["2024-01-31", "2024-02-01"], dtype="datetime64[s]"))
    parquet.write_table(arrow.table({**MANY, "when": when}), folder / "t.parquet")
    return folder / "t.parquet"


@pytest.mark.parametrize("make", [many_csv, many_parquet])
def test_several_targets_and_columns_left_out(make, tmp_path: Path) -> None:
    path = make(tmp_path)
    out = ["id", "when"]
    table = read_table(path, ["v", "u"], 2, text=True, drop=out)
    assert (table.names, table.target) == (("a", "b"), "v, u")
    assert table.y is not None
    assert table.y.tolist() == [[0.5, 10], [0.25, 20]]
    assert table.x.tolist() == [[1, 2], [3, 4]]
    mixed = read_mixed(path, ["v", "u"], one_hot=True, gaps=True, drop=out)
    assert mixed.y is not None
    assert (mixed.y.tolist(), mixed.x.tolist()) == (table.y.tolist(), table.x.tolist())
    known = read_table(path, ["v", "u"], 2, columns=(Column("b"), Column("a")))
    assert known.y is not None
    assert (known.y.tolist(), known.x.tolist()) == (table.y.tolist(), [[2, 1], [4, 3]])
    box = parse_domain(f"data:{path}?target=v&target=u&drop=id&drop=when", 2).bounding_box
    assert (box.lo.tolist(), box.hi.tolist()) == ([1, 2], [3, 4])
    with pytest.raises(InvalidInputError, match=r"no column 'wen'.* Did you mean 'when'"):
        read_table(path, "v", drop=["wen"])
    told = r"3 columns \(a, u, b\) beside the target 'v', expected 2; .*--drop"
    with pytest.raises(InvalidInputError, match=told):
        read_table(path, "v", 2, drop=out)


def test_columns_of_an_array_are_left_out(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", x=[[1.0, 2, 3]], y=[4.0], feature_names=["a", "b", "c"])
    table = read_table(tmp_path / "t.npz", drop=["b"])
    assert (table.x.tolist(), table.names) == ([[1, 3]], ("a", "c"))


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        (["1,002", "2,340"], "a number written as text; write plain numbers"),
        (["10%", "7.5%"], "a number written as text"),
        (["$12", "-$1,300.50"], "a number written as text"),
        (["2024-01-31", "2024-02-01 10:30"], "a date or a time; write numbers, such as days"),
        (["31/1/2024", "1/2/2024"], "a date or a time"),
        (["red", "blue"], "2 different words such as 'blue'; leave .*--drop c, or use --one-hot$"),
        ([f"k{k}" for k in range(150)], "150 different words such as 'k0'; leave .*--drop c$"),
        (["", "NA"], "column 'c' is empty; leave it out: --drop c"),
    ],
)
def test_what_a_column_without_numbers_may_be(cells: list[str], told: str, tmp_path: Path) -> None:
    rows = "".join(f'"{cell}",{k}\n' for k, cell in enumerate(cells))
    path = csv_file(tmp_path, "c,y\n" + rows)
    with pytest.raises(InvalidInputError, match=told):
        read_mixed(path, "y", one_hot=False, gaps=True)


def test_a_name_that_an_exporter_changed_is_found_if_only_one_can_be_meant(tmp_path: Path) -> None:
    path = csv_file(tmp_path, "p/q,r s,y\n1,2,3\n4,5,6\n")
    columns = (Column("r_s"), Column("p_q"))
    with pytest.warns(TableNote, match="'r s' for 'r_s', 'p/q' for 'p_q'"):
        table = read_table(path, "y", 2, columns=columns)
    assert table.x.tolist() == [[2, 1], [5, 4]]
    path = csv_file(tmp_path, "p/q,p q,y\n1,2,3\n")
    with pytest.raises(InvalidInputError, match="no column 'p_q'"):
        read_table(path, "y", columns=(Column("p_q"),))


def test_a_name_in_another_case_is_found_if_only_one_can_be_meant(tmp_path: Path) -> None:
    path = csv_file(tmp_path, "AGE,Size,Y\n1,2,3\n4,5,6\n")
    columns = (Column("size "), Column("age"))
    with pytest.warns(TableNote, match="'Size' for 'size ', 'AGE' for 'age'"):
        table = read_table(path, "Y", 2, columns=columns)
    assert table.x.tolist() == [[2, 1], [5, 4]]
    with pytest.raises(InvalidInputError, match="no column 'y'"):  # the target is no input
        read_table(path, "Y", columns=(Column("AGE"), Column("y")))
    path = csv_file(tmp_path, "Age,AGE,y\n1,2,3\n")
    with pytest.raises(InvalidInputError, match="no column 'age'"):
        read_table(path, "y", columns=(Column("age"),))
    # a name that only an exporter changed goes before one in another case
    path = csv_file(tmp_path, "p/q,P_Q,y\n1,2,3\n")
    with pytest.warns(TableNote, match="'p/q' for 'p_q'"):
        assert read_table(path, "y", columns=(Column("p_q"),)).x.tolist() == [[1]]


def test_the_columns_of_a_frame_are_found_in_another_case() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({" Width": [1.0, 2.0], "height": [3.0, 4.0]})
    with pytest.warns(TableNote, match="' Width' for 'width'"):
        found = arranged(frame, (Column("height"), Column("width")))
    assert found.to_numpy().tolist() == [[3, 1], [4, 2]]


def test_a_column_without_a_name_is_dropped_by_the_one_pandas_gives_it(tmp_path: Path) -> None:
    """What to_csv writes of a DataFrame with its index."""
    path = csv_file(tmp_path, ",a,y\n0,1,2\n1,3,4\n")
    with pytest.raises(InvalidInputError, match=r"column 1 has no name.*--drop 'Unnamed: 0'"):
        read_table(path, "y")
    assert read_table(path, "y", drop=["Unnamed: 0"]).x.tolist() == [[1], [3]]
    path = csv_file(tmp_path, "a,,y,\n0,1,2,3\n1,3,4,5\n")
    with pytest.raises(InvalidInputError, match=r"column 4 has no name.*--drop 'Unnamed: 3'"):
        read_table(path, "y", drop=["Unnamed: 1"])
    dropped = ["Unnamed: 1", "Unnamed: 3"]
    assert read_table(path, "y", drop=dropped).x.tolist() == [[0], [1]]
