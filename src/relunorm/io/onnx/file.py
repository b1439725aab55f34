"""ONNX bytes from an untrusted file: parsed, weights as arrays, external data in its folder."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from onnx import numpy_helper

from relunorm.errors import ModelFileError

#: The key of a model's metadata that holds the columns of its table.
COLUMNS = "relunorm.columns"
_FLOATS = ("FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16")
_OTHERS = ("INT64", "INT32", "INT16", "INT8", "UINT64", "UINT32", "UINT16", "UINT8", "BOOL")


def parse(path: Path) -> onnx.ModelProto:
    """The model in a file, without its external data."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(path.read_bytes())
    except DecodeError as error:
        raise ModelFileError(f"{path}: not an ONNX file, or a truncated one ({error})") from None
    if not model.graph.node and not model.graph.output:
        raise ModelFileError(f"{path}: parses as ONNX but holds no graph")
    return model


def is_whole(path: Path) -> bool:
    """Whether a file holds all its weights, none of them lying in files beside it."""
    weights = parse(path).graph.initializer
    return not any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in weights)


def without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without its initializers; the argument is emptied.

    Protobuf keeps all of a message in one arena, so only a new message lets the old weights go.
    """
    model.graph.ClearField("initializer")
    return onnx.ModelProto.FromString(model.SerializeToString())


def tensor_array(
    tensor: onnx.TensorProto, origin: str, folder: Path | None, *, text: bool = False
) -> NDArray[Any]:
    """The numbers of a tensor, checked against its claimed shape before memory is taken.

    Args:
        folder: where external data may lie; None refuses external data.
        text: whether a tensor of class labels is accepted too.
    """
    place = f"{origin}: tensor {tensor.name!r}"
    kind = type_name(tensor.data_type)
    if text and kind == "STRING" and tensor.dims == [len(tensor.string_data)]:
        return np.array([label.decode("utf-8", "replace") for label in tensor.string_data])
    if kind not in (*_FLOATS, *_OTHERS):
        raise ModelFileError(f"{place}: element type {kind}, expected numbers")
    if any(n < 0 for n in tensor.dims):
        raise ModelFileError(f"{place}: negative dimension in {list(tensor.dims)}")
    try:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            return _external(tensor, place, folder)
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError, MemoryError, OverflowError, OSError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(
            f"{place}: its data do not fill the shape {list(tensor.dims)} it claims ({error})"
        ) from None


def _external(tensor: onnx.TensorProto, place: str, folder: Path | None) -> NDArray[Any]:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise ModelFileError(
            f"{place}: its data lie in the file {location!r}; pass the path of the model instead"
        )
    # Resolve links first: what counts is the file that would be opened.
    root = Path(os.path.realpath(folder))
    target = Path(os.path.realpath(root / location))
    if not location or os.path.isabs(location) or not target.is_relative_to(root):
        raise ModelFileError(
            f"{place}: external data {location!r} leaves the model's folder; refused"
        )
    if not target.is_file():
        raise ModelFileError(f"{place}: external data file {location!r} does not exist")
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
    offset, size = int(entries.get("offset", 0)), math.prod(tensor.dims) * dtype.itemsize
    length = int(entries.get("length", size))
    if offset < 0 or length != size or offset + length > target.stat().st_size:
        raise ModelFileError(
            f"{place}: shape {list(tensor.dims)} needs {size:,} bytes; {location!r} does not hold "
            f"{length:,} at offset {offset:,}"
        )
    count = math.prod(tensor.dims)
    return np.fromfile(target, dtype=dtype, count=count, offset=offset).reshape(tensor.dims)


def type_name(number: int) -> str:
    """What ONNX calls a type of elements."""
    try:
        return onnx.TensorProto.DataType.Name(number)  # type: ignore[arg-type]
    except ValueError:
        return f"number {number}"
