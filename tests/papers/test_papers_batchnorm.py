"""The exhibits of seed 004: they run, say what the errata say, and save."""

import json

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from relunorm.batchnorm.random_nets import propagate
from relunorm.errors import InvalidInputError
from relunorm.papers import PAPERS, Sample, exhibits, statements, world_of
from relunorm.papers.batchnorm.attractor import draw_parts, mean_cosines
from relunorm.papers.batchnorm.training import ARMS, labelled, train_deep


@pytest.fixture(scope="module")
def digits():
    return Sample.digits()


def column(exhibit, name):
    return [row[exhibit.columns.index(name)] for row in exhibit.rows]


def test_registry():
    assert "batchnorm" in PAPERS
    assert list(exhibits("batchnorm"))[:4] == ["figure2", "figure3", "figure5", "figure6"]
    with pytest.raises(InvalidInputError, match="no paper"):
        exhibits("nothing")


@pytest.mark.parametrize(
    "name", ["figure3", "figure6", "attractor_angle", "theorem3", "theorem11", "theorem13"]
)
def test_exhibits_run_and_save(name, quick, tmp_path):
    found = quick("batchnorm", name)
    paths = found.save(tmp_path)
    document = json.loads(paths[0].read_text())
    assert document["schema"] == "relunorm.exhibit/1"
    assert len(document["rows"]) == len(found.rows)
    assert (found.figure is not None) == any(p.suffix == ".png" for p in paths)
    if found.figure is not None:
        assert cut_off(found.figure) == []


def cut_off(figure):
    """Titles that reach beyond the page."""
    FigureCanvasAgg(figure).draw()  # the layout is made in drawing
    titles = [ax.title for ax in figure.axes] + ([figure._suptitle] if figure._suptitle else [])
    width, height = figure.canvas.get_width_height()
    boxes = {t.get_text(): t.get_window_extent() for t in titles if t.get_text()}
    return [
        text
        for text, box in boxes.items()
        if box.x0 < 0 or box.y0 < 0 or box.x1 > width or box.y1 > height
    ]


def small(X, layers, width=8, **options):
    """Two layers of eight units, whatever was asked for."""
    return propagate(X, 2, 8, **{**options, "method": "gram"})


def test_the_title_of_the_onset_figure_fits(digits):
    found = exhibits("batchnorm")["onset_width"](world_of("batchnorm", digits, propagate=small))
    assert cut_off(found.figure) == []


def test_figure5_is_judged_by_its_own_table(digits):
    """At two layers of eight units: the judge finds its rows, whatever they say."""
    make = exhibits("batchnorm")["figure5"]
    found = make(world_of("batchnorm", digits, propagate=small))
    assert {claim.item for claim in found.claims} == set(
        statements("batchnorm")["exhibits"]["figure5"]
    )


def test_figure3_shows_an_odd_point_in_every_batch(quick):
    exhibit = quick("batchnorm", "figure3")
    within = np.mean(column(exhibit, "angle within the cluster"))
    assert f"here it is at {within:.1f} in the mean" in exhibit.note
    assert column(exhibit, "odd points") == [1] * 5
    assert all(abs(angle - 90) < 3 for angle in column(exhibit, "angle odd point - cluster"))
    assert abs(within - 24.54) < 6


def test_figure2_a_low_rank_start_trains_with_he(digits):
    """The same optimizer for all arms, 2 seeds, depth 12; the full figure is `--full`."""
    x, y = labelled(digits, 100, 0)
    results = {
        name: np.array([train_deep(x, y, 12, *arm, 0.03, 80, seed) for seed in range(2)])
        for name, arm in ARMS.items()
    }
    norm, plain, he = results.values()
    assert he[:, 1].mean() < 1.2 < norm[:, 1].mean()  # soft rank at the start
    assert he[:, 0].mean() < norm[:, 0].mean() / 2  # rank
    assert he[:, 2].mean() > 0.97  # training accuracy
    assert plain[:, 2].mean() < 0.3


def test_a_users_table_without_labels_is_refused_for_training(digits):
    with pytest.raises(InvalidInputError, match="--target"):
        exhibits("batchnorm")["figure2"](world_of("batchnorm", Sample(digits.x, None, "table.csv")))


def test_figure1_starts_at_layer_1_and_ends_at_the_last(digits):
    """It plotted the input as layer 1 and left out the last layer."""
    run = propagate(digits.subset(5, 0), 3, 30, recenter=False)
    expected = [np.abs(np.cos(run.angles(k))).mean() for k in (1, 2, 3)]
    np.testing.assert_allclose(mean_cosines(run), expected)
    for line in draw_parts(mean_cosines(run), run).axes[0].lines:
        np.testing.assert_allclose(line.get_xydata(), np.column_stack([[1, 2, 3], expected]))
