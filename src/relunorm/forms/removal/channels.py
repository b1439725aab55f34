"""Removal in whole channels, so that a convolution stays a convolution.

The kernels of a convolution are the rows of a small matrix, and what is known about rows (zero,
multiples of one another, carried past a layer) holds for channels at every position. So one or two
maps of a structure with the activation between them are reduced as a small network of their kernels
(`sweep`), and what reads their channels is rewritten: y = R y' + r, with R and r found there. A
channel is dropped too when it is dead at every position, or read with no weight.

Zero padding is no channel's value, so a constant r other than 0 moves into the next bias only where
nothing is padded. Max pooling and activations need rows of R with one entry that is not negative.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.forms.outward import Range
from relunorm.forms.removal.reduced import (
    Architecture,
    Reduced,
    Removal,
    Rules,
    Straight,
    by_sign,
    nothing_known,
)
from relunorm.forms.removal.sweeps import remove
from relunorm.matrix import Array
from relunorm.network import Activation, Affine, Layer, Network, whole
from relunorm.network.structure import Step, Structure

#: Steps that act on every channel by itself.
APART = ("activation", "clip", "max_pool", "average_pool", "upsample")


def reduce_channels(
    network: Network, structure: Structure, straight: Straight, rules: Rules
) -> tuple[Structure, list[Removal]]:
    """The structure without channels that do nothing, and the units that are gone.

    Args:
        straight: the units of the network without linear stages that are known to be linear.

    Exact up to rounding and to the tolerance of the rules; nothing is proved here.
    """
    folded = {layer: k for k, layer in enumerate(network.hidden)}
    steps = tuple(replace(step, layer=folded.get(step.layer, -1)) for step in structure.steps)
    structure = Structure(steps)
    state = _State(structure, _dead_channels(structure, straight))
    changed = True
    while changed:
        changed = False
        for number in range(len(state.structure.steps)):
            rules.clock.check()
            if state.reduce(number, rules):
                changed = True
                break
    return state.structure, state.removed


def _dead_channels(structure: Structure, straight: Straight) -> dict[int, NDArray[np.bool_]]:
    """Per activation step which channels are 0 at every position over the domain."""
    result = {}
    for number, step in enumerate(structure.steps):
        if step.kind == "activation" and step.layer >= 0:
            flat, slope = straight.flat[step.layer], straight.slope[step.layer]
            silent = flat & (slope == 0) & (straight.constant[step.layer] == 0)
            result[number] = silent.reshape(step.shape[0], -1).all(axis=1)
    return result


@dataclass
class _Reader:
    """A convolution or dense map that reads channels, and what they went through on the way.

    Attributes:
        padded: zeros are put beside the values, or counted with them.
        pooled: the largest of several values is taken.
        bent: another activation is applied.
    """

    number: int
    padded: bool
    pooled: bool
    bent: bool


@dataclass
class _State:
    """The structure so far; per activation its dead channels and where its channels came from."""

    structure: Structure
    dead: dict[int, NDArray[np.bool_]]
    names: dict[int, list[int]] = field(default_factory=dict)
    removed: list[Removal] = field(default_factory=list)

    def reduce(self, number: int, rules: Rules) -> bool:
        """Try to drop channels of the map at ``number``; whether any went."""
        steps = self.structure.steps
        step = steps[number]
        if step.kind not in ("conv", "conv_transpose", "linear") or step.groups != 1:
            return False
        after = self._only_reader(number)
        if after is None or steps[after].kind != "activation":
            return False
        return self._through(number, after, rules) or self._alone(number, after, rules)

    def _alone(self, number: int, after: int, rules: Rules) -> bool:
        """Channels that are dead, constant, unread or multiples of one another."""
        steps = self.structure.steps
        step, activation = steps[number], steps[after].activation
        readers = self._readers(after)
        if readers is None or step.weight is None or step.bias is None or activation is None:
            return False
        silent = self.dead.get(after, np.zeros(len(step.weight), dtype=bool)).copy()
        silent |= ~self._read(readers, len(step.weight))
        rows, bias = step.weight.reshape(len(step.weight), -1).copy(), step.bias.copy()
        silent |= ~rows.any(axis=1) & (activation.apply_(bias.copy()) == 0)
        rows[silent], bias[silent] = 0.0, 0.0
        found = _reduced([(rows, bias, activation)], rules, "keep")
        if found is not None and not self._fits(readers, found):
            # channels that are constant stay in front of padding, but one is enough for all
            both = np.column_stack([rows, bias])
            found = _reduced([(both, np.zeros(len(both)), activation)], rules, "keep")
            if found is not None:
                weight, last = found.weight[:, :-1].copy(), found.weight[:, -1].copy()
                found = replace(found, weight=weight, bias=last)
        if found is None or len(found.kept) >= len(rows) or not self._fits(readers, found):
            return False
        weight = found.weight.reshape(-1, *step.weight.shape[1:])
        self._note(after, [c for c in range(len(rows)) if c not in set(found.kept)])
        self._keep(after, found.kept)
        made: dict[int, Step | None] = {number: replace(step, weight=weight, bias=found.bias)}
        self._rewrite(made, readers, found)
        return True

    def _through(self, number: int, after: int, rules: Rules) -> bool:
        """Channels that only carry what the next map computes from them."""
        steps = self.structure.steps
        following = self._only_reader(after)
        if following is None or not _pointwise(steps[following]):
            return False
        last = self._only_reader(following)
        if last is None or steps[last].kind != "activation":
            return False
        first, second = steps[number], steps[following]
        readers = self._readers(last)
        parts = (first.weight, first.bias, second.weight, second.bias)
        acts = steps[after].activation, steps[last].activation
        if readers is None or any(p is None for p in parts) or any(a is None for a in acts):
            return False
        w1, b1, w2, b2 = (np.asarray(p) for p in parts)
        if second.kind != first.kind or w2.shape[1] != len(w1):
            return False
        found = _reduced(
            [
                (w1.reshape(len(w1), -1), b1, acts[0] or Activation()),
                (w2.reshape(len(w2), -1), b2, acts[1] or Activation()),
            ],
            rules,
            "any",
        )
        if found is None or not self._fits(readers, found):
            return False
        shape = (len(found.weight), *first.shape[1:])
        made: dict[int, Step | None] = {
            number: replace(
                first, weight=found.weight.reshape(-1, *w1.shape[1:]), bias=found.bias, shape=shape
            ),
            after: None,
            following: None,
            last: replace(steps[last], inputs=(number,)),
        }
        self._note(after, range(len(w1)), "carrier")
        if sorted(found.kept) == list(range(len(w2))):
            self._keep(last, found.kept)
        else:  # some channels stand for those of the first map, about which less is known
            self.dead.pop(last, None)
        self._rewrite(made, readers, found)
        return True

    def _only_reader(self, number: int) -> int | None:
        readers = self.structure.readers(number)
        return readers[0] if len(readers) == 1 else None

    def _readers(self, number: int) -> list[_Reader] | None:
        """All maps that read the channels of a step; None where something else does."""
        steps, result = self.structure.steps, []
        pending = [(number, _Reader(number, False, False, False))]
        while pending:
            at, way = pending.pop()
            following = self.structure.readers(at)
            if not following:
                return None  # the output
            for reader in following:
                step = steps[reader]
                pads = step.geometry is not None and any(map(any, step.geometry.pads))
                if step.kind == "max_pool":
                    pending.append((reader, replace(way, pooled=True)))
                elif step.kind == "average_pool":
                    padded = way.padded or (pads and step.count_padding)
                    pending.append((reader, replace(way, padded=padded)))
                elif step.kind in ("activation", "clip"):
                    pending.append((reader, replace(way, bent=True)))
                elif step.kind == "upsample" or (step.kind == "reshape" and len(step.shape) == 1):
                    pending.append((reader, way))
                elif step.kind == "linear":
                    result.append(replace(way, number=reader))
                elif step.kind.startswith("conv") and step.groups == 1 and len(steps[at].shape) > 1:
                    padded = way.padded or pads or step.kind == "conv_transpose"
                    result.append(replace(way, number=reader, padded=padded))
                else:
                    return None
        return result

    def _read(self, readers: Sequence[_Reader], channels: int) -> NDArray[np.bool_]:
        """Which channels are read with a weight."""
        result = np.zeros(channels, dtype=bool)
        for reader in readers:
            weight = np.asarray(self.structure.steps[reader.number].weight)
            by_channel = weight.reshape(len(weight), channels, -1)
            result |= by_channel.any(axis=(0, 2))
        return result

    def _fits(self, readers: Sequence[_Reader], found: _Found) -> bool:
        """Whether y = R y' + r holds behind everything on the way to the readers."""
        multiples = ((found.spread != 0).sum(axis=1) <= 1).all() and (found.spread >= 0).all()
        constant = bool(found.constant.any())
        copies = multiples and not constant and np.isin(found.spread, (0.0, 1.0)).all()
        if constant and any(reader.padded for reader in readers):
            return False
        if not multiples and any(reader.pooled for reader in readers):
            return False
        return bool(copies) or not any(reader.bent for reader in readers)

    def _rewrite(
        self, made: dict[int, Step | None], readers: Sequence[_Reader], found: _Found
    ) -> None:
        """Put the new steps in, drop those that are None, and let the readers read anew."""
        steps: list[Step | None] = list(self.structure.steps)
        for k, step in made.items():
            steps[k] = step
        for reader in readers:
            step = self.structure.steps[reader.number]
            weight, bias = np.asarray(step.weight), np.asarray(step.bias)
            old = len(found.spread)
            split = weight.reshape(len(weight), old, -1)
            mixed = np.einsum("ocp,cn->onp", split, found.spread)
            shape = (len(weight), found.spread.shape[1], *weight.shape[2:])
            flat = mixed.reshape(shape if step.kind != "linear" else (len(weight), -1))
            extra = np.einsum("ocp,c->o", split, found.constant)
            steps[reader.number] = replace(step, weight=flat, bias=bias + extra)
        numbers = [k for k, step in enumerate(steps) if step is not None]
        place = {k: i for i, k in enumerate(numbers)}
        result: list[Step] = []
        for k in numbers:
            step = steps[k]
            assert step is not None
            step = replace(step, inputs=tuple(place[i] for i in step.inputs))
            result.append(replace(step, shape=_shape(step, result)))
        self.dead = {place[k]: mask for k, mask in self.dead.items() if k in place}
        self.names = {place[k]: names for k, names in self.names.items() if k in place}
        self.structure = Structure(tuple(result))

    def _keep(self, after: int, kept: Sequence[int]) -> None:
        """These channels of an activation stay, in this order."""
        names = self.names.get(after, list(range(self.structure.steps[after].shape[0])))
        self.names[after] = [names[c] for c in kept]
        if after in self.dead:
            self.dead[after] = self.dead[after][np.asarray(kept, dtype=np.intp)]

    def _note(self, after: int, channels: Sequence[int] | range, reason: str = "channel") -> None:
        """Every unit of the channels is gone."""
        step = self.structure.steps[after]
        plane = math.prod(step.shape[1:])
        names = self.names.get(after, list(range(step.shape[0])))
        for c in channels:
            first = names[c] * plane
            self.removed += [Removal(step.layer, first + i, reason) for i in range(plane)]


@dataclass(frozen=True)
class _Found:
    """New rows, and how the old channels are made of the new: spread @ new + constant."""

    weight: Array
    bias: Array
    spread: Array
    constant: Array
    kept: list[int]


def _reduced(
    parts: Sequence[tuple[Array, Array, Activation]], rules: Rules, architecture: Architecture
) -> _Found | None:
    """One layer that does what the given ones do, if there is one."""
    size = len(parts[-1][0])
    layers = [Layer(Affine({k: w}, b), act) for k, (w, b, act) in enumerate(parts)]
    output = whole(len(parts), size)
    network = Network(layers, output, input_shape=parts[0][0].shape[1])
    ranges = [Range.endless(layer.width) for layer in layers]
    how = replace(rules, architecture=architecture, prefer="units")
    straight = by_sign(network, nothing_known(network))
    reduced: Reduced = remove(network, straight, ranges, None, how)
    small = reduced.network
    if len(small.layers) != 1 or small.output.sources != (1,):
        return None
    layer = small.layers[0]
    if layer.affine.sources != (0,) or layer.activation != parts[-1][2]:
        return None
    kept = [-1 if o is None else o[1] for o in reduced.origins[0]]
    return _Found(
        mx.dense(layer.affine.terms[0]).copy(),
        layer.affine.bias.copy(),
        mx.dense(small.output.terms[1]),
        small.output.bias,
        kept,
    )


def _pointwise(step: Step) -> bool:
    """Whether a map mixes channels at one position and nothing else."""
    if step.kind == "linear":
        return True
    g = step.geometry
    return (
        step.kind == "conv"
        and step.groups == 1
        and g is not None
        and set(g.kernel) == set(g.stride) == {1}
        and not any(map(any, g.pads))
    )


def _shape(step: Step, before: Sequence[Step]) -> tuple[int, ...]:
    """The shape of a step whose inputs may have lost channels."""
    if step.kind in ("conv", "conv_transpose", "linear"):
        return (len(np.asarray(step.weight)), *step.shape[1:])
    if step.kind in APART:
        return (before[step.inputs[0]].shape[0], *step.shape[1:])
    if step.kind == "reshape" and len(step.shape) == 1:
        return (math.prod(before[step.inputs[0]].shape),)
    return step.shape
