"""
Batch norm taken apart
======================

Batch normalization recenters and rescales; then comes the ReLU. Each part on its own does
something else to the geometry of a batch through depth.
"""

# %%
# Ten digits through 30 random layers of width 1,000, with parts switched on and off.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from torch import nn

import relunorm as rn
from relunorm.batchnorm import Tree, fixed_points, propagate
from relunorm.nn import decompose

X = load_digits().data[:10] / 16
fig, ax = plt.subplots(figsize=(6, 3.4))
for label, parts in {
    "recentering and rescaling": {},
    "rescaling alone": {"recenter": False},
    "recentering alone": {"rescale": False},
}.items():
    run = propagate(X, 30, 1000, random_state=0, **parts)
    ax.plot(np.degrees(run.mean_angles()), label=label)
ax.set_xlabel("layer")
ax.set_ylabel("mean angle, degrees")
ax.legend(frameon=False)
fig.tight_layout()
plt.show()

# %%
# Recentering alone has an attractor: one odd point, and a cluster of all others. Its angle in
# the limit of infinite width:

for n in (10, 20, 50):
    print(n, fixed_points(n)[-1])

# %%
# The tree model explains it in exact arithmetic.

tree = Tree([0, 1, 3, 9, 10], exact=True)
print(tree.run(9).clusters())
print(tree.limit())

# %%
# On a model of your own: swap every BatchNorm for its parts, and probe what each layer does to
# a batch.

model = nn.Sequential(
    *(
        part
        for width in (64, 128, 128, 128)
        for part in (nn.Linear(width, 128), nn.BatchNorm1d(128), nn.ReLU())
    )
)
batch = load_digits().data[:64].astype("float32") / 16
probe = rn.geometry(decompose(model, rescale=False), batch)
print(probe)
probe.figure()
plt.show()
