"""A torch module in the reduced parameter space, for any optimizer, and back.

Every Linear followed by ReLU gets unit rows and thresholds in the support interval of what it can
receive, through ``torch.nn.utils.parametrize``; row lengths move into the next layer, so the
function on the domain does not change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from relunorm.domain import Box, Domain
from relunorm.errors import InvalidInputError
from relunorm.nn.hidden import HiddenLinear, hidden_linears, unwrapped
from relunorm.sweep.tasks import own_class


@dataclass(frozen=True)
class InputRange:
    """What a layer can receive, with the extremes of w.h over it for every row w.

    - box: h within ``halfwidth`` of ``center``, coordinate by coordinate
    - ball: h within ``radius`` of ``center``
    - cone: h >= 0 with |h| <= ``radius``, which holds behind any hidden layer (docs/errata, seed
      001, in place of eq. 4.5): extremes -|w_-| radius and |w_+| radius
    """

    kind: str
    center: Tensor
    halfwidth: Tensor
    radius: float

    def extremes(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Smallest and largest w.h, row by row; differentiable in w."""
        if self.kind == "cone":
            return -self.radius * w.clamp_max(0).norm(dim=1), self.radius * w.clamp_min(0).norm(
                dim=1
            )
        middle = w @ self.center.to(w)
        if self.kind == "ball":
            reach = self.radius * w.norm(dim=1)
        else:
            reach = w.abs() @ self.halfwidth.to(w)
        return middle - reach, middle + reach

    def behind(self, width: int) -> InputRange:
        """What the next layer receives: a unit's value is at most the length of its interval."""
        if self.kind == "cone":
            longest = math.sqrt(2) * self.radius
        else:
            longest = 2 * (self.radius if self.kind == "ball" else float(self.halfwidth.norm()))
        empty = torch.zeros(width, dtype=torch.float64)
        return InputRange("cone", empty, empty, math.sqrt(width) * longest)


class UnitRows(nn.Module):
    """u -> u / |u|, row by row."""

    def forward(self, u: Tensor) -> Tensor:
        return u / u.norm(dim=1, keepdim=True).clamp_min(torch.finfo(u.dtype).tiny)

    def right_inverse(self, w: Tensor) -> Tensor:
        """A preimage: any matrix without zero rows is its own."""
        return w


class ClippedThresholds(nn.Module):
    """b -> the nearest threshold in [-max w.h, -min w.h]; while training, b itself is put there.

    Moving the stored value keeps its gradient alive: a value outside would get none and stay out.
    """

    def __init__(self, linear: nn.Linear, inputs: InputRange):
        super().__init__()
        self.inputs = inputs
        # a tuple hides the layer from the module tree, which would otherwise be circular
        self._linear = (linear,)

    def forward(self, b: Tensor) -> Tensor:
        weight = self._linear[0].weight
        if weight.device != b.device:
            raise InvalidInputError(
                f"a constrained layer has its threshold on {b.device} and its weight on "
                f"{weight.device}: replicas of nn.DataParallel on several devices are not "
                "supported; use DistributedDataParallel"
            )
        low, high = self.inputs.extremes(weight)
        if self._stores and torch.is_grad_enabled() and b.requires_grad:
            b.data.clamp_(-high.detach(), -low.detach())
        return torch.clamp(b, -high, -low)

    @property
    def _stores(self) -> bool:
        # an exported program may not write to its parameters; torch < 2.7 cannot tell
        exporting = getattr(torch.compiler, "is_exporting", None)
        return self.training and not (exporting is not None and exporting())

    def right_inverse(self, b: Tensor) -> Tensor:
        """Thresholds are stored as they are."""
        return b


def constrain(module: nn.Module, domain: Domain | Any) -> nn.Module:
    """Put every Linear followed by ReLU into the reduced space, in place, and return the module.

    Rows become w/|w| with b/|w|, the reader's columns are multiplied by |w|, a unit that is active
    on the whole domain hands b - max b to the reader's bias, and one that is dead on it gets the
    smallest threshold. On the domain the function stays the same up to rounding. The first layer's
    interval is exact for a box and a ball (a polytope counts as its bounding box); later ones are
    sound bounds.

    Args:
        module: anything torch.fx can trace, for example a Sequential; also compiled or wrapped for
            several devices.
        domain: a `Domain`, or data of shape (n, d): the smallest box around it.

    >>> net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1)).double()
    >>> x = torch.rand(50, 2, dtype=torch.float64)
    >>> before = net(x)
    >>> _ = constrain(net, x)
    >>> norms = net[0].weight.norm(dim=1)
    >>> torch.allclose(net(x), before), torch.allclose(norms, torch.ones_like(norms))
    (True, True)
    >>> torch.allclose(release(net)(x), before), type(net[0]).__name__
    (True, 'Linear')
    """
    layers = hidden_linears(unwrapped(module))
    if any(parametrize.is_parametrized(layer.linear) for layer in layers):
        raise InvalidInputError("the module already has parametrizations; call release first")
    for layer in layers:
        for name, linear in ((layer.name, layer.linear), *layer.readers):
            if any(p.is_meta for p in linear.parameters()):
                raise InvalidInputError(
                    f"layer {name!r} is on the meta device and has no weights yet; materialize the "
                    "module first"
                )
            if not all(bool(p.isfinite().all()) for p in linear.parameters()):
                raise InvalidInputError(f"layer {name!r} holds NaN or infinite weights")
    ranges: dict[str, InputRange] = {}
    for layer in layers:
        if layer.source is None:
            raise InvalidInputError(
                f"layer {layer.name!r} reads neither the module's input nor the ReLU of a Linear "
                "layer, so what it can receive is not known"
            )
        if layer.source in ranges:
            received = ranges[layer.source].behind(layer.linear.in_features)
        else:
            received = _range_of(domain, layer)
        ranges[layer.name] = received
    with torch.no_grad():
        for layer in layers:
            _rescale(layer)
            _clip(layer, ranges[layer.name])
    for layer in layers:
        parametrize.register_parametrization(layer.linear, "weight", UnitRows())
        if layer.linear.bias is not None:
            clipped = ClippedThresholds(layer.linear, ranges[layer.name])
            parametrize.register_parametrization(layer.linear, "bias", clipped)
    return module


def release(module: nn.Module) -> nn.Module:
    """Take the parametrizations off again, in place: a plain module with the same function.

    The result can be pickled, exported and saved. Only what `constrain` added is removed.
    """
    for part in list(module.modules()):
        if not parametrize.is_parametrized(part):
            continue
        own_class(part)
        # the bias first: its interval depends on the weight
        for name in ("bias", "weight"):
            held = getattr(part, "parametrizations", {})
            if name in held and isinstance(held[name][0], UnitRows | ClippedThresholds):
                parametrize.remove_parametrizations(part, name, leave_parametrized=True)
    return module


def _range_of(domain: Domain | Any, layer: HiddenLinear) -> InputRange:
    """The domain as an `InputRange` for a layer that reads the module's input."""
    if not isinstance(domain, Domain):
        array = domain.detach().cpu().double().numpy() if isinstance(domain, Tensor) else domain
        try:
            rows = np.asarray(array, dtype=np.float64)
        except (TypeError, ValueError):
            rows = np.empty(0)
        if rows.ndim < 2:
            raise InvalidInputError(
                f"constrain got {domain!r:.60} as the domain; expected a Domain or data of shape "
                "(n, d)"
            )
        domain = Box.around(rows)
    domain.check_dimension(layer.linear.in_features, f"layer {layer.name!r}")
    ball = domain.as_ball
    if ball is not None:
        center = torch.from_numpy(ball.middle.copy())
        return InputRange("ball", center, torch.zeros_like(center), ball.reach)
    box = domain.bounding_box
    center, halfwidth = (torch.from_numpy(v.copy()) for v in (box.center, box.halfwidth))
    return InputRange("box", center, halfwidth, 0.0)


def _rescale(layer: HiddenLinear) -> None:
    """Unit rows; lengths into the readers' columns. A row of zeros is a constant: folded away."""
    linear = layer.linear
    length = linear.weight.norm(dim=1)
    dead = length == 0
    if bool(dead.any()):
        constant = torch.zeros_like(length)
        if linear.bias is not None:
            constant[dead] = linear.bias[dead].clamp_min(0)
        _push(layer, constant)
        for _, reader in layer.readers:
            reader.weight[:, dead] = 0.0
        linear.weight[dead, 0] = 1.0
        if linear.bias is not None:
            linear.bias[dead] = torch.finfo(linear.bias.dtype).min
        length[dead] = 1.0
    linear.weight.div_(length[:, None])
    if linear.bias is not None:
        linear.bias.div_(length)
    for _, reader in layer.readers:
        reader.weight.mul_(length)


def _clip(layer: HiddenLinear, inputs: InputRange) -> None:
    """Bias clipping: what exceeds the interval goes, times the outgoing weights, to the readers."""
    linear = layer.linear
    if linear.bias is None:
        return
    low, high = inputs.extremes(linear.weight)
    _push(layer, (linear.bias + low).clamp_min(0))
    linear.bias.clamp_(-high, -low)


def _push(layer: HiddenLinear, constant: Tensor) -> None:
    """Add the constant value of units to the biases of the layers that read them."""
    if not bool((constant > 0).any()):
        return
    for name, reader in layer.readers:
        if reader.bias is None:
            raise InvalidInputError(
                f"layer {layer.name!r} has units that are active on the whole domain, and layer "
                f"{name!r} that reads them has no bias to take their constant part; give it one"
            )
        reader.bias.add_(reader.weight @ constant)
