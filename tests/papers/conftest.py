"""Exhibits at quick sizes, made once for all tests that read them."""

from __future__ import annotations

from functools import cache

import pytest

from relunorm.papers import exhibits, read_sample, world_of


@pytest.fixture(scope="session")
def quick():
    """``quick(paper, name)``: the exhibit as the command makes it without options."""

    @cache
    def made(paper, name):
        return exhibits(paper)[name](world_of(paper, read_sample(paper)))

    return made
