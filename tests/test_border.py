"""Every public function takes what `load` takes, and a domain in any form, or says so clearly."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import relunorm as rn
from relunorm.errors import InvalidDomainError, RelunormError
from relunorm.io.border import as_domain, as_network
from relunorm.report.case import make_case

RNG = np.random.default_rng(0)
NET = rn.Network.from_weights(
    [RNG.normal(size=(4, 2)), RNG.normal(size=(2, 4))], [RNG.normal(size=4), RNG.normal(size=2)]
)
ROWS = np.array([[-1.0, -1.0], [0.2, 0.1], [1.0, 1.0]])
BOX = rn.Box.cube(2)
PROPERTY = """
(declare-const X_0 Real) (declare-const X_1 Real) (declare-const Y_0 Real) (declare-const Y_1 Real)
(assert (>= X_0 -1)) (assert (<= X_0 1)) (assert (>= X_1 -1)) (assert (<= X_1 1))
(assert (>= Y_0 1000))
"""

#: How to call every public function that asks something of a model: (model, domain) -> result.
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "along": lambda m, d: rn.along(m, ROWS[0], ROWS[1]),
    "certify": lambda m, d: rn.certify(m, ROWS[1:2], radius=1e-3, valid=d),
    "check": lambda m, d: rn.check(m, _property()),
    "compare": lambda m, d: rn.compare(m, NET, d),
    "decide": lambda m, d: rn.decide(m, d, [[-1.0, 0.0]], [-1e4]),
    "diagnose": lambda m, d: rn.diagnose(m, ROWS, domain=d),
    "fingerprint": lambda m, d: rn.fingerprint(m, d),
    "geometry": lambda m, d: rn.geometry(m, ROWS),
    "lipschitz": lambda m, d: rn.lipschitz(m, d),
    "maximize": lambda m, d: rn.maximize(m, d, [1.0, 0.0]),
    "never_smallest": lambda m, d: rn.never_smallest(m, d, 0),
    "normalize": lambda m, d: rn.normalize(m, "minimal", d),
    "on_plane": lambda m, d: rn.on_plane(m, ROWS[1], [1.0, 0.0], [0.0, 1.0], domain=d),
    "region_at": lambda m, d: rn.region_at(m, ROWS[1], d),
    "regions": lambda m, d: rn.regions(m, d),
    "report": lambda m, d: rn.report(m, ROWS, domain=d, time_limit=0.3),
    "save": lambda m, d: rn.save(m, _target()),
    "sensitivity": lambda m, d: rn.sensitivity(m, d),
    "theorem6": lambda m, d: rn.theorem6(m),
    "to_c": lambda m, d: rn.to_c(m, d, floats=True, parts=1, samples=20),
    "to_keras": lambda m, d: rn.to_keras(m),
    "to_onnx": lambda m, d: rn.to_onnx(m),
    "to_sklearn": lambda m, d: rn.to_sklearn(m),
    "to_torch": lambda m, d: rn.to_torch(m),
    "verify": lambda m, d: rn.verify(_certificate(), m, NET, d),
}
#: Those that look at a domain.
PLACES = ("certify", "compare", "decide", "diagnose", "fingerprint", "lipschitz", "maximize")
PLACES += ("never_smallest", "normalize", "on_plane", "region_at", "regions", "report")
PLACES += ("sensitivity", "to_c", "verify")
#: Those for which no domain at all is an error.
NEEDED = ("compare", "decide", "maximize", "never_smallest", "sensitivity", "to_c")
#: Public functions that ask nothing of a model.
OTHERS = {"load", "load_regions", "warm_up", "sweep"}
#: Those that take what their framework has, when it is torch's: activations are its own.
FROM_MODULE = {"geometry"}

_FOLDER: list[Path] = []


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path) -> None:
    _FOLDER[:] = [tmp_path]


def _target() -> Path:
    return _FOLDER[0] / "saved.npz"


def _property() -> Path:
    path = _FOLDER[0] / "property.vnnlib"
    path.write_text(PROPERTY)
    return path


def _certificate() -> rn.Certificate:
    found = rn.compare(NET, NET.replace(origin="again"), BOX).certificate
    return found if found is not None else rn.normalize(NET, "unit", BOX).certificate  # type: ignore[return-value]


def models() -> dict[str, Any]:
    """The same network in every form that is at hand."""
    forms: dict[str, Any] = {"network": NET}
    path = _FOLDER[0] / "model.npz"
    rn.save(NET, path)
    forms |= {"path": path, "text": str(path), "estimator": rn.to_sklearn(NET)}
    for name, convert in (("module", "to_torch"), ("proto", "to_onnx")):
        try:
            forms[name] = getattr(rn, convert)(NET)
        except ImportError:
            continue
    return forms


def test_the_list_of_calls_is_complete() -> None:
    asked = set()
    for name in rn._HOME:
        value = getattr(rn, name)
        function = not inspect.isclass(value) and callable(value)
        if function and (not isinstance(value, ModuleType) or name in ("regions", "lipschitz")):
            asked.add(name)
    asked |= {"report"}
    assert asked - OTHERS - {"nn", "dying", "batchnorm"} == set(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_models_in_every_form(name: str) -> None:
    pytest.importorskip("keras", reason="Keras is not installed") if name == "to_keras" else None
    for form, model in models().items():
        if form == "module" and name not in ("certify", "compare", "maximize", "save"):
            continue  # exporting a module takes a while, and the border is one
        CALLS[name](model, BOX), form


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("wrong", [None, 3, object(), {"a": 1}, "missing.txt", np.eye(2)])
def test_what_is_no_model_is_told(name: str, wrong: Any) -> None:
    if name == "geometry" and not isinstance(wrong, int | str):
        pytest.skip("arrays and mappings are activations to geometry")
    with pytest.raises(RelunormError) as caught:
        CALLS[name](wrong, BOX)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", PLACES)
def test_domains_in_every_form(name: str) -> None:
    places = ((-1, 1), [[-1, -1], [1, 1]], (np.full(2, -1.0), 1.0), "box:-1,1", ROWS)
    for place in places:
        CALLS[name](NET, place)


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("wrong", [3, "everywhere", object(), (1, 2, 3), np.eye(3), ("a", "b")])
def test_what_is_no_domain_is_told(name: str, wrong: Any) -> None:
    with pytest.raises(InvalidDomainError) as caught:
        CALLS[name](NET, wrong)
    assert "box:-1,1" in str(caught.value)


@pytest.mark.parametrize("name", NEEDED)
def test_a_domain_that_is_needed_is_asked_for(name: str) -> None:
    with pytest.raises(InvalidDomainError, match="domain is None"):
        CALLS[name](NET, None)


def test_every_form_means_the_same() -> None:
    forms = ((-1, 1), ([-1, -1], [1, 1]), "box:-1,1", ROWS, ROWS.tolist(), BOX)
    assert {repr(as_domain(form, NET)) for form in forms} == {"Box([-1, 1]^2)"}
    assert {as_network(model).digest for model in models().values() if model is not None} >= {
        NET.digest
    }


def test_images_have_domains_of_their_own_shape() -> None:
    image = NET.replace(input_shape=(1, 2))
    assert repr(as_domain((np.zeros((1, 2)), 1), image)) == "Box([0, 1]^2)"
    assert repr(as_domain(ROWS.reshape(3, 1, 2), image)) == "Box([-1, 1]^2)"


def test_sparse_rows_are_rows() -> None:
    """As an encoder gives them; the border, the network and a box take them alike."""
    rows = np.array([[0.0, 0.75], [0.5, 0.0], [0.0, 0.25]])
    for sparse in (sp.csr_matrix(rows), sp.coo_array(rows)):
        assert NET(sparse).tolist() == NET(rows).tolist()
        assert repr(rn.Box.around(sparse)) == repr(rn.Box.around(rows))
        assert repr(as_domain(sparse, NET)) == repr(as_domain(rows, NET))
        asked = [rn.certify(NET, x, 1e-9, delta=1.0).counts for x in (sparse, rows)]
        assert asked[0] == asked[1]
        case = make_case(NET, sparse, [1.0, 2.0, 3.0], None, name="")
        assert case.x is not None
        assert case.x.tolist() == rows.tolist()


def test_rows_tell_the_shape_that_a_module_leaves_open() -> None:
    torch = pytest.importorskip("torch")
    nn = torch.nn
    module = nn.Sequential(nn.Conv2d(1, 1, 2), nn.ReLU(), nn.Flatten(), nn.Linear(4, 2))
    images = RNG.normal(size=(2, 1, 3, 3))
    assert rn.certify(module, images, radius=0.0).counts["robust"] == 2
    assert rn.certify(module, images[:0], radius=0.0).rows == ()
    with pytest.raises(RelunormError, match="at least one row"):
        rn.diagnose(module, images[:0])
    with pytest.raises(RelunormError, match="example="):
        rn.lipschitz(module, (-1, 1))


def test_another_model_tells_the_shape_that_a_module_leaves_open() -> None:
    nn = pytest.importorskip("torch.nn")
    convolve = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2)).eval()
    network = rn.load(convolve, (1, 4, 4))
    for pair in ((convolve, network), (network, convolve)):
        assert rn.compare(*pair, (0, 1)).verdict == "equal"
    with pytest.raises(RelunormError, match="example="):
        rn.compare(convolve, convolve, (0, 1))
    with pytest.raises(RelunormError, match="example="):
        rn.compare(convolve, NET, (0, 1))


def test_signatures_stay_readable() -> None:
    for name in CALLS:
        value = getattr(rn, name)
        function = value if inspect.isfunction(value) else None
        if function is not None:
            assert "args" not in inspect.signature(function).parameters, name
            assert function.__doc__
