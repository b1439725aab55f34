"""Numbers in sentences."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "unit"), counted(2000, "row")
    ('1 unit', '2,000 rows')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
