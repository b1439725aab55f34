"""Form ``atoms``: first rows and last columns of norm 1, as seed 003, Theorem 6 asks."""

from __future__ import annotations

import numpy as np

from relunorm import matrix as mx
from relunorm.errors import InvalidNetworkError
from relunorm.forms.removal.reduced import Reduced
from relunorm.forms.removal.unobserved import drop_unobserved
from relunorm.forms.shapes.scaling import norms, rescaled, snapped
from relunorm.matrix import Vector
from relunorm.network import Affine, Network


def atoms(network: Network) -> Network:
    """Rows of W_1 and columns of W_L of Euclidean norm 1.

    The first hidden layer is scaled by its rows, the last by what the output reads from it, so two
    hidden layers are needed. Units nobody reads are dropped (a zero column has no direction), units
    with a zero row become constants. Exact up to rounding.
    """
    first = rescaled(network, _first_rows, fold_zero=True)
    network = drop_unobserved(Reduced.whole(first)).network
    count = len(network.layers)
    if count < 2:
        raise InvalidNetworkError(
            f"{network!r}: scaling can give unit rows and unit columns only with two hidden layers "
            f"that reach the output, found {count}. Use the form unit or signed"
        )
    if network.layers[-1].activation.kind == "step":
        raise InvalidNetworkError(
            "a step unit does not grow with its row, so its outgoing column cannot be normalized; "
            "the form atoms needs relu or leaky units in the last hidden layer"
        )
    length = snapped(np.linalg.norm(mx.dense(network.output.terms[count]), axis=0))
    return rescaled(
        network,
        lambda k, affine: 1 / length if k == count - 1 else np.ones(affine.size),
        fold_zero=False,
    )


def _first_rows(k: int, affine: Affine) -> Vector:
    return norms(affine, 2) if k == 0 else np.ones(affine.size)
