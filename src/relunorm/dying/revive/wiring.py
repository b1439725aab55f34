"""Which parameters feed a unit and which read it: what revival has to touch.

One forward pass is traced. Behind every rectifier stands the linear or convolution layer (and
perhaps a normalisation) that made its input; after it, through operations that keep units apart
(dropout, pooling, flatten, normalisation), the layers that read it. Which columns of a reader are
whose is followed entry by entry (`Labels`): a flattened channel owns several. Anything else,
such as a residual sum, makes the unit's output part of something shared; the site then says so and
is left alone. What never reaches the model's output counts for nothing: a hook that logs a mean, a
detached copy, a number taken out with ``item``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from relunorm.dying.revive.initial import evaluating
from relunorm.dying.watch.passes import Watch, call, tensors_in, unwrapped
from relunorm.dying.watch.sites import Labels, SiteMode, calls
from relunorm.errors import InvalidInputError

#: Calls that leave every entry in its place; 0 stays 0.
_SAME = calls("dropout dropout1d dropout2d alpha_dropout contiguous clone to float half bfloat16")
_SAME |= calls("double mul __mul__ div __truediv__")
#: Calls that move, pool or drop entries: `Labels` go through them.
_MOVE = calls("max_pool1d max_pool2d avg_pool1d avg_pool2d interpolate pad mean flatten unflatten")
_MOVE |= calls("adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool2d view reshape")
_MOVE |= calls("squeeze unsqueeze permute transpose")
#: Layers, with the axis of their inputs that their weights' columns read.
WEIGHTED = {F.linear: -1, F.conv1d: -2, F.conv2d: -3, F.conv3d: -4}
_NORM = {F.batch_norm, torch.batch_norm}


@dataclass(frozen=True, eq=False)
class Reader:
    """A layer that reads a site.

    Attributes:
        owner: for each input column (axis 1 of the weight) the unit it belongs to, -1 for padding.
    """

    name: str
    module: nn.Module
    owner: Tensor

    @property
    def spread(self) -> int:
        """How many columns a unit owns at most."""
        return int(self.owner[self.owner >= 0].bincount().max())

    def columns(self, units: Tensor) -> Tensor:
        """Input columns (axis 1 of the weight) that belong to these units."""
        return torch.isin(self.owner, units.cpu()).nonzero()[:, 0].to(units.device)

    def per_unit(self, columns: Tensor, units: int) -> Tensor:
        """Sum a number per column into one per unit."""
        owner = self.owner.to(columns.device)
        mine = owner >= 0
        total = torch.zeros(units, dtype=columns.dtype, device=columns.device)
        return total.index_add_(0, owner[mine], columns[mine])


@dataclass(frozen=True)
class SiteWiring:
    """The parameters around one rectifier.

    Attributes:
        source: name and module of the layer that makes the pre-activations, or None.
        norm: a batch normalisation between the two, or None.
        problem: why the site cannot be revived; "" if it can.
        uneven: why scaling a unit's input does not scale what is read by as much; "" if it does.
    """

    name: str
    units: int
    source: tuple[str, nn.Module] | None
    norm: tuple[str, nn.Module] | None
    readers: tuple[Reader, ...]
    problem: str = ""
    uneven: str = ""

    @property
    def makers(self) -> list[nn.Module]:
        """The layers that make the pre-activations."""
        return [part[1] for part in (self.source, self.norm) if part is not None]

    @property
    def layers(self) -> list[nn.Module]:
        """The layers around the units, those that read them last."""
        return [*self.makers, *(reader.module for reader in self.readers)]

    @property
    def revivable(self) -> bool:
        """Whether every parameter around the units is known."""
        return not self.problem


@dataclass
class _Draft:
    name: str
    units: int
    source: tuple[str, nn.Module] | None = None
    norm: tuple[str, nn.Module] | None = None
    readers: list[Reader] = field(default_factory=list)
    problems: list[tuple[int, str]] = field(default_factory=list)  # with the call that is one
    uneven: str = ""
    trail: tuple[int, ...] = ()  # the values between the layer and the rectifier
    call: int = 0  # the rectifier's own


@dataclass(frozen=True)
class _Origin:
    """Where a tensor came from: made by a layer, or holding a site's units at these places."""

    made_by: tuple[str, nn.Module] | None = None
    norm: tuple[str, nn.Module] | None = None
    site: _Draft | None = None
    labels: Labels | None = None
    trail: tuple[int, ...] = ()


class _Flow:
    """Which calls took and made which values. A tensor written in place holds a new value."""

    def __init__(self) -> None:
        self.now: dict[int, int] = {}  # by tensor: its value
        self.calls: list[tuple[list[int], list[int]]] = []
        self.given: dict[int, int] = {}  # values that no call made, with their tensor
        self.count = 0

    def take(self, tensor: Tensor) -> int:
        """The value a tensor holds now."""
        if id(tensor) not in self.now:
            self.given[self._new(tensor)] = id(tensor)
        return self.now[id(tensor)]

    def _new(self, tensor: Tensor) -> int:
        self.now[id(tensor)] = self.count = self.count + 1
        return self.count

    def call(self, inputs: list[int], made: list[Tensor]) -> int:
        """Note a call; its number."""
        self.calls.append((inputs, [self._new(tensor) for tensor in made]))
        return len(self.calls) - 1

    def reaching(self, outputs: list[Tensor], known: set[int]) -> set[int]:
        """The calls that have a part in the outputs.

        All calls, where the outputs are not tensors, or where a tensor that is no parameter, buffer
        or input came from outside the calls seen: something unseen may have carried a value there.
        """
        wanted = {self.take(tensor) for tensor in outputs}
        found = set()
        for number in range(len(self.calls) - 1, -1, -1):
            inputs, made = self.calls[number]
            if not wanted.isdisjoint(made):
                found.add(number)
                wanted.update(inputs)
        outside = {self.given[value] for value in wanted & self.given.keys()}
        return found if outputs and outside <= known else set(range(len(self.calls)))


class _Tracer(SiteMode):
    """Follows tensors by identity from layer to rectifier to reader."""

    def __init__(self, owners: dict[int, tuple[str, nn.Module]]):
        super().__init__(self._activated)
        self.owners = owners
        self.origins: dict[int, _Origin] = {}
        self.kept: list[Tensor] = []  # keeps ids unique while tracing
        self.call = 0
        self.sites: list[_Draft] = []
        self.input: _Origin | None = None
        self.first = 0  # the value of the call's first tensor
        self.flow = _Flow()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        inputs = list(tensors_in((*args, *kwargs.values())))
        self.input = self.origins.get(id(inputs[0])) if inputs else None
        values = [self.flow.take(tensor) for tensor in inputs]
        self.first = values[0] if values else 0
        before = len(self.sites)
        output = super().__torch_function__(func, types, args, kwargs)
        made = inputs[:1] if func is Tensor.__setitem__ else list(tensors_in(output))
        if not made:  # a look at shape, dtype, ..., or a number for Python
            return output
        self.call = self.flow.call(sorted(set(values)), made)
        if len(self.sites) > before:
            self.sites[-1].call = self.call
            self.sites[-1].uneven = _capped(func, args, kwargs)
        elif isinstance(output, Tensor):
            self._follow(func, args, kwargs, inputs, output)
        else:
            self._mixed(func, inputs)
        self.kept += (*made, *inputs)
        return output

    def _activated(self, name: str, output: Tensor, leaky: bool, axis: int, known: bool) -> None:
        origin = self.input
        draft = _Draft(name, output.shape[axis])
        if origin is None or origin.made_by is None:
            draft.problems.append((ALWAYS, _INDIRECT))
        else:
            draft.source, draft.norm = origin.made_by, origin.norm
            draft.trail = (*origin.trail, self.first)
        if origin is not None and origin.site is not None:
            again = f"its output is rectified again in {name or 'the model'}"
            origin.site.problems.append((len(self.flow.calls), again))  # the call being made
        self.sites.append(draft)
        self.origins[id(output)] = _Origin(site=draft, labels=Labels.along(output.shape, axis))

    def _follow(
        self,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        inputs: list[Tensor],
        output: Tensor,
    ) -> None:
        origin = self.input
        self.origins.pop(id(output), None)
        if func in WEIGHTED:
            owner = self.owners.get(id(inputs[1])) if len(inputs) > 1 else None
            if origin is not None and origin.site is not None:
                self._read(origin, owner, inputs[1], WEIGHTED[func])
            if owner is not None:
                self.origins[id(output)] = _Origin(made_by=owner)
            return
        if func in _NORM and origin is not None:
            owner = next((self.owners[id(t)] for t in inputs[1:] if id(t) in self.owners), None)
            if origin.site is not None:
                self.origins[id(output)] = origin
                origin.site.uneven = "a normalisation after it adds a constant"
            elif origin.made_by is not None and origin.norm is None:
                self.origins[id(output)] = _Origin(
                    made_by=origin.made_by, norm=owner, trail=(self.first,)
                )
            return
        shared = [self.origins.get(id(t)) for t in inputs]
        held = [o for o in shared if o is not None and o.site is not None]
        kept = None
        # What a call gives back as it is (dropout in evaluation) holds nothing any more.
        if origin is not None and origin.labels is not None and len(held) <= 1:
            if func in _SAME and output.shape == origin.labels.owner.shape:
                kept = origin
            elif func in _MOVE:
                labels = origin.labels.through(func, args, kwargs, inputs[0])
                kept = None if labels is None else _Origin(site=origin.site, labels=labels)
        if kept is None:
            self._mixed(func, inputs)
        else:
            self.origins[id(output)] = kept

    def _mixed(self, func: Any, inputs: list[Tensor]) -> None:
        what = getattr(func, "__name__", str(func))
        for origin in (self.origins.get(id(t)) for t in inputs):
            if origin is not None and origin.site is not None:
                mixes = f"its output goes through {what}, which mixes units or adds a constant"
                origin.site.problems.append((self.call, mixes))

    def _read(
        self, origin: _Origin, owner: tuple[str, nn.Module] | None, weight: Tensor, axis: int
    ) -> None:
        assert origin.site is not None
        assert origin.labels is not None
        site = origin.site
        columns = origin.labels.columns(axis)
        if owner is None:
            problem = "it is read by a weight that is no layer's parameter"
        elif columns is None:
            problem = (
                f"{owner[0]} reads along an axis that does not count units: each of its weights "
                "serves several"
            )
        elif weight.shape[1] != len(columns):
            problem = (
                f"{owner[0]} has {weight.shape[1]} columns for {len(columns)} values (grouped?)"
            )
        else:
            site.readers.append(Reader(owner[0], owner[1], columns))
            return
        site.problems.append((self.call, problem))


def _capped(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Why the rectifier is not positively homogeneous, or nothing."""
    if func in (F.relu6, F.hardtanh, F.hardtanh_):
        return "its rectifier has an upper bound"
    high = args[2] if len(args) > 2 else kwargs.get("max")
    clamps = "clamp" in getattr(func, "__name__", "") or "clip" in getattr(func, "__name__", "")
    return "its rectifier has an upper bound" if clamps and high is not None else ""


_SHARED = "its pre-activations are used elsewhere too"
_INDIRECT = "its input does not come straight from a linear or convolution layer"
#: In place of a call: a problem whatever becomes of it.
ALWAYS = -1


def wiring(model: nn.Module, *inputs: Any) -> list[SiteWiring]:
    """Trace one forward pass and list every rectifier with the layers around it.

    One input may be a tuple (the arguments) or a dict (the keyword arguments). The model is put in
    evaluation mode for the pass and back, and no gradients are recorded, so
    nothing in it changes.

    >>> model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2))
    >>> [site] = wiring(model, torch.zeros(1, 1, 4, 4))
    >>> site.source[0], site.readers[0].name, site.readers[0].spread
    ('0', '3', 4)
    """
    root = unwrapped(model)
    owners = {
        id(tensor): (path, module)
        for path, module in root.named_modules()
        for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False))
    }
    tracers: list[_Tracer] = []

    def make(module: nn.Module) -> SiteMode:
        tracers.append(_Tracer(owners))
        return tracers[-1]

    watch = Watch(model, make)
    try:
        with torch.no_grad(), evaluating(root):
            output = call(model, inputs[0] if len(inputs) == 1 else inputs, seen_by=watch)
    finally:
        watch.close()
    if not tracers:
        raise InvalidInputError("the model's forward did not run")
    tracer, results = tracers[0], list(tensors_in(output))
    for tensor in results:
        origin = tracer.origins.get(id(tensor))
        if origin is not None and origin.site is not None:
            origin.site.problems.insert(0, (ALWAYS, "the model returns it"))
    known = {*owners, *map(id, tensors_in(inputs))}
    return _finish(tracer.sites, tracer.flow, tracer.flow.reaching(results, known), results)


def outdated(model: nn.Module, sites: Sequence[SiteWiring]) -> bool:
    """Whether a layer around a site is no longer in the model."""
    there = set(unwrapped(model).modules())
    return any(module not in there for site in sites for module in site.layers)


def _finish(
    drafts: list[_Draft], flow: _Flow, live: set[int], results: list[Tensor]
) -> list[SiteWiring]:
    """The sites, judged by the calls that have a part in the outputs."""
    uses = Counter(value for number in live for value in flow.calls[number][0])
    uses.update(flow.take(tensor) for tensor in results)
    tensors = Counter({flow.given[v]: count for v, count in uses.items() if v in flow.given})
    rectified = Counter(id(d.source[1]) for d in drafts if d.source is not None and d.call in live)
    found = []
    for draft in drafts:
        problem = next((text for at, text in draft.problems if at == ALWAYS or at in live), "")
        if not problem and draft.source is not None and rectified[id(draft.source[1])] > 1:
            problem = f"its layer {draft.source[0]} is used by several rectifiers"
        if not problem and any(uses[value] > 1 for value in draft.trail):
            problem = _SHARED
        if not problem and draft.call not in live:
            problem = "the model's output does not depend on it"
        if not problem and not draft.readers:
            problem = "no layer reads it"
        around = [part for part in (draft.source, draft.norm) if part is not None]
        for name, module in (*around, *((reader.name, reader.module) for reader in draft.readers)):
            if not problem and any(tensors[id(p)] > 1 for p in module.parameters(False)):
                problem = f"the parameters of {name} are used more than once (tied or called twice)"
        known = (draft.name, draft.units, draft.source, draft.norm, tuple(draft.readers))
        found.append(SiteWiring(*known, problem, draft.uneven))
    return found
