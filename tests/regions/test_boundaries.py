"""Level sets, decision cells, meshes, pictures, statistics and counting bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from relunorm import Box, Network, along, on_plane, region_at, regions
from relunorm.errors import InvalidInputError, UnsupportedFormatError
from relunorm.regions.geometry.boundaries import decision_cells, level_set
from relunorm.regions.views import plot
from relunorm.regions.views.mesh import mesh
from relunorm.regions.views.statistics import (
    montufar_lower,
    montufar_upper,
    pieces_along_random_lines,
    serra_upper,
    statistics,
)

from .nets import he_net, random_net
from .oracle import area, rim


def l1_ball(d):
    """sum |x_i|, whose level sets are cross-polytopes."""
    eye = np.eye(d)
    return Network.from_weights([np.concatenate([eye, -eye]), np.ones((1, 2 * d))])


def test_level_sets_of_the_l1_norm():
    square = level_set(regions(l1_ball(2), Box.cube(2)), 0.5)
    assert len(square) == 4
    assert abs(square.size - 4 * math.sqrt(0.5)) < 1e-12
    octahedron = level_set(regions(l1_ball(3), Box.cube(3)), 0.5)
    assert len(octahedron) == 8
    # The area of an octahedron with edge a is 2 sqrt(3) a^2.
    assert abs(octahedron.size - 2 * math.sqrt(3) * 0.5) < 1e-12
    shape = mesh(octahedron)
    assert len(shape.vertices) == 6
    assert rim(shape) == 0
    points = level_set(regions(l1_ball(1), Box.cube(1)), 0.25)
    assert sorted(float(p[0, 0]) for p in points.pieces) == [-0.25, 0.25]


@pytest.mark.parametrize("name", ["2-32-32", "3-16-16"])
def test_level_sets_lie_on_the_level_and_miss_nothing(name):
    net = he_net(name)
    found = regions(net, Box.cube(net.input_size))
    level = float(np.median(net(found.points)))
    surface = level_set(found, level)
    for piece in surface.pieces:
        np.testing.assert_allclose(net(piece), level, atol=1e-9)
    # Along random lines every crossing of the level is near a piece's region.
    owners = set(surface.owners.tolist())
    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b = rng.uniform(-1, 1, (2, net.input_size))
        t = np.linspace(0, 1, 2001)[:, None]
        x = a + t * (b - a)
        y = net(x).ravel() - level
        for k in np.flatnonzero(y[1:] * y[:-1] < 0):
            near = found.locate(np.stack([x[k], x[k + 1]]))
            assert owners & set(near.tolist()) or np.abs(y[k]) < 1e-3


def test_mesh_files(tmp_path):
    shape = mesh(level_set(regions(l1_ball(3), Box.cube(3)), 0.5))
    shape.save(tmp_path / "a.obj")
    shape.save(tmp_path / "a.ply")
    lines = (tmp_path / "a.obj").read_text().splitlines()
    assert sum(line.startswith("v ") for line in lines) == 6
    assert sum(line.startswith("f ") for line in lines) == 8
    read = np.array([[float(v) for v in line.split()[1:]] for line in lines if line[0] == "v"])
    np.testing.assert_array_equal(read, shape.vertices)
    head = (tmp_path / "a.ply").read_text().splitlines()
    assert head[0] == "ply"
    assert "element vertex 6" in head
    with pytest.raises(UnsupportedFormatError):
        shape.save(tmp_path / "a.stl")


def test_decision_cells():
    net = random_net(np.random.default_rng(3), [2, 10, 8, 4])
    found = regions(net, Box.cube(2))
    cells = decision_cells(found)
    total = sum(area(cells, k) for k in range(4))
    assert abs(total - 4) < 1e-9
    x = Box.cube(2).sample(100_000, 0)
    share = np.bincount(net(x).argmax(axis=1), minlength=4) / len(x)
    for k in range(4):
        assert abs(area(cells, k) / 4 - share[k]) < 0.01
    for polygon, k in zip(cells.polygons, cells.classes, strict=True):
        assert net(polygon.mean(axis=0)).argmax() == k
    middle = cells.segments.mean(axis=1)
    scores = np.sort(net(middle), axis=1)
    np.testing.assert_allclose(scores[:, -1], scores[:, -2], atol=1e-9)
    with pytest.raises(InvalidInputError, match="one output"):
        decision_cells(regions(he_net("2-16-16"), Box.cube(2)))


@pytest.mark.parametrize("twin", [0, 1])
def test_equal_scores_are_the_first_ones(twin):
    """Two outputs that agree on part of a region: the first has it, and there is one boundary."""
    last = [[0.0], [0.0], [1.0]] if not twin else [[0.1 + 0.2], [0.3], [1.3]]
    bias = [0.0, 0.0, -10.0] if not twin else [-10 * (0.1 + 0.2), -3.0, -13.0]
    net = Network.from_weights([[[1.0, 0.0]], last], [[10.0], bias])
    cells = decision_cells(regions(net, Box.cube(2)))
    assert [area(cells, k) for k in range(3)] == pytest.approx([2.0, 0.0, 2.0])
    assert cells.pairs.tolist() == [[0, 2]]
    np.testing.assert_allclose(cells.segments[0][:, 0], 0.0, atol=1e-14)


@pytest.mark.parametrize("seed", range(12))
def test_decision_areas_add_up_with_copied_outputs(seed):
    """Integer weights and repeated outputs: no class has a part twice, the last copy has none."""
    rng = np.random.default_rng(seed)
    weights = [rng.integers(-2, 3, s).astype(float) for s in ((4, 2), (3, 4), (3, 3))]
    weights[2] = weights[2][[0, 1, 2, 1, 0]]
    bias = rng.integers(-2, 3, 3)[[0, 1, 2, 1, 0]]
    net = Network.from_weights(weights, [rng.integers(-2, 3, 4), np.zeros(3), bias])
    cells = decision_cells(regions(net, Box.cube(2)))
    areas = [area(cells, k) for k in range(5)]
    assert sum(areas) == pytest.approx(4.0, rel=1e-9)
    assert areas[3] == areas[4] == 0.0
    points = np.random.default_rng(0).uniform(-1, 1, (4000, 2))
    share = np.bincount(net(points).round(9).argmax(axis=1), minlength=5) / 1000
    np.testing.assert_allclose(areas, share, atol=0.2)
    middle = cells.segments.mean(axis=1)
    assert (np.abs(middle).max(axis=1, initial=0.0) < 1 - 1e-9).all()


def test_statistics():
    found = regions(he_net("2-16-16"), Box.cube(2))
    numbers = statistics(found, random_state=0)
    assert numbers.count == 248
    assert numbers.per_layer == (80, 248)
    assert abs(numbers.volumes.sum() - 4) < 1e-9
    assert numbers.mean_degree is not None
    assert numbers.mean_degree <= 4
    assert numbers.serra_upper is not None
    assert numbers.montufar_upper is not None
    assert 248 <= numbers.serra_upper <= numbers.montufar_upper
    assert numbers.to_dict()["measured"] == 248
    lines = pieces_along_random_lines(he_net("2-16-16"), Box.cube(2), 10, random_state=1)
    assert lines.shape == (10,)
    assert lines.min() >= 1
    first = statistics(found, degree=False, measure=10, random_state=3)
    assert len(first.volumes) == 10


def test_counting_bounds():
    # One layer: Zaslavsky's number of cells of an arrangement, for all three.
    for d, n in ((1, 5), (2, 6), (3, 4), (5, 3)):
        cells = sum(math.comb(n, j) for j in range(d + 1))
        assert montufar_upper(d, [n]) == serra_upper(d, [n]) == cells
    # A width-one bottleneck: Serra sees the dimensions that inactive units cost.
    assert serra_upper(4, [3, 3, 3]) < montufar_upper(4, [3, 3, 3])
    assert serra_upper(2, [4, 4]) >= montufar_lower(2, [4, 4])
    # A zigzag attains the one-dimensional lower bound: 2 x folds by each layer.
    fold = [[[2.0], [4.0]], [[2.0, -2.0], [4.0, -4.0]], [[2.0, -2.0]]]
    net = Network.from_weights(fold, [[0.0, -2.0], [0.0, -2.0], [0.0]])
    assert len(regions(net, None)) >= montufar_lower(1, [2, 2]) == 6
    with pytest.raises(InvalidInputError):
        serra_upper(0, [3])


def test_exact_counts_never_exceed_the_bounds():
    for seed in range(5):
        net = random_net(np.random.default_rng(seed), [2, 4, 3, 4, 1])
        assert len(regions(net, None)) <= serra_upper(2, [4, 3, 4])


def test_pictures(tmp_path):
    found = regions(random_net(np.random.default_rng(0), [2, 6, 5, 2]), Box.cube(2))
    for color in plot.COLORS:
        plot.plot_regions(found, color=color).savefig(tmp_path / f"{color}.png", dpi=40)
    plot.plot_refinement(found).savefig(tmp_path / "layers.svg")
    plot.plot_level_set(level_set(found)).savefig(tmp_path / "level.png", dpi=40)
    one = random_net(np.random.default_rng(0), [1, 6, 5, 1])
    figure = plot.plot_line(one, Box.cube(1))
    figure.savefig(tmp_path / "line.png", dpi=40)
    assert len(figure.axes) == 1
    again = plot.plot_line(along(found.network, [-1, -1], [1, 1]), ax=figure.axes[0])
    assert again is figure
    image = random_net(np.random.default_rng(0), [9, 6, 5, 2])
    atoms = region_at(image, np.ones(9)).atoms()
    plot.plot_atoms(atoms, (3, 3)).savefig(tmp_path / "atoms.png", dpi=40)
    cut = on_plane(image, np.zeros(9), np.eye(9)[0], np.eye(9)[1])
    plot.plot_regions(cut).savefig(tmp_path / "slice.png", dpi=40)
    with pytest.raises(InvalidInputError, match="color"):
        plot.plot_regions(found, color="blue")
    with pytest.raises(InvalidInputError, match="on_plane"):
        plot.plot_regions(regions(he_net("3-16-16"), Box.cube(3), max_regions=5))


def test_a_picture_of_the_whole_plane_has_a_window():
    """Nearly parallel lines meet far away; the window keeps to where most corners are."""
    from relunorm.regions.views.plot import plot_refinement, plot_regions, view_of

    net = he_net("2-16-16")
    found = regions(net, None)
    view = view_of(found)
    low, high = view.domain.lo, view.domain.hi
    corners = np.concatenate([found.vertices(i) for i in range(len(found))])
    inside = ((corners >= low) & (corners <= high)).all(axis=1)
    assert inside.mean() > 0.75
    assert (high - low).max() < 20
    assert len(view) <= len(found)
    assert (found.find(view.patterns) >= 0).all()
    # Oracle: the same window, searched by itself. No more is drawn than was found.
    searched = regions(net, view.domain)
    assert {row.tobytes() for row in view.packed} == {row.tobytes() for row in searched.packed}
    assert abs(view.volume().sum() - np.prod(high - low)) < 1e-6
    assert (net.pattern(view.points) == view.patterns).all()
    assert len(view_of(found.select(np.arange(20)))) <= 20
    figure = plot_regions(found)
    assert f"{len(found)} regions of the plane, {len(view)} in this window" in (
        figure.axes[0].get_title()
    )
    x0, x1 = figure.axes[0].get_xlim()
    assert x1 - x0 < 1.5 * (high - low)[0]
    assert len(plot_refinement(found).axes) == 2
    flat = Network.from_weights([[[1.0, 0.0]], [[1.0]]])
    assert len(view_of(regions(flat, None))) == 2
