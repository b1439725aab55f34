"""
See the regions
===============

The exact partition of a network's inputs into pieces on which it is affine: drawn, counted,
followed along a line and through the layers.
"""

# %%

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np

import relunorm as rn
from relunorm.regions.boundaries import level_set
from relunorm.regions.plot import plot_line, plot_refinement, plot_regions
from relunorm.regions.statistics import statistics

net = rn.load("example:moons")
box = rn.Box.cube(2, -2, 3)
cells = rn.regions(net, box)

# %%
# Layer by layer: each layer folds the pieces of the one before.

plot_refinement(cells)
plt.show()

# %%
# Coloured by the norm of the gradient; the decision boundary f = 0 as exact segments on top.

fig = plot_regions(cells, color="gradient")
ax = fig.axes[0]
for segment in level_set(cells, 0.0).pieces:
    ax.plot(*np.asarray(segment).T, color="w", lw=1.5)
plt.show()

# %%
# Along a line every breakpoint is found by matrix products alone, so this works for networks
# with millions of weights too.

line = rn.along(net, [-2, -1], [3, 2])
print(line)
plot_line(line)
plt.show()

# %%
# In numbers, with the bounds that the widths alone give.

print(statistics(cells))

# %%
# A network of many inputs: exact polygons on a plane through three of its points.

rng = np.random.default_rng(0)
sizes = [20, 40, 40, 3]
deep = rn.Network.from_weights(
    [rng.normal(size=(b, a)) / np.sqrt(a / 2) for a, b in pairwise(sizes)],
    [0.2 * rng.normal(size=b) for b in sizes[1:]],
)
p, q, r = rng.normal(size=(3, 20))
slice_ = rn.on_plane(deep, p, q - p, r - p, bounds=(-1, 2, -1, 2))
print(slice_)
plot_regions(slice_, color="pattern")
plt.show()
