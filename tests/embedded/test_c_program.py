"""The C programs: no warning, no undefined behaviour, the model's integers everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from c_programs import (
    DTYPES,
    STRICT,
    check,
    compile_host,
    drawn,
    need,
    on_arm,
    on_avr,
    on_host,
    run,
)

from relunorm import Box, Network, load, to_c
from relunorm.embedded import Export
from relunorm.embedded.arithmetic.terms import Kernel
from relunorm.network import Activation, Affine, Layer

QUICK: dict[str, Any] = {"parts": 1, "samples": 20, "shrink": False}


def perceptron(activation: Any = "relu") -> tuple[Network, Box]:
    rng = np.random.default_rng(5)
    weights = [rng.normal(size=s) for s in ((7, 4), (6, 7), (3, 6))]
    biases = [rng.normal(size=s) for s in (7, 6, 3)]
    box = Box(np.array([-1.0, 0.0, -0.01, 5.0]), np.array([1.0, 3.0, 0.02, 5.0]))
    return Network.from_weights(weights, biases, activation), box


def skipping() -> tuple[Network, Box]:
    """Skips, a sparse matrix, a linear stage, a constant row and every activation."""
    import scipy.sparse as sp

    rng = np.random.default_rng(2)
    sparse = sp.csr_array(rng.normal(size=(5, 4)) * (rng.random((5, 4)) < 0.4))
    layers = [
        Layer(Affine({0: rng.normal(size=(4, 3))}, rng.normal(size=4)), Activation("leaky", 0.1)),
        Layer(Affine({0: rng.normal(size=(5, 3)), 1: sparse}, rng.normal(size=5))),
        Layer(Affine({2: rng.normal(size=(2, 5))}, rng.normal(size=2)), Activation("identity")),
        Layer(
            Affine({1: rng.normal(size=(3, 4))}, rng.normal(size=3)), Activation("step", 0, 0.25)
        ),
    ]
    output = Affine(
        {k: rng.normal(size=(2, n)) for k, n in ((0, 3), (3, 2), (4, 3))}, rng.normal(size=2)
    )
    return Network(layers, output, input_shape=3), Box.cube(3, -2, 2)


def pooling() -> tuple[Network, Box]:
    """Padded, strided, grouped and dilated convolutions, a max and an average pooling."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, groups=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 3, 2, stride=2, padding=1, dilation=2),
        nn.LeakyReLU(0.2),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(3, 2),
    ).double()
    return load(model, example=torch.zeros(1, 2, 6, 6).double()), Box.cube(72, -1, 1)


def sounding() -> tuple[Network, Box]:
    """A convolution over one axis whose channels have biases of their own."""
    import torch
    from torch import nn

    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv1d(1, 3, 5, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(15, 2))
    return load(model.double(), example=torch.zeros(1, 1, 13).double()), Box.cube(13, 0, 1)


NETWORKS = {
    "relu": perceptron,
    "leaky": lambda: perceptron(Activation("leaky", 0.125)),
    "backwards": lambda: perceptron(Activation("leaky", -0.3)),
    "step": lambda: perceptron(Activation("step", 0, -0.5)),
    "skips": skipping,
    "poolings": pooling,
    "one axis": sounding,
}


def exported(name: str, bits: int, **options: Any) -> tuple[Export, tuple[str, str]]:
    network, box = NETWORKS[name]()
    made = to_c(network, box, bits=bits, classes=True, **QUICK, **options)
    return made, (made.program.input_type, made.program.output.accumulator)


def inputs_for(program: Any, count: int) -> np.ndarray:
    """Integers of the domain, its corners, and numbers that have to be clamped."""
    rng = np.random.default_rng(0)
    shape = (count, program.input_size)
    inside = rng.integers(program.input_low, program.input_high + 1, shape)
    corners = np.where(rng.random(shape) < 0.5, program.input_low, program.input_high)
    ends = np.iinfo(DTYPES[program.input_type])
    anything = rng.integers(ends.min, int(ends.max) + 1, shape)
    return np.vstack([inside, corners, anything])


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_program_gives_the_model_s_integers(name: str, bits: int, tmp_path: Path) -> None:
    made, kinds = exported(name, bits)
    inputs = inputs_for(made.program, 2000)
    found = on_host(made.source, kinds, inputs, tmp_path)
    assert np.array_equal(found, made.program(inputs))


@pytest.mark.parametrize("name", NETWORKS)
def test_cppcheck_finds_nothing(name: str, tmp_path: Path) -> None:
    need("cppcheck")
    check(exported(name, 16)[0].source, tmp_path)


@pytest.mark.parametrize(
    ("name", "bits"), [("relu", 8), ("skips", 16), ("poolings", 8), ("leaky", 32)]
)
def test_the_same_integers_on_arm(name: str, bits: int, tmp_path: Path) -> None:
    need("arm-none-eabi-gcc", "qemu-arm")
    made, kinds = exported(name, bits, target="arm")
    program = made.program
    inputs = drawn(program.input_low, program.input_high, kinds[0], 1000)
    low, high = program.input_low, program.input_high
    found = on_arm(made.source, kinds, low, high, 1000, tmp_path)
    assert np.array_equal(found, program(inputs))


@pytest.mark.parametrize(
    ("name", "bits"), [("relu", 8), ("skips", 16), ("one axis", 16), ("step", 32)]
)
def test_the_same_integers_on_avr(name: str, bits: int, tmp_path: Path) -> None:
    need("avr-gcc", "simavr")
    made, kinds = exported(name, bits, target="avr")
    program = made.program
    inputs = drawn(program.input_low, program.input_high, kinds[0], 300)
    found = on_avr(made.source, kinds, program.input_low, program.input_high, 300, tmp_path)
    assert np.array_equal(found, program(inputs))


def test_a_kernel_is_stored_once_and_looped_over() -> None:
    made, _ = exported("one axis", 16)
    assert "net_weight1_0[15]" in made.source  # 3 channels of 5 taps, for 5 positions
    assert "net_bias1[3]" in made.source


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("bits", [8, 16, 32])
def test_pieces_are_looked_up(bits: int, size: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    network = Network.from_weights(
        [rng.normal(size=(9, size)), rng.normal(size=(3, 9))], [rng.normal(size=9), np.zeros(3)]
    )
    box = Box([-2.0, 0.5][:size], [1.0, 3.0][:size])
    made = to_c(network, box, bits=bits, style="pieces", classes=True, **QUICK)
    kinds = (made.program.input_type, made.program.accumulator)
    inputs = inputs_for(made.program, 3000)
    found = on_host(made.source, kinds, inputs, tmp_path)
    assert np.array_equal(found, made.program(inputs))
    if bits == 16:
        check(made.source, tmp_path)


def test_the_same_pieces_on_avr(tmp_path: Path) -> None:
    need("avr-gcc", "simavr")
    rng = np.random.default_rng(1)
    weights = [rng.normal(size=(6, 2)), rng.normal(size=(2, 6))]
    network = Network.from_weights(weights, [rng.normal(size=6), np.zeros(2)])
    made = to_c(network, Box.cube(2), bits=16, style="pieces", target="avr", **QUICK)
    start = made.program
    kinds = (start.input_type, made.program.accumulator)
    found = on_avr(made.source, kinds, start.input_low, start.input_high, 200, tmp_path)
    inputs = drawn(start.input_low, start.input_high, kinds[0], 200)
    assert np.array_equal(found, made.program(inputs))


@pytest.mark.parametrize("name", ["relu", "skips", "poolings"])
def test_single_precision_stays_within_its_bound(name: str, tmp_path: Path) -> None:
    network, box = NETWORKS[name]()
    made = to_c(network, box, floats=True, classes=True, **QUICK)
    points = box.sample(2000, 0)
    found = on_host(made.source, ("float", "float"), points, tmp_path)
    if name != "skips":  # a step at its threshold may go either way where products are fused
        assert np.array_equal(found, made.program(points))
    gap = np.abs(found - network(points))
    stated = made.certificate.document
    if stated["steps"] is not None:  # at a threshold a jump is within the bound
        assert gap.max() <= made.epsilon
    else:
        assert gap.max() <= made.epsilon < 1e-3
    check(made.source, tmp_path)


@pytest.mark.parametrize("high", [0.5, 255 / 256], ids=["counted", "no end to pass"])
def test_a_constant_network_reads_nothing(high: float, tmp_path: Path) -> None:
    weights, biases = [np.zeros((3, 2)), np.ones((1, 3))], [np.ones(3), np.array([0.5])]
    network = Network.from_weights(weights, biases)
    made = to_c(network, Box.cube(2, 0, high), bits=8, input_shift=8, classes=True)
    kinds = made.program.input_type, made.program.output.accumulator
    inputs = inputs_for(made.program, 50)
    found = on_host(made.source, kinds, inputs, tmp_path)
    assert np.array_equal(np.ldexp(found, -made.program.output_exponent), np.full((150, 1), 3.5))
    check(made.source, tmp_path)


def test_the_class_and_what_was_clamped(tmp_path: Path) -> None:
    made, kinds = exported("relu", 16)
    compile_host(made.source, kinds, tmp_path, sanitize=True)
    points = NETWORKS["relu"]()[1].sample(50, 0)
    rows = made.program.quantize(points)
    rows[:10, 0] = np.iinfo(DTYPES[kinds[0]]).max
    text = "},\n{".join(", ".join(map(str, row)) for row in rows.tolist())
    (tmp_path / "net.h").write_text(made.header)
    (tmp_path / "call.c").write_text(
        '#include <stdio.h>\n#include "net.h"\n'
        f"static const {kinds[0]} x[50][NET_INPUTS] = {{{{{text}}}}};\n"
        f"int main(void)\n{{\n    {kinds[1]} y[NET_OUTPUTS];\n"
        "    for (int i = 0; i < 50; i++)\n"
        '        printf("%d %d\\n", net_class(x[i]), net_run(x[i], y));\n    return 0;\n}\n'
    )
    run(["gcc", *STRICT, "call.c", "net.o", "-fsanitize=undefined", "-o", "call"], tmp_path)
    found = np.array([line.split() for line in run(["./call"], tmp_path).split(b"\n")[:-1]], int)
    assert np.array_equal(found[:, 0], np.argmax(made.program(rows), axis=1))
    assert np.array_equal(found[:, 1], [1] * 10 + [0] * 40)


@pytest.mark.parametrize("constant", [False, True])
def test_what_is_not_a_number_is_clamped_and_counted(constant: bool, tmp_path: Path) -> None:
    network, box = perceptron()
    if constant:
        network = Network.from_weights([np.zeros((2, 4)), np.ones((1, 2))])
    made = to_c(network, box, floats=True, **QUICK)
    compile_host(made.source, ("float", "float"), tmp_path, sanitize=True)
    (tmp_path / "net.h").write_text(made.header)
    (tmp_path / "call.c").write_text(
        '#include <math.h>\n#include <stdio.h>\n#include "net.h"\n'
        "int main(void)\n{\n    const float x[3][4] = {{NAN, 1, 0, 5}, {-NAN, NAN, INFINITY, 5},"
        " {-INFINITY, 9, 0, 5}};\n    float y[NET_OUTPUTS];\n"
        "    for (int i = 0; i < 3; i++) {\n"
        '        printf("%d", net_run(x[i], y));\n'
        '        for (int k = 0; k < NET_OUTPUTS; k++) printf(" %.9g", (double)y[k]);\n'
        '        printf("\\n");\n    }\n    return 0;\n}\n'
    )
    flags = ["-std=c99", "-fsanitize=undefined"]
    run(["gcc", *flags, "call.c", "net.o", "-o", "call"], tmp_path)
    found = np.array([line.split() for line in run(["./call"], tmp_path).split(b"\n")[:-1]], float)
    assert found[:, 0].tolist() == [1, 3, 2]
    nan, inf = np.nan, np.inf
    rows = [[nan, 1, 0, 5], [nan, nan, inf, 5], [-inf, 9, 0, 5]]
    assert np.array_equal(found[:, 1:].astype(np.float32), made.program(np.array(rows)))
    assert np.isfinite(found).all()


def test_a_small_strided_padded_convolution_is_a_loop(tmp_path: Path) -> None:
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2)
    )
    network = load(model.double(), example=torch.zeros(1, 2, 4, 4).double())
    made = to_c(network, Box.cube(32, 0, 1), bits=16, parts=1, samples=20)
    assert "net_weight1_0[72]" in made.source
    inputs = inputs_for(made.program, 500)
    kinds = made.program.input_type, made.program.output_type
    assert np.array_equal(on_host(made.source, kinds, inputs, tmp_path), made.program(inputs))


def test_a_convolution_after_a_pooling_is_a_loop(tmp_path: Path) -> None:
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(3, 2, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(18, 2),
    )  # fmt: skip
    network = load(model.double(), example=torch.zeros(1, 1, 6, 6).double())
    made = to_c(network, Box.cube(36, 0, 1), bits=8, **QUICK)
    terms = [term for m in made.program.maps[:-1] for term in m.terms.values()]
    assert all(isinstance(term, Kernel) for term in terms)
    inputs = inputs_for(made.program, 500)
    kinds = made.program.input_type, made.program.output_type
    assert np.array_equal(on_host(made.source, kinds, inputs, tmp_path), made.program(inputs))


def test_onnxruntime_gives_the_same_integers(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    for name in ("relu", "one axis"):
        made, kinds = exported(name, 8)
        made.save_onnx(tmp_path / "net.onnx")
        session = runtime.InferenceSession(
            str(tmp_path / "net.onnx"), providers=["CPUExecutionProvider"]
        )
        inputs = inputs_for(made.program, 3000)
        (real,) = session.run(None, {"input": inputs.astype(kinds[0].removesuffix("_t"))})
        integers = np.ldexp(real.astype(np.float64), made.program.output_exponent)
        assert np.array_equal(integers, made.program(inputs))
