"""What a model does after the last affine map: softmax, sigmoid, argmax, scaling, clipping.

A `Network` computes the values before these steps (the logits of a classifier) and remembers the
steps in `Network.head`. Questions are answered about the values before the head. Most heads are
monotone, so what is known there carries over: classes and margins unchanged, bounds through
`Head.interval`, and the distance of two networks through `Head.gain`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from relunorm.errors import InvalidInputError, InvalidNetworkError
from relunorm.matrix import Array

StepKind = Literal[
    "pair", "softmax", "log_softmax", "argmax", "sigmoid", "log_sigmoid", "tanh", "softplus", "exp",
    "scale", "clip", "greater", "round",
]  # fmt: skip

EPS = float(np.finfo(np.float64).eps)

#: Steps that look along an axis; all others act entry by entry.
ALONG_AXIS = ("softmax", "log_softmax", "argmax")
#: How many numbers a step stores (per output or once, for a scaling).
_NUMBERS = {"scale": 2, "clip": 2, "greater": 1}
#: The most by which a step can enlarge a difference, in the largest entry.
_GAINS = {
    "pair": 1.0,
    "softmax": 0.5,  # the row sums of |diag(p) - p p'| are 2 p (1 - p)
    "log_softmax": 2.0,
    "sigmoid": 0.25,
    "log_sigmoid": 1.0,
    "tanh": 1.0,
    "softplus": 1.0,
    "clip": 1.0,
}
#: A step of e through the steepest place gains b tanh(a e); an entry of a softmax follows a sigmoid
#: of its logit less the log-sum-exp of the others, and each of the two may move by e.
_STEEPEST = {"sigmoid": (0.25, 1.0), "softmax": (0.5, 1.0), "tanh": (0.5, 2.0)}
_RISING = ("sigmoid", "log_sigmoid", "tanh", "softplus", "exp")


@dataclass(frozen=True)
class Step:
    """One operation after the last affine map.

    Args:
        kind: ``pair`` makes (-z, z) of a model's only value z, the two classes' logits that a
            sigmoid turns into (1 - p, p); it comes first. ``softmax``, ``log_softmax`` and
            ``argmax`` run along an axis; ``sigmoid``,
            ``log_sigmoid``, ``tanh``, ``softplus``, ``exp``, ``scale`` (factor x + offset),
            ``clip``, ``greater`` (1 above a level, else 0) and ``round`` act on each entry.
        axis: for steps along an axis, that axis of the output's shape, without the batch.
        numbers: factor and offset of a scaling (or all factors, then all offsets), the ends of a
            clip, the level of ``greater``.
    """

    kind: StepKind
    axis: int = 0
    numbers: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "numbers", tuple(float(x) for x in self.numbers))
        wanted = _NUMBERS.get(self.kind, 0)
        known = self.kind in (*ALONG_AXIS, *_GAINS, "exp", "scale", "greater", "round")
        fits = len(self.numbers) % 2 == 0 if self.kind == "scale" else True
        if not known or not fits or (len(self.numbers) < wanted or (wanted == 0 and self.numbers)):
            raise InvalidNetworkError(
                f"a head has no step {self.kind!r} with {len(self.numbers)} numbers"
            )
        if any(math.isnan(x) for x in self.numbers):
            raise InvalidNetworkError(f"the step {self.kind!r} of the head holds NaN")

    @property
    def factors(self) -> Array:
        """The factors of a scaling."""
        return np.array(self.numbers[: len(self.numbers) // 2])

    @property
    def offsets(self) -> Array:
        """The offsets of a scaling."""
        return np.array(self.numbers[len(self.numbers) // 2 :])

    def scaling(self, shape: Sequence[int]) -> tuple[Array, Array]:
        """Factors and offsets of a scaling in the shape of an output, or one number for all."""
        own = tuple(shape) if len(self.numbers) > 2 else ()
        return self.factors.reshape(own), self.offsets.reshape(own)

    def apply(self, values: Array) -> Array:
        """The step on a batch of shape (n, *shape of one output)."""
        axis = self.axis + 1
        if self.kind == "pair":
            return np.concatenate([-values, values], axis=-1)
        if self.kind in ("softmax", "log_softmax"):
            shifted = values - values.max(axis=axis, keepdims=True)
            total = np.exp(shifted).sum(axis=axis, keepdims=True)
            return np.exp(shifted) / total if self.kind == "softmax" else shifted - np.log(total)
        if self.kind == "argmax":
            return values.argmax(axis=axis).astype(np.float64)
        if self.kind == "scale":
            factor, offset = self.scaling(values.shape[1:])
            return values * factor + offset
        return _entrywise(self, values)

    def __str__(self) -> str:
        if self.kind == "scale":
            if len(self.numbers) > 2:
                return "scaling of each output"
            factor, offset = self.factors[0], self.offsets[0]
            return f"scaling ({factor:g} x {'+' if offset >= 0 else '-'} {abs(offset):g})"
        if self.kind == "clip":
            low, high = self.numbers[0], self.numbers[1]
            return f"clip to [{low:g}, {high:g}]"
        if self.kind == "greater":
            return f"test for > {self.numbers[0]:g}"
        return self.kind.replace("_", "-")


def _entrywise(step: Step, values: Array) -> Array:
    if step.kind == "clip":
        return np.clip(values, step.numbers[0], step.numbers[1])
    if step.kind == "greater":
        return (values > step.numbers[0]).astype(np.float64)
    if step.kind == "sigmoid":
        return _sigmoid(values)
    if step.kind == "log_sigmoid":
        return -np.logaddexp(0.0, -values)
    if step.kind == "softplus":
        return np.logaddexp(0.0, values)
    function: Any = {"tanh": np.tanh, "exp": np.exp, "round": np.round}[step.kind]
    with np.errstate(over="ignore"):
        return function(values)


def _sigmoid(values: Array) -> Array:
    """1 / (1 + exp(-x)) without overflow."""
    small = np.exp(-np.abs(values))
    return np.where(values >= 0, 1.0 / (1.0 + small), small / (1.0 + small))


def plain_labels(labels: Iterable[Any]) -> tuple[Any, ...]:
    """Labels as text, whole numbers, numbers or booleans of Python, whatever they came as."""
    plain = []
    for label in labels:
        value = label.item() if isinstance(label, np.generic) else label
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        if not isinstance(value, str | int | float | bool):
            value = str(value)
        plain.append(value)
    return tuple(plain)


@dataclass(frozen=True)
class Head:
    """The steps a model takes after the network's output, and what its outputs stand for.

    Args:
        steps: in order; none for a model that ends in its last affine map.
        classes: the label of each output (of the two signs, where one output decides between two
            classes), as the model says it; empty where it does not.

    >>> head = Head((Step("softmax"),), classes=("cat", "dog"))
    >>> head
    Head(softmax, classes cat, dog)
    >>> head([[0.0, 0.0]]).tolist()
    [[0.5, 0.5]]
    """

    steps: tuple[Step, ...] = ()
    classes: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", tuple(self.steps))
        object.__setattr__(self, "classes", plain_labels(self.classes))
        if len(set(map(str, self.classes))) != len(self.classes):
            raise InvalidNetworkError(f"the classes {self.classes} name one label twice")
        for step in self.steps[:-1]:
            if step.kind == "argmax":
                raise InvalidNetworkError("an argmax ends a head, but another step follows it")
        if any(step.kind == "pair" for step in self.steps[1:]):
            raise InvalidNetworkError("only the first step of a head makes a pair")

    def __bool__(self) -> bool:
        return bool(self.steps)

    def __repr__(self) -> str:
        parts = [self.label or "none"]
        if self.classes:
            shown = ", ".join(map(str, self.classes[:6]))
            parts.append(f"classes {shown}" + (", ..." if len(self.classes) > 6 else ""))
        return f"Head({', '.join(parts)})"

    @property
    def label(self) -> str:
        """The steps in words; empty without steps."""
        words = ", then ".join(map(str, self.unpaired.steps))
        if self.unpaired is self:
            return words
        return f"{words} of both classes" if words else "one value for each of two classes"

    @property
    def unpaired(self) -> Head:
        """The head without its pair: what a model of one output ends in that says the same.

        >>> Head((Step("pair"), Step("sigmoid"))).unpaired
        Head(sigmoid)
        """
        paired = bool(self.steps) and self.steps[0].kind == "pair"
        return Head(self.steps[1:], self.classes) if paired else self

    @property
    def of(self) -> str:
        """What answers speak of: ``outputs``, or what comes before which step.

        >>> Head().of, Head((Step("softmax"),)).of, Head((Step("tanh"),)).of
        ('outputs', 'logits, before the softmax', 'values before the tanh')
        """
        if not self.steps:
            return "outputs"
        if not self.unpaired.steps:
            return "one value that both classes follow from"
        first = self.unpaired.steps[0]
        logits = first.kind in ("softmax", "log_softmax", "sigmoid", "log_sigmoid", "argmax")
        return f"logits, before the {first}" if logits else f"values before the {first}"

    @property
    def is_probability(self) -> bool:
        """Whether the model's own outputs are probabilities of classes."""
        return [step.kind for step in self.unpaired.steps] in (["softmax"], ["sigmoid"])

    @property
    def returned(self) -> str:
        """What the model's own outputs are: ``probabilities``, ``log-probabilities``, ``outputs``.

        >>> Head((Step("softmax"),)).returned, Head((Step("tanh"),)).returned
        ('probabilities', 'outputs')
        """
        logs = [step.kind for step in self.unpaired.steps] in (["log_softmax"], ["log_sigmoid"])
        return (
            "probabilities" if self.is_probability else "log-probabilities" if logs else "outputs"
        )

    @property
    def looks_along_axes(self) -> bool:
        """Whether what the model returns depends on the shape of its outputs."""
        return any(step.kind in ALONG_AXIS for step in self.steps)

    def _keeps_classes(self, shape: Sequence[int]) -> bool:
        """Whether the largest output of the model is the largest value before the head.

        A softmax along one of several axes makes entries of different rows incomparable.

        >>> head = Head((Step("softmax", 1),))
        >>> head._keeps_classes((1, 6)), head._keeps_classes((2, 3))
        (True, False)
        """
        if any(step.kind == "argmax" for step in self.steps[:-1]):
            return False
        return all(
            (step.kind in ALONG_AXIS and shape[step.axis] == math.prod(shape))
            or step.kind in _RISING
            or (step.kind == "scale" and len(step.numbers) == 2 and step.numbers[0] > 0)
            for step in self.steps
        )

    def decides_plainly(self, shape: Sequence[int]) -> bool:
        """Whether the class is that of the largest value before the head, or of one value's sign.

        Of one output the model says class 1 above 0: a test for another level than that says no.

        Args:
            shape: of one output of the network.

        >>> Head((Step("sigmoid"), Step("greater", 0, (0.5,)))).decides_plainly((1,))
        True
        >>> Head((Step("sigmoid"), Step("greater", 0, (0.9,)))).decides_plainly((1,))
        False
        """
        if self.unpaired is not self:
            return self.unpaired._keeps_classes((*shape[:-1], 2))
        if math.prod(shape) > 1:
            return self._keeps_classes(shape)
        return all(
            s.kind not in ("scale", "argmax") or s.numbers[:1] > (0,) for s in self.steps
        ) and all(
            _tests_sign(Head(self.steps[:k]), step)
            for k, step in enumerate(self.steps)
            if step.kind in ("greater", "round")
        )

    def class_names(self, shape: Sequence[int]) -> tuple[str, ...]:
        """What the largest of several outputs stands for; none where the model says no class.

        >>> Head((Step("softmax"),)).class_names((2,)), Head().class_names((2,))
        (('class 0', 'class 1'), ())
        """
        outputs = math.prod(shape)
        if outputs < 2 or not self.decides_plainly(shape):
            return ()
        decides = self.returned != "outputs" or any(s.kind == "argmax" for s in self.steps)
        unnamed = (f"class {k}" for k in range(outputs)) if decides else ()
        return tuple(map(str, self.classes or unnamed))

    @property
    def gain(self) -> float | None:
        """If values before the head differ by at most e, the model's outputs by at most gain e.

        In the largest entry, as `compare` measures. None where there is no such number: an argmax
        or a test jumps, and exp has no largest slope.
        """
        total = 1.0
        for step in self.steps:
            if step.kind == "scale":
                total *= float(np.abs(step.factors).max())
            elif step.kind in _GAINS:
                total *= _GAINS[step.kind]
            else:
                return None
        return total

    def moved(self, most: float) -> float | None:
        """How far the model's outputs can be apart where values before the head are by ``most``.

        Sound, and for one sigmoid, tanh or softmax the smallest such number: a sigmoid's slope is
        largest in the middle, so a step of e across it gains 2 sigmoid(e / 2) - 1 = tanh(e / 4).
        Never above `gain` times ``most``, but for rounding; None where there is no `gain`.

        >>> round(Head((Step("sigmoid"),)).moved(4.0), 6), Head((Step("sigmoid"),)).moved(1e9)
        (0.761594, 1.0)
        """
        if self.gain is None:
            return None
        for step in self.steps:
            if step.kind == "scale":
                most *= float(np.abs(step.factors).max()) * (1 + 8 * EPS)
            elif step.kind in _STEEPEST:
                inner, outer = _STEEPEST[step.kind]
                most = min(outer, outer * math.tanh(inner * most) * (1 + 8 * EPS))
            elif step.kind == "clip":
                most = min(most, (step.numbers[1] - step.numbers[0]) * (1 + 8 * EPS))
            else:
                most *= _GAINS[step.kind]
        return most

    def __call__(self, values: ArrayLike, shape: Sequence[int] = ()) -> Array:
        """What the model returns for these values before the head.

        Args:
            values: (n, outputs).
            shape: of one output, where it is not a vector.
        """
        array = np.asarray(values, dtype=np.float64)
        result = array.reshape(len(array), *(shape or array.shape[1:]))
        for step in self.steps:
            result = step.apply(result)
        return result

    def interval(
        self, low: ArrayLike, high: ArrayLike, shape: Sequence[int] = ()
    ) -> tuple[Array, Array]:
        """Bounds on the model's outputs from bounds on the values before the head.

        Sound: each step is monotone in every entry, up to sign, and room is left for what rounding
        can do. A bound on each entry says nothing about where they
        hold together, so for a softmax the interval is the tightest for a box of logits.
        """
        low, high = (np.asarray(end, dtype=np.float64) for end in (low, high))
        if low.shape != high.shape or (low > high).any():
            raise InvalidInputError("bounds need two arrays of one shape, the first not larger")
        below, above = (end.reshape(1, *(shape or low.shape)) for end in (low, high))
        for step in self.steps:
            below, above = _step_interval(step, below, above)
        return below[0], above[0]

    def check(self, shape: Sequence[int], where: str = "") -> None:
        """Raise `InvalidNetworkError` unless the head fits outputs of this shape."""
        size = outputs = math.prod(shape)
        for step in self.steps:
            if step.kind == "pair":
                if not shape or size != 1:
                    raise InvalidNetworkError(
                        f"{where}the head makes a pair of one value, of shape {tuple(shape)}"
                    )
                shape, size = (*shape[:-1], 2), 2
            if step.kind in ALONG_AXIS and not 0 <= step.axis < len(shape):
                raise InvalidNetworkError(
                    f"{where}the head's {step} runs along axis {step.axis} of an output of shape "
                    f"{tuple(shape)}"
                )
            if step.kind == "scale" and len(step.numbers) not in (2, 2 * size):
                raise InvalidNetworkError(
                    f"{where}the head scales {len(step.numbers) // 2} outputs of {size}"
                )
        if self.classes and len(self.classes) != (2 if outputs == 1 else outputs):
            raise InvalidNetworkError(
                f"{where}{len(self.classes)} classes for {outputs} output{'s' * (outputs != 1)}"
            )

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe; `Head.from_dict` reads it back."""
        steps = [
            {"kind": s.kind, "axis": s.axis, "numbers": [_json_number(x) for x in s.numbers]}
            for s in self.steps
        ]
        return {"steps": steps, "label": self.label, "of": self.of, "classes": list(self.classes)}

    @classmethod
    def from_dict(cls, fields: Any) -> Head:
        """The head that `to_dict` wrote."""
        steps = tuple(
            Step(str(s["kind"]), int(s["axis"]), tuple(float(x) for x in s["numbers"]))  # type: ignore[arg-type]
            for s in fields["steps"]
        )
        return cls(steps, tuple(fields["classes"]))


NO_HEAD = Head()


def _tests_sign(before: Head, step: Step) -> bool:
    """Whether a test of what a head makes of one value says 1 exactly where that value is > 0."""
    level = step.numbers[0] if step.kind == "greater" else 0.5
    below, middle, above = before([[-1e-6], [0.0], [1e-6]]).ravel()
    return bool(below < middle == level < above)


def of_words(of: str) -> str:
    """What a result's text adds about what it speaks of; nothing for the model's own outputs.

    >>> of_words("outputs"), of_words("logits, before the softmax")
    ('', '; of the logits, before the softmax')
    """
    return "" if of == "outputs" else f"; of the {of}"


def _step_interval(step: Step, low: Array, high: Array) -> tuple[Array, Array]:
    if step.kind == "argmax":
        raise InvalidInputError("an argmax has no interval; ask for the class instead")
    if step.kind in ("softmax", "log_softmax"):
        return _softmax_interval(step, low, high)
    if step.kind == "pair":
        return np.concatenate([-high, low], axis=-1), np.concatenate([-low, high], axis=-1)
    if step.kind in ("clip", "greater", "round"):
        return step.apply(low), step.apply(high)
    ends = np.stack([step.apply(low), step.apply(high)])
    size = np.maximum(np.abs(low), np.abs(high))
    if step.kind == "scale":
        factor, offset = step.scaling(low.shape[1:])
        room = 4 * EPS * (size * np.abs(factor) + np.abs(offset))
    else:
        room = 16 * EPS * np.abs(ends).max(axis=0)
    return ends.min(axis=0) - room, ends.max(axis=0) + room


def _softmax_interval(step: Step, low: Array, high: Array) -> tuple[Array, Array]:
    """Entry i is smallest at its own lower end and the others' upper ones, and the other way."""
    axis = step.axis + 1
    lows, highs = np.moveaxis(low, axis, -1), np.moveaxis(high, axis, -1)
    below, above = np.empty_like(lows), np.empty_like(highs)
    for i in range(lows.shape[-1]):
        for target, own, others in ((below, lows, highs), (above, highs, lows)):
            mixed = others.copy()
            mixed[..., i] = own[..., i]
            row = Step(step.kind, mixed.ndim - 2).apply(mixed)
            target[..., i] = row[..., i]
    # What rounding can do: the differences of logits, exp of them, the sum, the quotient or log.
    span = highs.max(axis=-1, keepdims=True) - lows.min(axis=-1, keepdims=True)
    relative = EPS * (16 + lows.shape[-1] + span)
    if step.kind == "softmax":
        below, above = below * (1 - relative), above * (1 + relative)
        below, above = np.maximum(below, 0.0), np.minimum(above, 1.0)
    else:
        below, above = below - 4 * relative, np.minimum(above + 4 * relative, 0.0)
    return np.moveaxis(below, -1, axis), np.moveaxis(above, -1, axis)


def _json_number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
