"""What a sweep does in one process: rows, keys, seeds, failures, limits."""

from __future__ import annotations

import importlib
import json
import math
import sys
from pathlib import Path

import joblib
import numpy as np
import pytest
import sweep_functions
from hypothesis import given
from hypothesis import strategies as st
from sweep_functions import RUNS, change, measure, slow

import relunorm as rn
from relunorm.clock import Progress
from relunorm.errors import InvalidInputError, MissingDependencyError
from relunorm.sweep.function import source_version
from relunorm.sweep.record import dumps, loads

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def same(a, b) -> bool:
    """Equality in which NaN is NaN, 0.0 is not -0.0 and 1 is not 1.0."""
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return type(a) is type(b) and repr(a) == repr(b)


@given(JSON)
def test_values_come_back_as_they_were(value) -> None:
    text = dumps(value, "value")
    assert same(loads(text), value)
    json.loads(text, parse_constant=pytest.fail)  # strict JSON: no NaN, no Infinity


def test_values_that_are_not_json_are_refused_by_place() -> None:
    assert dumps([np.int8(3), np.float32(0.1), np.bool_(True), (1,)], "x") == (
        "[3,0.10000000149011612,true,[1]]"
    )
    loop: list = []
    loop.append(loop)
    for value, message in (
        ({"a": [1, {2}]}, r"x\['a'\]\[1\] is a set"),
        (np.zeros(2), r"ndarray.*use its tolist\(\)"),
        ({1: 2}, "keys must be text"),
        ({"$float": 1}, "marks NaN"),
        (loop, "nested more than 32 deep, or contains itself"),
        ("\ud800", "surrogate"),
        (10**5000, "x: "),
        (np.longdouble(1), "longdouble"),
        (b"a", "bytes"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            dumps(value, "x")


def test_rows_stand_in_the_order_of_the_runs() -> None:
    found = rn.sweep(measure, [*RUNS, RUNS[0]])
    assert [(row["a"], row["b"]) for row in found.table()] == [(r["a"], r["b"]) for r in RUNS]
    assert (len(found), found.total, found.complete, len(found.failed)) == (8, 8, True, 2)
    assert found.failed[0].message == "ValueError: a is 3 (sweep_functions.py:17)"
    done = found.runs[0]
    assert done.result is not None
    assert measure(**done.parameters)["total"] == done.result["total"]
    assert math.isnan(done.result["limit"])
    assert "2 failed" in repr(found)
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert document["schema"] == "relunorm.sweep/1"
    assert document["rows"][2]["limit"] == "inf"


def test_seeds_come_from_the_parameters_alone() -> None:
    first = {r.text for r in rn.sweep(measure, RUNS).runs}
    assert first == {r.text for r in rn.sweep(measure, RUNS[::-1], version="other").runs}
    seeds = {r.parameters["random_state"] for r in rn.sweep(measure, RUNS).runs}
    assert len(seeds) == len(RUNS)
    assert rn.sweep(measure, [{"a": 1, "random_state": 5}]).runs[0].parameters["random_state"] == 5
    shared = rn.sweep(measure, [{"a": 1}], shared={"random_state": 5})
    assert "random_state" not in shared.runs[0].parameters


def test_the_store_spares_what_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "s.sqlite"
    first = rn.sweep(measure, RUNS[:5], store=store)
    again = rn.sweep(measure, RUNS, store=store)
    assert (first.resumed, again.resumed) == (0, 5)
    assert again.runs == rn.sweep(measure, RUNS).runs
    assert rn.sweep(measure, RUNS, store=store, retry_failed=True).resumed == 6
    assert rn.sweep(measure, RUNS, store=store, version="2").resumed == 0
    assert rn.sweep(measure, RUNS, store=store, shared={}).resumed == 8
    monkeypatch.setattr("relunorm.__version__", "99")
    assert rn.sweep(measure, RUNS, store=store).resumed == 0


def test_an_edit_of_the_module_counts_as_new_code(tmp_path: Path) -> None:
    from relunorm.sweep.function import script_function

    script, store = tmp_path / "job.py", tmp_path / "s.sqlite"
    for text, resumed in (("1", 0), ("1", 1), ("2", 0)):
        script.write_text(f"def f(a):\n    return {{'y': {text}}}\n")
        found = rn.sweep(script_function(f"{script}:f"), [{"a": 1}], store=store)
        assert found.resumed == resumed
        assert found.function == "job:f"
    with rn.Store(store) as opened:
        assert sorted(r.result["y"] for r in opened.runs() if r.result) == [1, 2]


def test_an_edit_of_any_file_of_a_package_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "swept_package" / "inner"
    inner.mkdir(parents=True)
    (inner.parent / "__init__.py").touch()
    (inner / "deep.py").write_text("a = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    package = importlib.import_module("swept_package")
    before = source_version(package)
    (inner / "deep.py").write_text("a = 2\n")
    changed = source_version(package)
    (inner / "deep.py").rename(inner / "other.py")
    assert len({before, changed, source_version(package)}) == 3


def test_shared_arguments_are_part_of_the_key_and_fresh_every_time(tmp_path: Path) -> None:
    store, net = tmp_path / "s.sqlite", rn.load("example:moons")
    items = [1, 2]
    for shared, resumed in (({"items": items}, 0), ({"items": [1, 2]}, 1), ({"items": [7]}, 0)):
        found = rn.sweep(change, [{}], shared=shared, store=store)
        assert found.resumed == resumed
    assert items == [1, 2]
    from relunorm.sweep.function import digest

    assert (
        digest(net, "x")
        == digest(net.replace(), "x")
        != digest(net.folded().layers[0].affine.bias, "x")
    )
    assert digest(np.zeros(2), "x") != digest(np.zeros((2, 1)), "x")
    with pytest.raises(InvalidInputError, match="attribute 'digest'"):
        rn.sweep(change, [{}], shared={"items": object()}, store=store)
    with pytest.raises(InvalidInputError, match="array of Python objects"):
        rn.sweep(change, [{}], shared={"items": np.array([object()])}, store=store)
    with pytest.raises(InvalidInputError, match="both a parameter"):
        rn.sweep(change, [{"items": []}], shared={"items": []})


def test_functions_without_a_telling_name_are_not_stored(tmp_path: Path) -> None:
    assert rn.sweep(lambda x: {"y": x}, [{"x": 1}]).table()[0]["y"] == 1
    for function in (lambda x: {}, sweep_functions.Path("a").joinpath):
        with pytest.raises(InvalidInputError, match="its name does not say"):
            rn.sweep(function, [{"x": 1}], store=tmp_path / "s.sqlite")
    assert not (tmp_path / "s.sqlite").exists()


def test_what_is_not_a_dict_of_values_is_a_failed_run() -> None:
    found = rn.sweep(lambda x: {"a": [x], "b": {1}, "c": 3}[x], [{"x": k} for k in "abc"])
    assert [run.message.split(":")[0] for run in found.failed] == [
        "relunorm.errors.InvalidInputError"
    ] * 3
    leaving = rn.sweep(lambda code: sys.exit(code), [{"code": 3}])
    assert str(leaving.failed[0].message).startswith("SystemExit: 3 (")
    odd = rn.sweep(joblib.cpu_count, [{"x": 1}])
    assert "unexpected keyword" in str(odd.failed[0].message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "spark"}, "backend 'spark' is not known; use sequential"),
        ({"scheduler": "tcp://x:1"}, "needs backend='dask' or 'ray'"),
        ({"workers": 0}, "expected at least 1"),
        ({"time_limit": -1}, "expected a number of seconds of at least 0"),
    ],
)
def test_bad_arguments(options, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        rn.sweep(slow, [{"i": 1}], **options)


def test_bad_runs() -> None:
    with pytest.raises(InvalidInputError, match="expected a dict of parameters"):
        rn.sweep(slow, [3])  # type: ignore[list-item]
    with pytest.raises(InvalidInputError, match="cannot be called"):
        rn.sweep(3, [])  # type: ignore[arg-type]
    empty = rn.sweep(slow, [])
    assert (len(empty), empty.complete, empty.table()) == (0, True, [])


@pytest.mark.parametrize(("backend", "module"), [("dask", "distributed"), ("ray", "ray")])
def test_a_missing_package_is_named(
    backend: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependencyError, match=rf"pip install 'relunorm\[{backend}\]'"):
        rn.sweep(slow, [{"i": 1}], backend=backend)


def test_progress_and_time_left() -> None:
    told: list[Progress] = []
    found = rn.sweep(measure, RUNS, progress=told.append)
    assert [at.done for at in told] == list(range(9))
    assert told[0].facts["latest"] is None
    assert {at.facts["latest"] for at in told[1:]} == set(found.runs)
    assert (told[-1].total, told[-1].facts["failed"], told[-1].left) == (8, 2, 0.0)
    assert told[0].left is None


@pytest.mark.parametrize("backend", ["sequential", "threading"])
def test_limits_and_interrupts_keep_what_is_finished(backend: str, tmp_path: Path) -> None:
    runs = [{"i": i, "seconds": 0.05} for i in range(40)]
    store = tmp_path / "s.sqlite"
    some = rn.sweep(slow, runs, time_limit=0.2, backend=backend, workers=2, store=store)
    assert 0 < len(some) < 40
    assert (some.stopped, some.complete) == ("time limit", False)

    def stop(at: Progress) -> None:
        if at.done >= len(some) + 2:
            raise KeyboardInterrupt

    more = rn.sweep(slow, runs, progress=stop, backend=backend, workers=2, store=store)
    assert (more.resumed, more.stopped) == (len(some), "interrupted")
    assert len(some) < len(more) < 40
    quick = [{**run, "seconds": 0.0} for run in runs]
    assert rn.sweep(slow, quick, time_limit=60).complete


def test_an_ambient_backend_is_used() -> None:
    with joblib.parallel_config(backend="threading", n_jobs=2):
        assert rn.sweep(measure, RUNS).runs == rn.sweep(measure, RUNS, backend="sequential").runs
