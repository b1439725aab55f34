"""Watch every rectifier of a torch model over a stream of batches and tell which units are dead."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from relunorm.arguments import real_number, whole_number
from relunorm.dying.watch.monitor_report import MonitorReport, SiteReport
from relunorm.dying.watch.passes import Unwatched, Watch
from relunorm.dying.watch.relu_graph import Found, ReluGraph
from relunorm.dying.watch.sites import SiteMode
from relunorm.errors import InvalidInputError

Log = Callable[[str, float, int], None]


#: Batches whose sums a tally holds before it looks at them.
HELD = 128
#: Entries of the largest activation that the compiled loop reads; torch shares larger ones among
#: its threads.
ONE_THREAD = 1 << 18


class _Tally:
    """Sums for one site, on the device of its activations: O(units) memory, no host transfer.

    Silences and windows count the batches in which the site ran, its runs: a branch that is not
    taken is not dead.
    """

    axis, axis_known = -1, True

    def __init__(self, units: int, leaky: bool, device: torch.device, window: int, first: int = 0):
        self.units, self.leaky, self.device, self.window = units, leaky, device, window
        # Created outside inference mode, so that later passes outside it may update them.
        with torch.inference_mode(False), torch.no_grad():
            wide = {"device": device, "dtype": torch.int64}
            # Held counts: exact as float64; as float32, which GPUs prefer, up to 2^24.
            held = torch.float64 if device.type == "cpu" else torch.float32
            # float64 holds every count, where the device has it.
            kind = torch.float32 if device.type == "mps" else torch.float64
            # This stretch, the one before: samples on which active, sum of sizes, samples in it.
            self.sums = [torch.zeros(3, units, device=device, dtype=kind) for _ in range(2)]
            self.last = torch.full((units,), -1, **wide)  # run of the last activity
            self.when = torch.full((units,), first - 1, **wide)  # and its batch
            self.first_death = torch.full((units,), -1, **wide)
            self.broken = torch.full((2, units), -1, **wide)  # last run with NaN, with infinities
            self.held = torch.zeros(HELD, 2, units, device=device, dtype=held)
        self.addresses = [row.data_ptr() for row in self.held.view(2 * HELD, units)]
        self.compiled = _compiled() if device.type == "cpu" else {}
        self.runs = 0
        self.steps: list[int] = []  # batches of the held runs
        self.counts: list[int] = []  # samples of the held batches
        self.samples = [0, 0]  # this stretch, the one before

    def add(self, values: Tensor, axis: int, step: int) -> None:
        """Hold one batch's sums."""
        if self.runs and self.runs % self.window == 0:
            self.rotate()
        self.runs += 1
        entries, row = values.numel(), len(self.steps)
        activity = self.compiled.get(values.dtype)
        plain = entries <= ONE_THREAD and type(values) is Tensor
        inner = _inner(values, axis) if activity is not None and plain else 0
        if activity is not None and inner:
            outer = entries // (self.units * inner)
            active, magnitude = self.addresses[2 * row : 2 * row + 2]
            activity(values.data_ptr(), outer, self.units, inner, active, magnitude)
        else:
            self._sum(values.detach(), axis, self.held[row])
        self.counts.append(entries // self.units)
        self.steps.append(step)
        if row + 1 == HELD:
            self.flush()

    def _sum(self, values: Tensor, axis: int, row: Tensor) -> None:
        """The same sums by torch: other devices and types, large or strided activations."""
        rest = [k for k in range(values.ndim) if k != axis]
        # Ones and zeros as floats: summing booleans is four times slower. NaN is not above 0.
        scratch = torch.empty_like(values)
        torch.sum(torch.gt(values, 0, out=scratch), rest, dtype=row.dtype, out=row[0])
        sizes = torch.abs(values, out=scratch) if self.leaky else values
        torch.sum(sizes, rest, dtype=row.dtype, out=row[1])

    def flush(self) -> None:
        """Take the held sums into the tally."""
        count = len(self.steps)
        if not count:
            return
        active, sizes = self.held[:count].unbind(1)
        steps, counts = torch.tensor([self.steps, self.counts], device=active.device)
        # A batch in which a unit's sizes overflow or are NaN says nothing about its size.
        fine = sizes.isfinite()
        broken = sizes.isnan()
        if not bool(fine.all()):
            runs = torch.arange(self.runs - count, self.runs, device=sizes.device)[:, None]
            for row, bad in enumerate((broken, ~fine & ~broken)):
                last = torch.where(bad, runs, -1).amax(0)
                torch.maximum(self.broken[row], last, out=self.broken[row])
        of_size = torch.where(fine, counts[:, None], 0)
        found = (active, torch.where(fine, sizes, 0.0), of_size)
        self.sums[0] += torch.stack([part.to(self.sums[0].dtype).sum(0) for part in found])
        self.samples[0] += sum(self.counts)
        self._note((active > 0) | broken, steps)  # NaN is no silence
        self.steps, self.counts = [], []

    def _note(self, active: Tensor, steps: Tensor) -> None:
        """Note when units were last active, and silences of a whole window that end here."""
        start = self.runs - len(steps)
        runs = torch.arange(start, self.runs, device=steps.device)[:, None]
        latest = torch.cat([self.last[None], torch.where(active, runs, -1)]).cummax(0).values
        ends = active & (runs - latest[:-1] > self.window)
        before = latest.gather(0, ends.to(torch.uint8).argmax(0, keepdim=True))[0]

        def batch(run: Tensor) -> Tensor:
            return torch.where(run < start, self.when, steps[(run - start).clamp_min(0)])

        new = ends.any(0) & (self.first_death < 0)
        self.first_death = torch.where(new, batch(before) + 1, self.first_death)
        self.last, self.when = latest[-1], batch(latest[-1])

    def rotate(self) -> None:
        """Start a new stretch."""
        self.flush()
        self.sums.reverse()
        self.sums[0].zero_()
        self.samples = [0, self.samples[0]]

    def deaths(self) -> Tensor:
        """The first batch of each unit's first silence of a whole window, the last one included."""
        silent = (self.last < self.runs - self.window) & (self.first_death < 0)
        return torch.where(silent, self.when + 1, self.first_death)


class DeadUnitMonitor:
    """Which units of a torch model are dead, dormant or nearly linear, and since when.

    Sees ``nn.ReLU``, ``F.relu``, ``torch.relu``, ``clamp(min=0)``, ReLU6, leaky and parametric
    relus, in place or not, reused or not, in the order of the calls. Nothing about the model is
    changed but forward hooks, which `close` (or leaving the ``with`` block) removes. Forward
    passes are counted in training and evaluation alike, but not those that backward repeats or
    that have shapes only (``meta`` tensors); a
    unit is a column of a dense layer, a channel of a convolution, a feature of a sequence. A unit
    that gives NaN or infinity is reported as such, and NaN is not silence.

    Not seen: rectifiers inside compiled or scripted modules, whose Python code does not run, and
    relus written as ``torch.where`` or ``torch.maximum``.

    Args:
        model: the module whose forward passes are to be watched.
        window: batches without activity after which a unit counts as dead; of those in which its
            rectifier ran. Shares and scores are over the last one to two windows.
        tau: a unit whose mean |activation| is at most tau times its layer's mean is dormant
            (Sokar et al. 2023; their 0.025 by default).
        linear: a unit active on at least this share of samples is nearly linear.
        every: look at every so-many-th forward pass only.
        log: called as log(name, value, step) by `log_to`, at the end of every ``log_every``-th
            batch.

    Cost: on a CPU one read of each activation, elsewhere two reductions over it; measured in
    benchmarks/dying.py. The first passes are watched call by call; further training passes of the
    same form are read off autograd's graph (`relu_graph`), where relu is the only rectifier. The
    first pass of a new form after that is not counted.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    >>> _ = model[0].weight.data.zero_(), model[0].bias.data.copy_(torch.tensor([1., -1., 1.]))
    >>> with DeadUnitMonitor(model) as monitor:
    ...     _ = model(torch.zeros(8, 2))
    >>> monitor.report()["1"].dead.tolist()
    [False, True, False]
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        window: int = 100,
        tau: float = 0.025,
        linear: float = 0.999,
        every: int = 1,
        log: Log | None = None,
        log_every: int = 100,
    ):
        if not isinstance(model, nn.Module):
            raise InvalidInputError(f"expected a torch.nn.Module, got {type(model).__name__}")
        for name, value in (("window", window), ("every", every), ("log_every", log_every)):
            whole_number(name, value, 1)
        if not (real_number("tau", tau) >= 0 and 0 < real_number("linear", linear) <= 1):
            raise InvalidInputError(
                f"tau={tau}, linear={linear}: expected tau >= 0, 0 < linear <= 1"
            )
        if log is not None and not callable(log):
            raise InvalidInputError(
                f"log is {log!r}, expected a function log(name, value, step) or None"
            )
        self.window, self.tau, self.linear, self.every = window, tau, linear, every
        self.log, self.log_every = log, log_every
        self.batches = 0
        self._passes = 0
        self._tallies: dict[str, _Tally] = {}
        self._graph = ReluGraph()
        self._lock = threading.Lock()
        self.watch: Watch | None = Watch(model, self._begin)

    def __enter__(self) -> DeadUnitMonitor:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Take the hooks off the model. The report stays available."""
        if self.watch is not None:
            self.watch.close()
            self.watch = None

    def reset(self) -> None:
        """Forget everything seen so far."""
        with self._lock:
            self._tallies, self.batches, self._passes = {}, 0, 0

    def _begin(self, module: nn.Module) -> SiteMode | Unwatched | None:
        with self._lock:
            self._passes += 1
            if (self._passes - 1) % self.every:
                return None
            if self._graph.usable:
                return Unwatched(self._read)
            step = self.batches
            self.batches += 1
            sites: list[Found] | None = [] if self._graph.wanted() else None
        mode = SiteMode(partial(self._observe, step, sites))
        mode.done = partial(self._watched, step, sites)
        return mode

    def _watched(self, step: int, sites: list[Found] | None, output: Any) -> None:
        """A pass that was watched call by call is over."""
        if sites is not None and output is not None:
            with self._lock:
                self._graph.learn(output, sites)
        if self.log is not None and (step + 1) % self.log_every == 0:
            self.log_to(self.log)

    def _read(self, output: Any) -> None:
        """A pass that was not is over: its relus are found in the graph behind its output."""
        if output is None:  # it failed
            return
        with self._lock:
            sites = self._graph.read(output)
            if sites is None:
                return
            step = self.batches
            self.batches += 1
        for name, axis, known, values in sites:
            self._observe(step, None, name, values, False, axis, known)
        if self.log is not None and (step + 1) % self.log_every == 0:
            self.log_to(self.log)

    def _observe(
        self,
        step: int,
        sites: list[Found] | None,
        name: str,
        values: Tensor,
        leaky: bool,
        axis: int,
        known: bool,
    ) -> None:
        if not values.numel() or values.is_meta:  # an empty batch shows nothing
            return
        if sites is not None:
            sites.append((name, axis, known, values))
        units, device = values.shape[axis], values.device
        with self._lock:
            tally = self._tallies.get(name)
            if tally is None or tally.units != units or tally.leaky != leaky:
                tally = self._tallies[name] = _Tally(units, leaky, device, self.window, first=step)
                tally.axis, tally.axis_known = axis, known
            if tally.device != device:  # another replica's device
                values = values.to(tally.device)
            tally.add(values, axis, step)

    def report(self) -> MonitorReport:
        """What was seen up to now. Exact counts of the batches that went by."""
        with self._lock:
            sites = tuple(self._site(name, tally) for name, tally in self._tallies.items())
            return MonitorReport(sites, self.batches, self.window, self.tau)

    def log_to(self, log: Log, prefix: str = "relu") -> None:
        """Send the report's numbers to ``log(name, value, step)``."""
        if self._tallies:
            for name, value in self.report().scalars().items():
                log(f"{prefix}/{name}", value, self.batches)

    def _site(self, name: str, tally: _Tally) -> SiteReport:
        tally.flush()
        active, sizes, of_size = (tally.sums[0] + tally.sums[1]).cpu().double().numpy()
        share = active / max(sum(tally.samples), 1)
        with np.errstate(invalid="ignore"):
            size = sizes / of_size  # NaN where no batch gave one
        known = ~np.isnan(size)
        mean = size[known].mean() if known.any() else 0.0
        score = size / mean if mean > 0 else 0.0 * size
        last, when = tally.last.cpu().numpy(), tally.when.cpu().numpy()
        nan, infinite = (tally.broken >= max(tally.runs - self.window, 0)).cpu().numpy()
        dead = last < max(tally.runs - self.window, 0)
        return SiteReport(
            name,
            tally.leaky,
            share,
            score,
            dead,
            last < 0,
            np.where(dead, when + 1, -1),
            tally.deaths().cpu().numpy(),
            ~dead & (score <= self.tau),
            share >= self.linear,
            tally.axis,
            tally.axis_known,
            tally.runs,
            nan,
            infinite & ~nan,
        )

    def __reduce__(self) -> Any:
        raise InvalidInputError(
            "a DeadUnitMonitor is bound to the hooks of one model and cannot be copied or pickled; "
            "keep monitor.report() or its to_dict()"
        )

    def __repr__(self) -> str:
        state = "watching" if self.watch is not None else "closed"
        return f"DeadUnitMonitor({state}, {len(self._tallies)} sites, {self.batches} batches)"


def _inner(values: Tensor, axis: int) -> int:
    """How many entries of a unit lie side by side; 0 where the compiled loop cannot read them."""
    if values.is_contiguous():
        return math.prod(values.shape[axis + 1 :])
    last = axis == 1 and values.ndim == 4
    return 1 if last and values.is_contiguous(memory_format=torch.channels_last) else 0


def _compiled() -> Any:
    """The compiled loops, imported when activations on the host are first seen."""
    from relunorm.dying.watch.activity_kernel import ACTIVITY

    return ACTIVITY
