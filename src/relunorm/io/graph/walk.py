"""What every reader does around an operation of a graph: heads, and refusals of what is unknown.

An operation that cannot be lowered does not end the walk: what reads its result is passed over, so
that one error names everything in the graph that is not known, why it is refused and what to do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from relunorm.errors import UnsupportedOperationError
from relunorm.io.graph.heads import Headed, Stuck
from relunorm.io.graph.lower import CannotLower, Lowering, Tensor


@dataclass(frozen=True)
class Unknown:
    """The value of an operation that could not be lowered.

    Attributes:
        head: place and name of the operation that opened a head on it, if one did.
    """

    head: tuple[str, str] | None = None


@dataclass(frozen=True)
class Call:
    """One operation: where it stands, what messages call it, and what is known of its kind."""

    place: str
    operation: str
    known: bool
    opens: bool
    follows: bool


class Walk:
    """Lowers one operation after the other and collects those that cannot be."""

    def __init__(self, lowering: Lowering, origin: str):
        self.lowering, self.origin = lowering, origin
        self._places: dict[str, int] = {}
        self._unsupported: dict[tuple[str, str], None] = {}

    def lower(self, call: Call, inputs: Iterable[Any], run: Callable[[], Any]) -> Any:
        """What ``run`` computes from the inputs; `Unknown` where that cannot be lowered."""
        self._places.setdefault(call.place, len(self._places))
        values = [v for v in inputs if isinstance(v, Tensor | Headed | Unknown)]
        if any(isinstance(value, Unknown) for value in values):
            return self._passed_over(call, values)
        headed = next((value for value in values if isinstance(value, Headed)), None)
        try:
            if not call.known and headed is None:
                raise CannotLower
            if headed is not None and not call.follows:
                raise Stuck(headed)
            with np.errstate(all="ignore"):  # what is not finite the network's own check refuses
                found = run()
        except CannotLower as reason:
            self._refuse(call.place, call.operation, str(reason))
            return Unknown()
        except Stuck as stuck:
            value = stuck.value
            self._refuse_head(value.place or call.place, value.operation or call.operation)
            return Unknown()
        for value in found if isinstance(found, list) else [found]:
            if isinstance(value, Headed) and not value.place:
                value.place, value.operation = call.place, call.operation
        return found

    def check(self) -> None:
        """Raise `UnsupportedOperationError` if there was anything that cannot be lowered."""
        if self._unsupported:
            found = sorted(self._unsupported, key=lambda each: self._places[each[0]])
            raise refused(self.origin, found)

    def _passed_over(self, call: Call, values: list[Any]) -> Unknown:
        opened = [(v.place, v.operation) if isinstance(v, Headed) else v.head for v in values
                  if not isinstance(v, Tensor)]  # fmt: skip
        heads = [head for head in opened if head is not None]
        if call.opens or (heads and call.follows and len(values) == 1):
            return Unknown((heads or [(call.place, call.operation)])[0])
        for head in heads:
            self._refuse_head(*head)
        if not call.known:
            self._refuse(call.place, call.operation)
        return Unknown()

    def _refuse_head(self, place: str, operation: str) -> None:
        self._refuse(place, operation, "only known at the end of a model")

    def _refuse(self, place: str, operation: str, reason: str = "") -> None:
        self._unsupported[place, f"{operation}: {reason}" if reason else operation] = None


#: What an operation's description matches -> why no exact network holds it, and what to do.
_REASONS = {
    r"quantiz|fake_?quant|qlinear|integer\b|\bq(u)?int": (
        "This model rounds its values as it computes (it is quantized, or made ready for that); "
        "pass the one in floating point that it was made from."
    ),
    r"only known at the end": (
        "Softmax, sigmoid, tanh and their kind are read where a model ends in them, not inside of "
        "it: pass the part that ends in logits, and of an average of several models each on its "
        "own."
    ),
    r"(layer|group|instance|rms|lp|unit)_?norm|normalizer|\bstd\b|\bvar\b|mean_?variance": (
        "A normalization by statistics of its own input divides by them, which is not piecewise "
        "linear. Batch normalization, whose statistics are stored, is read."
    ),
    r"gelu|silu|swish|mish|\b[sc]?elu\b|softsign|tanh|\berf|softplus|exponential|logistic": (
        "Smooth activations have no exact piecewise linear form, and x times a clip of x is "
        "quadratic. Relu, leaky relu, PReLU, clips, hard sigmoid and hard tanh are read."
    ),
    r"\b(gru|lstm|rnn|simplernn)": (
        "A recurrent cell multiplies computed values with each other, which is not piecewise "
        "linear. Convolutions over time are read."
    ),
    r"attention|both factors|several factors|divisor|reciprocal|\bpow\b|square|\bprod": (
        "Products, powers and quotients of computed values are not piecewise linear."
    ),
    r"embedding|onehot|one_hot|ordinal|targetencoder|categor|labelencoder|to torch\.u?int|lookup"
    r"|gather: input 1 is not": (
        "Categories are looked up, not computed. Encode the table first and load what reads it (in "
        "scikit-learn `pipeline[-1]`, on `pipeline[:-1].transform(table)`; of an embedding the "
        "layers behind it, on the vectors it looks up); `relunorm fit --one-hot` does both."
    ),
    r"powertransf|polynomial|functiontransf|spline|kbins|discretiz|\blog|sqrt|normal dist": (
        "This curve is not piecewise linear. Apply it to the table first and load what comes "
        "behind (in scikit-learn `pipeline[1:]`; of a transformed target the `regressor_` alone)."
    ),
    r"floor|ceil|remainder|fmod|\bmod\b|round|trunc": (
        "What jumps again and again has no finite number of linear pieces."
    ),
    r"(regressor|classifier|svc|svr|nb|chain|regression)$": (
        "Of scikit-learn's models perceptrons with relu and linear models are read; what is made "
        "of several models (`estimators_`) is loaded one by one."
    ),
    r"\b(sort|topk|kthvalue|median)": "These are piecewise linear, but not supported yet.",
}
_UNKNOWN = "Networks are read exactly or not at all, and this is not known to be piecewise linear."
_MORE = "The operations that are read are listed in docs/formats.md."


def refused(source: str, operations: Sequence[tuple[str, str]]) -> UnsupportedOperationError:
    """The error that names every operation with its place, why it is refused and what to do.

    >>> print(refused("net", [("act", "aten.gelu.default in GELU")]))
    net: 1 operation is not supported:
      - act: aten.gelu.default in GELU
    Smooth activations have no exact piecewise linear form, and x times a clip of x is quadratic. \
Relu, leaky relu, PReLU, clips, hard sigmoid and hard tanh are read.
    The operations that are read are listed in docs/formats.md.
    """
    found = [_reason(described) for _, described in operations]
    return UnsupportedOperationError(source, operations, "\n".join([*dict.fromkeys(found), _MORE]))


def _reason(described: str) -> str:
    for pattern, sentence in _REASONS.items():
        if re.search(pattern, described, re.IGNORECASE):
            return sentence
    return _UNKNOWN
