"""Reading and writing models: one thin file per format, chosen here by ending or type.

A model file is untrusted: no pickle is ever loaded, sizes are checked before memory is taken, and
what is wrong with a file is said in the package's own errors. Writing is atomic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from relunorm.errors import (
    MissingFileError,
    ModelFileError,
    UnsupportedFormatError,
    optional_packages,
)
from relunorm.examples import example_path
from relunorm.io.border import Model, accepts
from relunorm.network import Network
from relunorm.network.head import Head

DType = Literal["float32", "float64"]

#: One input may have this many entries.
MAX_AXIS = 1 << 24

#: File ending -> module and name of the reader of models, and of the writer; not every format that
#: is read has one.
READERS = {
    ".onnx": ("relunorm.io.onnx.read", "read_onnx"),
    ".npz": ("relunorm.io.npz", "read_npz"),
    ".safetensors": ("relunorm.io.archive", "read_safetensors"),
    ".pt2": ("relunorm.io.torch.read", "read_pt2"),
}
WRITERS = {
    ".onnx": ("relunorm.io.onnx.write", "write_onnx"),
    ".npz": ("relunorm.io.npz", "write_npz"),
    ".safetensors": ("relunorm.io.archive", "write_safetensors"),
    ".pt2": ("relunorm.io.torch.write", "write_pt2"),
}

#: First part of a class's module, and class names (of it or a base) -> reader of objects.
OBJECTS = (
    # Before torch: on its torch backend a Keras model is a torch module too.
    ("keras", {"Model"}, "relunorm.io.keras", "from_keras"),
    ("torch", {"Module", "ExportedProgram"}, "relunorm.io.torch.read", "from_torch"),
    ("onnx", {"ModelProto"}, "relunorm.io.onnx.read", "from_onnx"),
    ("sklearn", {"BaseEstimator"}, "relunorm.io.sklearn", "from_sklearn"),
)

#: Endings of torch checkpoints: read as state dicts, never as pickled objects.
_STATES = (".pt", ".pth", ".bin", ".ckpt")

_REFUSED = {
    (".pkl", ".pickle", ".joblib"): (
        "a pickle can run code when loaded, so it is never opened. Load it yourself and pass the "
        "object to relunorm.load"
    ),
    (".keras", ".h5", ".hdf5"): (
        "load it with keras.models.load_model and pass the model object to relunorm.load"
    ),
}


def load(source: Any, example: Any = None, *, architecture: Any = None) -> Network:
    """Read a network from a file or from a framework's own object.

    Args:
        source: a path (.onnx, .npz, .safetensors, .pt2), "example:moons" for a network that ships
            with the package, or a torch.nn.Module,
            torch.export.ExportedProgram, onnx.ModelProto, Keras model, fitted scikit-learn
            estimator (a perceptron or a linear model, alone or in a pipeline), or Network.
        example: where the model does not fix its input shape: the shape of one input without the
            batch axis, for example (1, 28, 28), or a batch of inputs.
        architecture: the torch.nn.Module that a state dict (.pt, .pth) belongs to.

    Returns:
        The network in float64, exact up to the rounding of folding affine operations together.
        Scaling in front is folded in, so inputs are in the model's own units. A softmax, sigmoid
        or the like at the end is kept in ``head``; the network computes what comes before it, and
        `Network.predict` what the model returns. The object passed in is not changed.

    Raises:
        RelunormError: one of the package's errors, naming the file and the place.
    """
    if isinstance(source, Network):
        return source
    if isinstance(source, str) and source.startswith("example:"):
        return _load_file(example_path(source.removeprefix("example:")), example)
    if isinstance(source, str | Path):
        path = Path(source)
        if path.suffix.lower() in _STATES:
            _check_file(path)
            read = _named("relunorm.io.torch.state", "read_state")
            return read(path, example=example, architecture=architecture)
        return _load_file(path, example)
    framework = framework_of(source)
    for package, _, module, function in OBJECTS:
        if package == framework:
            return _with_labels(_named(module, function)(source, example=example), source)
    kind = f"{type(source).__module__}.{type(source).__qualname__}".removeprefix("builtins.")
    hint = ""
    if isinstance(source, Mapping):
        hint = ". A state dict has no architecture: load it into its module and pass that"
    elif isinstance(source, list | tuple):
        hint = ". Weights alone make a network by relunorm.Network.from_weights(weights, biases)"
    raise UnsupportedFormatError(
        f"cannot read an object of type {kind}; pass a path, a torch.nn.Module or ExportedProgram, "
        "an onnx.ModelProto, a fitted scikit-learn estimator, a Keras model, or a Network" + hint
    )


def framework_of(source: Any) -> str:
    """The package whose object this is, as `OBJECTS` lists them; empty for anything else.

    >>> framework_of("model.onnx")
    ''
    """
    for package, names, _, _ in OBJECTS:
        for base in type(source).__mro__:
            if base.__module__.partition(".")[0] == package and base.__name__ in names:
                return package
    return ""


def _with_labels(network: Network, source: Any) -> Network:
    """The network with the class labels that an object carries as an attribute, if it does."""
    wanted = 2 if network.output_size == 1 else network.output_size
    for name in ("class_names", "classes"):
        labels = getattr(source, name, None)
        if network.head.classes or not isinstance(labels, list | tuple):
            continue
        plain = all(isinstance(label, str | int) for label in labels)
        if plain and len(labels) == len(set(map(str, labels))) == wanted:
            return network.replace(head=Head(network.head.steps, tuple(labels)))
    return network


@accepts("network")
def save(network: Model, path: str | Path, dtype: DType | None = None) -> None:
    """Write a network in the format that the path's ending names, atomically.

    Args:
        dtype: number type of the written weights. By default float64, except float32 for ONNX
            (what runtimes expect as input type).
    """
    path = Path(path)
    if path.suffix.lower() in (".keras", ".h5", ".hdf5"):
        raise UnsupportedFormatError(f"{path}: use relunorm.to_keras(network).save(path)")
    check_ending(path)
    if path.is_dir():
        raise UnsupportedFormatError(f"{path}: is a folder, expected a file to write")
    if not path.parent.is_dir():
        raise MissingFileError(path.parent, "folder")
    if dtype not in (None, "float32", "float64"):
        raise UnsupportedFormatError(f"dtype {dtype!r}: use float32 or float64")
    _named(*WRITERS[path.suffix.lower()])(network, path, dtype=dtype)


def check_ending(path: str | Path) -> None:
    """Raise `UnsupportedFormatError` unless `save` knows the path's ending."""
    suffix = Path(path).suffix.lower()
    if suffix not in WRITERS:
        raise UnsupportedFormatError(
            f"{path}: no network is written as {suffix!r}; the endings are {', '.join(WRITERS)}"
        )


def _load_file(path: Path, example: Any) -> Network:
    if path.is_dir():
        raise ModelFileError(
            f"{path}: is a folder, expected a model file; a TensorFlow SavedModel is converted by "
            "python -m tf2onnx.convert --saved-model FOLDER --output model.onnx"
        )
    reader = _reader(path)
    _check_file(path)
    network = _named(*reader)(path, example=example)
    if example is not None and input_shape(example, str(path)) != network.input_shape:
        raise UnsupportedFormatError(
            f"{path}: its inputs have shape {network.input_shape}, not the example's"
        )
    return network


def _check_file(path: Path) -> None:
    if "\0" in str(path):
        raise ModelFileError(f"{str(path)!r}: a path cannot hold a null character")
    if not path.exists():
        raise MissingFileError(path)
    if not path.is_file():
        raise ModelFileError(f"{path}: is not a regular file")
    if path.stat().st_size == 0:
        raise ModelFileError(f"{path}: the file is empty")


def _reader(path: Path) -> tuple[str, str]:
    suffix = path.suffix.lower()
    if suffix in READERS:
        return READERS[suffix]
    for endings, reason in _REFUSED.items():
        if suffix in endings:
            raise UnsupportedFormatError(f"{path}: {reason}")
    known = ", ".join(READERS)
    raise UnsupportedFormatError(f"{path}: unknown ending {suffix!r}; known are {known}")


def _named(module: str, function: str) -> Callable[..., Any]:
    with optional_packages():
        return getattr(import_module(module), function)


def input_shape(example: Any, what: str) -> tuple[int, ...]:
    """The shape of one input from `load`'s ``example`` argument.

    A sequence of ints is the shape itself; an array is a batch, whose first axis is dropped.
    """
    shape: tuple[Any, ...] = ()
    if isinstance(example, int):
        shape = (example,)
    elif len(getattr(example, "shape", ())) >= 2:
        shape = tuple(int(n) for n in example.shape[1:])
    elif isinstance(example, Sequence) and all(isinstance(n, int) for n in example):
        shape = tuple(example)
    if shape and all(1 <= n <= MAX_AXIS for n in shape) and math.prod(shape) <= MAX_AXIS:
        return shape
    raise UnsupportedFormatError(
        f"{what}: example must be the shape of one input, such as (1, 28, 28), or a batch of "
        f"inputs with the batch as first axis, with at most {MAX_AXIS:,} entries each"
    )


def one_shape(sizes: Sequence[int | None], example: Any, what: str) -> tuple[int, ...]:
    """The shape of one input: the sizes that a model fixes, those it leaves open (None) as in
    `load`'s ``example`` argument."""
    shown = ", ".join("?" if n is None else str(n) for n in sizes)
    if example is not None:
        wanted = input_shape(example, what)
        if len(wanted) == len(sizes) and all(
            n in (None, w) for n, w in zip(sizes, wanted, strict=True)
        ):
            return wanted
        raise UnsupportedFormatError(
            f"{what}: example says that one input has shape {wanted}, but the model was built "
            f"or exported for inputs of shape ({shown})"
        )
    if None in sizes:
        raise UnsupportedFormatError(
            f"{what}: one input has shape ({shown}), which leaves sizes open; pass the shape, for "
            "example relunorm.load(model, example=(1, 28, 28))"
        )
    return tuple(int(n or 0) for n in sizes)
