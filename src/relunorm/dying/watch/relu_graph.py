"""Finding the rectified tensors of a training pass in autograd's graph, with nothing in its way.

Autograd keeps the result of every relu for the backward pass. So once a pass has been watched, the
next ones of the same form are only read off the graph behind their output (docs/dying.md): the
nodes in the order of one walk, with the parameters they end in, must be the same.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from relunorm.dying.watch.passes import tensors_in


def _kinds() -> tuple[type, type]:
    """The types of a relu's node and of a parameter's."""
    with torch.enable_grad():
        node: Any = torch.relu(torch.zeros(1, requires_grad=True)).grad_fn
    return type(node), type(node.next_functions[0][0])


_RELU, _PARAMETER = _kinds()
#: A site's name, the axis that counts its units, whether that is known, and its values.
Found = tuple[str, int, bool, Tensor]


class ReluGraph:
    """The forms of pass seen so far, and which relu of each is which site."""

    #: Watched passes before the graph is first tried; tries, and unknown forms, after which to
    #: watch for good; passes to watch for an unknown form to come again.
    FIRST, TRIES, MISSES, AGAIN = 8, 3, 3, 32

    def __init__(self) -> None:
        self.forms: dict[tuple[Any, ...], list[tuple[str, int, bool]]] = {}
        self.watched = self.tries = self.misses = 0
        self.learning = 0  # passes still to watch for an unknown form

    @property
    def usable(self) -> bool:
        """Whether the next pass need not be watched."""
        return bool(self.forms) and not self.learning and torch.is_grad_enabled()

    def wanted(self) -> bool:
        """Whether the pass that is now being watched is to be learnt."""
        self.watched += 1
        gone = self.tries >= self.TRIES or self.misses > self.MISSES or not torch.is_grad_enabled()
        return not gone and (self.learning > 0 or self.watched >= self.FIRST << self.tries)

    def learn(self, output: Any, sites: list[Found]) -> None:
        """Note the form of a watched pass and its sites."""
        form, found = _walk(output)
        place = {node._saved_result.data_ptr(): at for at, node in enumerate(found)}
        order = [place.get(site[3].data_ptr()) for site in sites]
        if None in order or len(set(order)) < len(found) or len(order) != len(found):
            self.tries += 1  # other rectifiers than relu, or beside the path to the output
            self.forms = {}
        else:
            by_place = {at: site[:3] for at, site in zip(order, sites, strict=True)}
            known, self.forms[form] = form in self.forms, [by_place[at] for at in range(len(found))]
            self.learning = max(self.learning - 1, 0) if known else 0

    def read(self, output: Any) -> list[Found] | None:
        """The sites of a pass that was not watched, or None where its form is new."""
        form, found = _walk(output)
        sites = self.forms.get(form)
        if sites is None:
            self.misses += 1
            self.learning = self.AGAIN
            if self.misses > self.MISSES:
                self.forms = {}
            return None
        return [(*site, node._saved_result) for site, node in zip(sites, found, strict=True)]


def _walk(output: Any) -> tuple[tuple[Any, ...], list[Any]]:
    """The kinds of node behind the output and the parameters they end in, and the relus."""
    waiting = [tensor.grad_fn for tensor in tensors_in(output) if tensor.grad_fn is not None]
    seen, form, found = set(), [], []
    while waiting:
        node: Any = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        kind = type(node)
        form.append(kind)
        if kind is _PARAMETER:
            form.append(id(node.variable))
            continue
        if kind is _RELU:
            found.append(node)
        for after, _ in node.next_functions:
            if after is not None:
                waiting.append(after)
    return tuple(form), found
