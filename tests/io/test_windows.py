"""Convolution and pooling matrices against torch's own operations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from relunorm.errors import InvalidNetworkError
from relunorm.io.graph.lower import Lowering
from relunorm.io.graph.windows import convolution, recover_convolution, sliding_windows
from relunorm.network.structure import Geometry


@st.composite
def geometries(draw: st.DrawFn) -> dict:  # type: ignore[type-arg]
    axes = draw(st.integers(1, 2))
    kernel = [draw(st.integers(1, 3)) for _ in range(axes)]
    dilation = [draw(st.integers(1, 2)) for _ in range(axes)]
    pads = [draw(st.integers(0, 2)) for _ in range(axes)]
    needed = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    return {
        "kernel": kernel,
        "dilation": dilation,
        "stride": [draw(st.integers(1, 3)) for _ in range(axes)],
        "pads": pads,
        "spatial": [n + draw(st.integers(0, 5)) for n in needed],
        "groups": draw(st.sampled_from([1, 1, 2])),
        "per_group": draw(st.integers(1, 2)),
        "outs": draw(st.integers(1, 2)),
        "seed": draw(st.integers(0, 2**32 - 1)),
    }


@given(geometries())
def test_convolution_matrix_equals_torch(g: dict) -> None:  # type: ignore[type-arg]
    rng = np.random.default_rng(g["seed"])
    channels, outs = g["per_group"] * g["groups"], g["outs"] * g["groups"]
    weight = rng.normal(size=(outs, g["per_group"], *g["kernel"]))
    pads = [(p, p) for p in g["pads"]]
    geometry = Geometry(g["kernel"], g["stride"], pads, g["dilation"])
    matrix, shape = convolution(weight, (channels, *g["spatial"]), geometry, g["groups"])
    x = rng.normal(size=(1, channels, *g["spatial"]))
    conv = F.conv1d if len(g["kernel"]) == 1 else F.conv2d
    expected = conv(
        torch.from_numpy(x),
        torch.from_numpy(weight),
        stride=g["stride"],
        padding=g["pads"],
        dilation=g["dilation"],
        groups=g["groups"],
    ).numpy()[0]
    assert shape == expected.shape
    np.testing.assert_allclose((matrix @ x.ravel()).reshape(shape), expected, atol=1e-12)
    assert matrix.has_sorted_indices
    found = recover_convolution(matrix, (channels, *g["spatial"]), shape)
    if found is not None:  # what is found is always the very same matrix
        again, _ = convolution(
            found.weight, (channels, *g["spatial"]), found.geometry, found.groups
        )
        assert abs(again - matrix).max() == 0 if matrix.nnz else True


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("pad", [0, 1])
def test_ordinary_convolutions_are_recovered(groups: int, stride: int, pad: int) -> None:
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(8, 4 // groups, 3, 3))
    pads = [(pad, pad)] * 2
    geometry = Geometry((3, 3), [stride] * 2, pads, [1, 1])
    matrix, shape = convolution(weight, (4, 9, 9), geometry, groups)
    found = recover_convolution(matrix, (4, 9, 9), shape)
    assert found is not None
    assert found.groups == groups
    assert found.geometry.stride == (stride, stride)
    np.testing.assert_array_equal(found.weight, weight)


@pytest.mark.parametrize(
    ("spatial", "kernel", "stride", "pads", "dilation"),
    [
        ((4, 4), (3, 3), (2, 2), [(1, 1), (1, 1)], (1, 1)),  # no window inside the input
        ((4, 5), (3, 5), (1, 2), [(1, 1), (2, 2)], (1, 1)),
        ((5, 6), (3, 2), (3, 3), [(1, 1), (0, 0)], (1, 2)),
        ((8,), (5,), (4,), [(2, 2)], (1,)),
        ((6, 6), (2, 2), (2, 2), [(1, 1), (1, 1)], (2, 2)),
        ((5, 5), (3, 3), (2, 2), [(0, 1), (0, 1)], (1, 1)),  # padded on one side alone
    ],
)
@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_of_few_positions_are_recovered(
    spatial: Any, kernel: Any, stride: Any, pads: Any, dilation: Any, groups: int
) -> None:
    weight = np.random.default_rng(1).normal(size=(4, 2 // groups, *kernel))
    geometry = Geometry(kernel, stride, pads, dilation)
    matrix, shape = convolution(weight, (2, *spatial), geometry, groups)
    found = recover_convolution(matrix, (2, *spatial), shape)
    assert found is not None
    assert found.groups == groups
    np.testing.assert_array_equal(found.weight, weight)


def test_one_window_that_leaves_inputs_out_is_recovered() -> None:
    weight = np.random.default_rng(1).normal(size=(3, 2, 3, 3))
    geometry = Geometry((3, 3), (3, 3), [(1, 1), (0, 0)], (1, 1))
    matrix, shape = convolution(weight, (2, 3, 4), geometry, 1)
    assert shape == (3, 1, 1)
    found = recover_convolution(matrix, (2, 3, 4), shape)
    assert found is not None
    np.testing.assert_array_equal(found.weight, weight[:, :, 1:])  # one row is padding for good


def test_a_changed_weight_is_no_convolution() -> None:
    weight = np.random.default_rng(0).normal(size=(2, 1, 3, 3))
    matrix, shape = convolution(weight, (1, 8, 8), Geometry.plain((3, 3)), 1)
    matrix.data[5] += 2.0**-40
    assert recover_convolution(matrix, (1, 8, 8), shape) is None


@given(geometries(), st.booleans(), st.booleans())
def test_pooling_equals_torch(g: dict, ceil: bool, count_padding: bool) -> None:  # type: ignore[type-arg]
    rng = np.random.default_rng(g["seed"])
    pads = [min(p, k // 2) for p, k in zip(g["pads"], g["kernel"], strict=True)]
    channels = g["per_group"]
    x = rng.normal(size=(1, channels, *g["spatial"]))
    one = len(pads) == 1
    ones = [1] * len(pads)
    both = [(p, p) for p in pads]
    low = Lowering(x.shape)
    windows = sliding_windows(g["spatial"], Geometry(g["kernel"], g["stride"], both, ones, ceil))
    averaged = low.finish(
        low.average(low.input, windows, count_padding), input_shape=x.shape[1:], origin=""
    )
    average = F.avg_pool1d if one else F.avg_pool2d
    expected = average(
        torch.from_numpy(x), g["kernel"], g["stride"], pads, ceil, count_padding
    ).numpy()
    np.testing.assert_allclose(averaged(x), expected.reshape(1, -1), atol=1e-12)

    low = Lowering(x.shape)
    dilated = Geometry(g["kernel"], g["stride"], both, g["dilation"], ceil)
    windows = sliding_windows(g["spatial"], dilated)
    if windows.valid.any(axis=1).all():
        pooled = low.finish(
            low.max_pool(low.input, windows, "pool"), input_shape=x.shape[1:], origin=""
        )
        largest = F.max_pool1d if one else F.max_pool2d
        expected = largest(
            torch.from_numpy(x), g["kernel"], g["stride"], pads, g["dilation"], ceil
        ).numpy()
        np.testing.assert_allclose(pooled(x), expected.reshape(1, -1), atol=1e-12)


@pytest.mark.parametrize(
    ("spatial", "kernel", "stride", "pads", "dilation"),
    [
        ([2], [3], [1], [(0, 0)], [1]),
        ([4], [0], [1], [(0, 0)], [1]),
        ([4], [2], [0], [(0, 0)], [1]),
        ([4], [2], [1], [(-1, 0)], [1]),
        ([4], [2, 2], [1], [(0, 0)], [1]),
        ([], [], [], [], []),
        ([10**6, 10**6], [1, 1], [1, 1], [(0, 0)] * 2, [1, 1]),
    ],
)
def test_senseless_windows_are_refused(spatial, kernel, stride, pads, dilation) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidNetworkError):
        sliding_windows(spatial, Geometry(kernel, stride, pads, dilation))
