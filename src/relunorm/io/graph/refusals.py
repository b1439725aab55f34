"""Why an operation is refused, and what to do instead."""

from __future__ import annotations

import re
from collections.abc import Sequence

from relunorm.errors import UnsupportedOperationError

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
