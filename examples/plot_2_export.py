"""
Verify an export
================

Two files that should be the same network: ``compare`` proves it over a whole domain, or shows
an input where they differ. Testing a few inputs can miss what this finds.
"""

# %%
# A torch model and its ONNX export, in which batch norm is folded and weights are rounded.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

import relunorm as rn

torch.manual_seed(1)
model = nn.Sequential(
    nn.Linear(6, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2)
).eval()
file = Path(tempfile.mkdtemp()) / "model.onnx"
torch.onnx.export(model, (torch.zeros(1, 6),), file, dynamo=True, verbose=False)

box = rn.Box.cube(6, -1, 1)
same = rn.compare(model, file, box)
print(same)

# %%
# The two are not equal, but within a bound that holds for every input of the box, and below what
# single precision explains. A convolutional model and its export are followed through their
# convolutions and poolings, wherever batch norm stands. Permuting units, rescaling them or padding
# with dead ones changes nothing either:

net = rn.load(model)
weights, biases = net.weights()
order = np.random.default_rng(0).permutation(32)
scale = np.exp(np.random.default_rng(1).normal(size=32))
weights = [np.asarray(w) for w in weights]
disguised = rn.Network.from_weights(
    [(scale[:, None] * weights[0])[order], (weights[1] / scale)[:, order], weights[2]],
    [(scale * biases[0])[order], biases[1], biases[2]],
)
print(rn.compare(net, disguised, box))

# %%
# One weight changed by 0.001. The answer is an input and both outputs.

broken = weights[1].copy()
broken[3, 5] += 1e-3
other = rn.Network.from_weights([weights[0], broken, weights[2]], biases)
found = rn.compare(net, other, box)
print(found)
print("at", found.witness)

# %%
# Along the line through the witness the difference is itself piecewise linear. Random inputs
# rarely come near its maximum.

rng = np.random.default_rng(2)
x = box.sample(20_000, random_state=3)
fig, ax = plt.subplots(figsize=(6, 3))
ax.hist(abs(net(x) - other(x)).max(axis=1), bins=60, color="0.7", label="20,000 random inputs")
w = found.witness[None]
ax.axvline(abs(net(w) - other(w)).max(), color="C3", label="the witness")
ax.set_xlabel("largest difference of the outputs")
ax.set_yscale("log")
ax.legend(frameon=False)
fig.tight_layout()
plt.show()

# %%
# On the command line ``--top1`` also asks whether both choose the same class everywhere. That is
# decided in exact arithmetic: where the margin between two classes is as small as what float32
# rounds away, a disagreement may not show when both models are run::
#
#     relunorm compare model.pt2 model.onnx --domain data:test.csv?target=y --top1
