"""Dying ReLU (seed 002): tools to see, explain, prevent and revive; the theory of one unit.

What of the theory only the paper's re-run needs lives in `relunorm.papers.dying` and is
reached from here. Names are imported on first use, so that the theory loads no torch.
"""

from relunorm.lazy import on_first_use

_HOME, __getattr__, __dir__ = on_first_use(__name__)
__all__ = sorted(_HOME)  # pyrefly: ignore[unresolvable-dunder-all]
