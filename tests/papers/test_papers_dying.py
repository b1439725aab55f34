"""The exhibits of seed 002: they draw, and their maps can be read."""

from __future__ import annotations

import pytest

from relunorm.dying.basins import basin
from relunorm.papers import exhibits, world_of


def small(*given, grid, near):
    """Few starts and steps: the maps are drawn alike."""
    return basin(*given, grid=21, near=near, max_steps=100)


@pytest.mark.parametrize("name", ["figure2", "figure3"])
def test_exhibits_draw(name, tmp_path):
    made = exhibits("dying")[name](world_of("dying", basin=small))
    paths = made.save(tmp_path)
    assert any(path.suffix == ".png" for path in paths)
    assert all(path.stat().st_size for path in paths)


@pytest.mark.parametrize("name", ["figure4", "figure5"])
def test_maps_have_room_for_their_titles_and_name_every_mark(name):
    figure = exhibits("dying")[name](world_of("dying", basin=small)).figure
    assert figure is not None
    figure.draw_without_rendering()
    page = figure.bbox
    for ax in figure.axes:
        box = ax.get_tightbbox()
        assert box.y1 <= page.y1 - 3
        assert box.x0 >= page.x0
        assert box.x1 <= page.x1
        assert not figure.legends[0].get_window_extent().overlaps(box)
    assert "the optimum" in [text.get_text() for text in figure.legends[0].get_texts()]
