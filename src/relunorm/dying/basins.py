"""One unit: when it fires, the two cones in (w, b) where it never or always does, and basin maps,
which of its starting parameters reach the optimum and which die (seed 002, figures 3-5).

For x ~ N(0, I) the unit relu(w.x + b) fires with probability Phi(b / |w|) (seed 002, eq. 23), so
both cones are bounds on b / |w|. The signs printed after (23) are wrong: docs/errata.md.

The field of the maps is homogeneous, so everything runs in theta / gamma: the optimum is
(1, Delta / gamma) and a smaller gamma is a larger window on the same map.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from relunorm.arguments import real_number, whole_number
from relunorm.clock import Clock, Listener, Teller
from relunorm.display.shown import Shown, entries
from relunorm.errors import InvalidInputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: How far a covariance may be from symmetric and semidefinite, as a share of its largest entry.
ROUNDING = 1e-6
#: Classes of a start in `BasinMap.classes`.
OPTIMUM, DEAD, OTHER = 0, 1, 2


def cone_position(
    w: ArrayLike, b: ArrayLike, mean: ArrayLike | None = None, covariance: ArrayLike | None = None
) -> NDArray[np.float64]:
    """How many standard deviations the mean pre-activation lies above 0.

    h = (w.mean + b) / sqrt(w' C w); b / |w| for standard normal inputs. +-inf where w = 0.

    Args:
        w: shape (..., d). b: shape (...).
        mean: of the inputs, 0 by default. covariance: of the inputs, the identity by default;
            symmetric with no negative eigenvalue, up to 1e-6 of its largest entry.

    >>> cone_position([[3.0, 4.0]], [-10.0]).tolist()
    [-2.0]
    """
    w = np.asarray(w, dtype=np.float64)
    b = np.asarray(b, dtype=np.float64)
    if w.ndim < 1 or w.shape[:-1] != b.shape:
        raise InvalidInputError(
            f"w has shape {w.shape} and b {b.shape}; expected (..., d) and (...)"
        )
    if mean is not None:
        b = b + w @ _fits(mean, (w.shape[-1],), "mean")
    if covariance is None:
        spread = np.linalg.norm(w, axis=-1)
    else:
        c = _covariance(covariance, w.shape[-1])
        spread = np.sqrt(np.maximum(np.einsum("...i,ij,...j->...", w, c, w), 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        position = b / spread
    return np.where(np.isnan(position), -np.inf, position)  # w = 0, b = 0: relu(0) never fires


def firing_probability(
    w: ArrayLike, b: ArrayLike, mean: ArrayLike | None = None, covariance: ArrayLike | None = None
) -> NDArray[np.float64]:
    """P(w.x + b > 0) for Gaussian x: Phi(b / |w|), seed 002 eq. (23). Exact for Gaussian inputs.

    >>> round(float(firing_probability([1.0, 0.0], 0.0)), 3)
    0.5
    """
    return ndtr(cone_position(w, b, mean, covariance))


def dead_below(epsilon: float) -> float:
    """Phi^-1(eps): a unit fires with probability below eps iff b/|w| is below this (not above
    minus it, as printed after eq. 23).

    >>> round(dead_below(1e-4), 3)
    -3.719
    """
    return float(ndtri(_probability(epsilon)))


def linear_above(epsilon: float) -> float:
    """-Phi^-1(eps): a unit is off with probability below eps iff b/|w| is above this."""
    return -float(ndtri(_probability(epsilon)))


def in_dead_cone(
    w: ArrayLike, b: ArrayLike, epsilon: float = 1e-4, **inputs: ArrayLike
) -> NDArray[np.bool_]:
    """Whether the firing probability is below eps. ``inputs``: mean and covariance."""
    return cone_position(w, b, **inputs) < dead_below(epsilon)


def in_linear_cone(
    w: ArrayLike, b: ArrayLike, epsilon: float = 1e-4, **inputs: ArrayLike
) -> NDArray[np.bool_]:
    """Whether the probability of being off is below eps. ``inputs``: mean and covariance."""
    return cone_position(w, b, **inputs) > linear_above(epsilon)


def _probability(epsilon: float) -> float:
    if not 0 < epsilon < 0.5:
        raise InvalidInputError(f"epsilon is {epsilon}, expected a number between 0 and 0.5")
    return float(epsilon)


def _fits(value: ArrayLike, shape: tuple[int, ...], name: str) -> NDArray[np.float64]:
    array = np.asarray(value, dtype=np.float64)
    if array.shape != shape or not np.isfinite(array).all():
        raise InvalidInputError(f"{name} has shape {array.shape}, expected {shape}, all finite")
    return array


def _covariance(value: ArrayLike, size: int) -> NDArray[np.float64]:
    """A covariance, up to what rounding in float32 leaves of one."""
    c = _fits(value, (size, size), "covariance")
    largest = np.abs(c).max(initial=0.0)
    if largest == 0:
        return c
    scaled = c / largest
    apart = float(np.abs(scaled - scaled.T).max())
    if apart > ROUNDING:
        raise InvalidInputError(
            f"covariance is not symmetric: entries across the diagonal differ by {apart:.1g} of "
            "the largest one"
        )
    lowest = float(np.linalg.eigvalsh((scaled + scaled.T) / 2)[0])
    if lowest < -ROUNDING:
        raise InvalidInputError(
            f"covariance has the negative eigenvalue {lowest * largest:.3g}, so it is none: some "
            "combination of inputs would have a negative variance"
        )
    return c


@dataclass(frozen=True, repr=False)
class BasinMap(Shown):
    """Where gradient descent from each point of a grid over [-extent, extent]^2 ends.

    Attributes:
        gamma, beta, eta, delta, extent: the question.
        optimum, dead, other: shares of the starts, in percent. Optimum: stopped within ``near``
            gamma of (gamma, delta). Dead: stopped with b/|w| below 0 elsewhere, where the gradient
            has all but vanished. Other: neither, or still moving after ``max_steps``.
        classes: (grid, grid), rows are b and columns w, ascending; 0 optimum, 1 dead, 2 other.
        w, b: where each start ended, in parameters (not divided by gamma).
        steps: updates until the last start stopped. point_steps: updates of single points in all.
        moving: share still moving at the end, in percent.
    """

    gamma: float
    beta: float
    eta: float
    delta: float
    extent: float
    near: float
    optimum: float
    dead: float
    other: float
    moving: float
    classes: NDArray[np.int8]
    w: NDArray[np.float64]
    b: NDArray[np.float64]
    steps: int
    point_steps: int

    def plot(self, ax: Axes | None = None) -> Figure:
        """The map in colours; returns the figure."""
        return plot_basin(self, ax=ax)

    @property
    def axis(self) -> NDArray[np.float64]:
        """The grid's coordinates, the same for w and b."""
        return np.linspace(-self.extent, self.extent, len(self.classes))

    def __repr__(self) -> str:
        return (
            f"BasinMap(gamma={self.gamma:g}, beta={self.beta:g}: optimum {self.optimum:.1f}%, "
            f"dead {self.dead:.1f}%, other {self.other:.1f}%)"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe form with the classes as rows of digits."""
        names = "gamma beta eta delta extent near optimum dead other moving steps point_steps"
        return {
            "schema": "relunorm.dying.basin/1",
            **entries(self, names),
            "grid": len(self.classes),
            "classes": ["".join(map(str, row)) for row in self.classes.tolist()],
        }


def basin(
    gamma: float = 1.0,
    beta: float = 0.0,
    eta: float = 0.1,
    grid: int = 201,
    extent: float = 2.0,
    *,
    delta: float = 0.0,
    update_tolerance: float = 1e-6,
    gradient_tolerance: float = 1e-3,
    near: float = 0.1,
    max_steps: int = 180_000,
    device: str | None = None,
    mode: str | None = None,
    progress: Listener | None = None,
) -> BasinMap:
    """Classify a grid of starts by where (6)-(7) with the exact surrogate gradient takes them.

    A start stops at the first update with |update| < ``update_tolerance`` and
    |gradient| < ``gradient_tolerance`` (in parameters, not divided by gamma; the gradient too,
    because momentum has turning points where the update alone is small). The seed stops on the
    update alone, at 1e-6. At small gamma that tolerance is no longer small against the optimum's
    size, so shares below gamma = 0.01 depend on it: docs/dying.md.

    Args:
        gamma, delta: scale and shift of the target gamma x + delta.
        beta, eta: momentum and step size.
        grid: starts per axis. extent: half the side of the window.
        near: how close to the optimum counts, as a share of gamma.
        device: None for the compiled loop on one CPU thread, or a torch device such as ``cuda``.
        mode: with a device, compile or eager (without a compiler); by default compile, eager on
            the CPU.
        progress: called with a `Progress` of the points at rest after each stretch. An interrupt
            (KeyboardInterrupt) ends the search; what still moves then counts as other.

    Cost: about 3.5 ns per point and update on one thread; 4e7 to 4e9 point-updates for 201^2.

    >>> basin(gamma=1.0, beta=0.0, grid=21)
    BasinMap(gamma=1, beta=0: optimum 62.4%, dead 37.6%, other 0.0%)
    """
    for name, value in (("gamma", gamma), ("eta", eta), ("extent", extent), ("near", near)):
        if real_number(name, value) <= 0:
            raise InvalidInputError(f"{name} is {value}, expected a finite number above 0")
    real_number("delta", delta)
    if not 0 <= beta < 1:
        raise InvalidInputError(f"beta is {beta}, expected a momentum in [0, 1)")
    grid, max_steps = whole_number("grid", grid, 1), whole_number("max_steps", max_steps, 1)
    if not (update_tolerance > 0 and gradient_tolerance > 0):
        raise InvalidInputError("update_tolerance and gradient_tolerance must be above 0")
    axis = np.linspace(-extent, extent, grid) / gamma
    w, b = (part.ravel().copy() for part in np.meshgrid(axis, axis))
    squares = ((update_tolerance / gamma) ** 2, (gradient_tolerance / gamma) ** 2)
    rule = (delta / gamma, eta, beta, *squares)
    if mode not in (None, "compile", "eager"):
        raise InvalidInputError(f"mode is {mode!r}, expected compile, eager or None")
    if mode is not None and device is None:
        raise InvalidInputError(f"mode {mode!r} needs a device, such as device='cuda'")
    tell = Teller(progress, Clock())
    ran = _run(w, b, rule, max_steps, _engine(device, mode), tell)
    end_w, end_b, moving, steps, point_steps = ran
    reached = np.hypot(end_w - 1, end_b - delta / gamma) < near
    classes = np.where(reached, OPTIMUM, np.where(~moving & (end_b < 0), DEAD, OTHER))
    classes = classes.astype(np.int8).reshape(grid, grid)
    shares = [100 * float((classes == kind).mean()) for kind in (OPTIMUM, DEAD, OTHER)]
    shares.append(100 * float(moving.mean()))
    asked = map(float, (gamma, beta, eta, delta, extent, near))
    return BasinMap(
        *asked,
        *shares,
        classes=classes,
        w=gamma * end_w.reshape(grid, grid),
        b=gamma * end_b.reshape(grid, grid),
        steps=steps,
        point_steps=point_steps,
    )


Found = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_], int, int]
#: Where updates are made: `basin_kernel.advance`, an array put there, and got back, and how many
#: updates there are between two looks at which points have stopped, after so many.
Engine = tuple[Callable[..., Any], Callable[[Any], Any], Callable[[Any], Any], Callable[[int], int]]


def _run(
    w: Any, b: Any, rule: tuple[float, ...], max_steps: int, engine: Engine, tell: Teller
) -> Found:
    """Where the points end, which still move, and the updates made; those at rest are dropped."""
    advance, put, get, stretch = engine
    end_w, end_b = w.copy(), b.copy()
    alive, total = np.arange(len(w)), len(w)
    state = [put(v) for v in (w, b, 0 * w, 0 * w, 0 * w + 1)]
    done = spent = 0
    try:
        while len(alive) and done < max_steps:
            steps = min(stretch(done), max_steps - done)
            advance(*state, *rule, steps)
            done, spent = done + steps, spent + steps * len(alive)
            end_w[alive], end_b[alive] = map(get, state[:2])
            keep = state[4] > 0
            alive, state = alive[get(keep)], [part[keep] for part in state]
            tell("points come to rest", total - len(alive), total)
    except KeyboardInterrupt:
        end_w[alive], end_b[alive] = map(get, state[:2])
    still = np.zeros(total, dtype=bool)
    still[alive] = True
    return end_w, end_b, still, done, spent


def _engine(device: str | None, mode: str | None) -> Engine:
    from relunorm.dying import basin_kernel

    if device is None:

        def short_first(done: int) -> int:  # when most points stop
            return 100 if done < 2000 else 500

        return basin_kernel.advance, lambda v: v.copy(), lambda v: v, short_first
    import torch

    kind = torch.device(device)
    if kind.type == "cuda" and not torch.cuda.is_available():
        raise InvalidInputError(f"device {device!r}: this torch sees no CUDA device")
    fuse = (mode or ("eager" if kind.type == "cpu" else "compile")) == "compile"
    return (
        partial(basin_kernel.advance_tensors, fuse=fuse),
        lambda v: torch.tensor(v, device=kind),
        lambda v: v.cpu().numpy(),
        lambda done: min(max(160, done), 20_000),
    )


#: Optimum, dead, other.
COLORS = ("#e8b53a", "#3b5b92", "#9a9a9a")
#: The mark of the optimum.
MARK: dict[str, Any] = {"marker": "o", "color": "white", "mec": "black", "ms": 6}


def plot_basin(found: BasinMap, ax: Any = None) -> Any:
    """Starts coloured by where they end; black dots where the dead ones stop; the optimum white."""
    from matplotlib.colors import ListedColormap

    alone = ax is None
    if alone:
        from matplotlib.figure import Figure

        ax = Figure(figsize=(4.6, 5.0), layout="constrained").subplots()
    e = found.extent
    ax.imshow(
        found.classes, origin="lower", extent=(-e, e, -e, e), cmap=ListedColormap(COLORS),
        vmin=0, vmax=2, interpolation="nearest", aspect="equal",
    )  # fmt: skip
    dead = found.classes == 1
    ax.plot(found.w[dead], found.b[dead], ",", color="black", alpha=0.6, rasterized=True)
    draw_cone(ax, e)
    ax.plot(found.gamma, found.delta, **MARK)
    ax.set(xlim=(-e, e), ylim=(-e, e), xlabel="w", ylabel="b")
    ax.set_title(
        f"$\\gamma$={found.gamma:g}, $\\beta$={found.beta:g}\n{found.optimum:.1f}% optimum, "
        f"{found.dead:.1f}% dead",
        fontsize=9,
    )
    if alone:
        basin_legend(ax.figure, columns=2)
    return ax.figure


def basin_legend(figure: Any, columns: int = 6) -> None:
    """What the colours of the starts and the marks stand for, once, below all panels."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    named = zip(COLORS, ("reaches the optimum", "dies", "neither"), strict=True)
    keys: list[Any] = [Patch(color=color, label=label) for color, label in named]
    keys.append(Line2D([], [], ls="", label="the optimum", **MARK))
    keys.append(Line2D([], [], ls=":", color="0.4", label="edge of the dead cone"))
    keys.append(Line2D([], [], ls="", marker=".", color="black", label="where dead ones stop"))
    figure.legend(
        handles=keys, loc="outside lower center", ncols=columns, fontsize=8, frameon=False
    )


def draw_cone(ax: Any, extent: float) -> None:
    """The dead cone's edge at a firing probability of 1e-4."""
    slope = dead_below(1e-4)
    reach = extent / abs(slope)
    ax.plot([-reach, 0, reach], [-extent, 0, -extent], ":", color="white", lw=1)
