"""A copy of a module that can be exported without the caller's module noticing."""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any

import torch
from torch import nn

from relunorm.errors import UnsupportedFormatError


def detached_copy(module: nn.Module) -> nn.Module:
    """The same module in eval mode, without hooks, sharing parameters and buffers.

    Modules that are used in several places stay shared. Only the hooks by which torch.nn.utils
    computes weights (weight_norm, spectral_norm, pruning) are part of what a module computes: they
    are run once on the copy. Other hooks are left out.
    """
    memo: dict[int, Any] = {}
    for part in module.modules():
        for tensor in (*part._parameters.values(), *part._buffers.values(), *vars(part).values()):
            if isinstance(tensor, torch.Tensor):
                memo[id(tensor)] = tensor
        for name, value in vars(part).items():
            if name.endswith(("_hooks", "_hooks_with_kwargs", "_hooks_always_called")):
                memo[id(value)] = OrderedDict()
    try:
        twin = copy.deepcopy(module, memo)
    except Exception as error:
        raise UnsupportedFormatError(
            f"{type(module).__qualname__} cannot be copied ({error}), and the module itself is "
            "never touched; pass torch.export.export(module.eval(), (example,)) instead"
        ) from error
    twin.eval()
    _compute_weights(module, twin)
    return twin


def _compute_weights(module: nn.Module, twin: nn.Module) -> None:
    """Run the pre-forward hooks of torch.nn.utils on the copy's modules."""
    twins = dict(twin.named_modules(remove_duplicate=False))
    done = set()
    for name, part in module.named_modules(remove_duplicate=False):
        if id(part) in done:
            continue
        done.add(id(part))
        for hook in part._forward_pre_hooks.values():
            if type(hook).__module__.startswith("torch.nn.utils."):
                with torch.no_grad():
                    hook(twins[name], None)
