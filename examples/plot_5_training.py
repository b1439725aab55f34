"""
Watch a training run
====================

Adam with too large a step: units die one after another while the training loss still falls. The
monitor sees it, the diagnosis explains it, revival mends it.
"""

# %%
# A regression on scikit-learn's diabetes table, with two step sizes.

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_diabetes
from torch import nn

import relunorm as rn
from relunorm import dying
from relunorm.dying.basins import plot_basin

X, y = load_diabetes(return_X_y=True, scaled=False)
X = torch.tensor((X - X.mean(0)) / X.std(0), dtype=torch.float32)
y = torch.tensor((y - y.mean()) / y.std(), dtype=torch.float32)[:, None]


def train(model, rate, steps, monitor):
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    generator = torch.Generator().manual_seed(0)
    dead = []
    for step in range(steps):
        rows = torch.randint(len(X), (64,), generator=generator)
        loss = ((model(X[rows]) - y[rows]) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 99:
            dead.append(100 * monitor.report().dead)
    return dead


fig, ax = plt.subplots(figsize=(6, 3))
for rate in (1e-3, 3e-2):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 100), nn.ReLU(), nn.Linear(100, 1))
    with rn.DeadUnitMonitor(model, window=20) as monitor:
        dead = train(model, rate, 2500, monitor)
    ax.plot(100 * np.arange(1, len(dead) + 1), dead, label=f"step size {rate:g}")
    print(f"step size {rate:g}:", monitor.report())
ax.set_xlabel("updates")
ax.set_ylabel("dead units, percent")
ax.legend(frameon=False)
fig.tight_layout()
plt.show()

# %%
# What the diagnosis says of the dying one: dead on the data, and which of those are dead for
# every input of the box around the data (proved).

print(rn.diagnose(model, X, y, domain=rn.Box.around(X), optimizer="adam"))

# %%
# The theory of one unit: from the blue starts gradient descent ends in the dead cone. Targets
# of a smaller scale have the same effect as a larger window: more of it is blue.

fig, axes = plt.subplots(1, 2, figsize=(8, 3.6))
for ax, gamma in zip(axes, (1.0, 0.1), strict=True):
    plot_basin(dying.basin(gamma, 0.9, grid=61), ax=ax)
fig.tight_layout()
plt.show()

# %%
# Make the dead units live again: the outputs stay what they are, and from there a smaller step
# keeps the units alive.

before = model(X).detach()
dying.revive_live_(model, X)
print("outputs moved by", float((model(X).detach() - before).abs().max()))
with rn.DeadUnitMonitor(model, window=20) as monitor:
    train(model, 1e-3, 500, monitor)
print(monitor.report())

# %%
# The same for a model in a file, on the command line::
#
#     relunorm diagnose model.onnx --data train.csv --target y
