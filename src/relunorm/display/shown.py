"""Results as documents, and in a notebook: a table of what they say, and a picture on demand."""

from __future__ import annotations

import math
import re
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Numbers of a list that are shown, at most, and characters of a text.
LISTED, LONGEST = 8, 120


class Shown:
    """What every result shares: ``_repr_html_`` for notebooks, and ``plot``."""

    __slots__ = ()

    if TYPE_CHECKING:

        def to_dict(self) -> dict[str, Any]:
            """JSON-safe."""
            ...

    def plot(self, ax: Axes | None = None) -> Figure:
        """A picture of the result; returns the matplotlib figure and does not show it."""
        from relunorm.display.pictures import draw

        return draw(self, ax)

    def _repr_html_(self) -> str:
        """The result as a notebook shows it: its line, and a table of its plain entries."""
        rows = [
            f'<tr><th style="text-align:left">{escape(name.replace("_", " "))}</th>'
            f'<td style="text-align:left">{escape(text)}</td></tr>'
            for name, value in self.to_dict().items()
            if name != "schema" and (text := _text(_local(name, value)))
        ]
        return f"<p><code>{escape(repr(self))}</code></p><table>{''.join(rows)}</table>"


def counted(number: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "unit"), counted(2000, "row")
    ('1 unit', '2,000 rows')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def entries(result: Any, names: str) -> dict[str, Any]:
    """Attributes of a result as entries of its document, JSON-safe.

    Tuples and arrays become lists, results within it their own documents, and numbers that are not
    finite None.

    >>> from types import SimpleNamespace
    >>> entries(SimpleNamespace(bound=float("inf"), point=(1.0, 2.0)), "bound point")
    {'bound': None, 'point': [1.0, 2.0]}
    """
    return {name: plain(getattr(result, name)) for name in names.split()}


def plain(value: Any) -> Any:
    """A value as JSON has it: see `entries`."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return value


def _local(name: str, value: Any) -> Any:
    """A notebook is passed on; where a file lay is nobody's business."""
    file = name == "origin" and isinstance(value, str)
    return re.split(r"[/\\]", value)[-1] if file else value


def _text(value: Any) -> str:
    """A plain entry in words; nothing for what is missing or nested."""
    if value is None or isinstance(value, dict):
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        plain = all(isinstance(v, int | float | str) for v in value)
        if not value or not plain:
            return ""
        shown = ", ".join(_text(v) for v in value[:LISTED])
        return f"{shown}, ... ({len(value)} in all)" if len(value) > LISTED else shown
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
