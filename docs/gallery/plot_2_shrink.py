"""
Shrink an ONNX model and prove it
=================================

Units that are never on, always on, copies of one another or read by nobody can go without
changing the function on the inputs that matter. The result comes with a certificate that
replays without a solver.
"""

# %%
# An ONNX file stands in for yours: a digits classifier trained with a proximal L1 penalty, as
# people train networks that are meant to be small.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import onnxruntime
import torch
from sklearn.datasets import load_digits
from torch import nn

import relunorm as rn

digits = load_digits()
X = torch.tensor(digits.data / 16, dtype=torch.float32)
y = torch.tensor(digits.target)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 60), nn.ReLU(), nn.Linear(60, 60), nn.ReLU(), nn.Linear(60, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(400):
    loss = nn.functional.cross_entropy(model(X), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.sign() * (p.abs() - 5e-4).clamp(min=0))
print("accuracy", float((model(X).argmax(1) == y).float().mean()))

folder = Path(tempfile.mkdtemp())
rn.save(rn.load(model, example=(64,)), folder / "digits.onnx")

# %%
# Every pixel lies in [0, 1]. On that box:

net = rn.load(folder / "digits.onnx")
box = rn.Box.cube(64, 0, 1)
small = rn.normalize(net, "minimal", box)
print(net)
print(small.network)
print(small.certificate)

# %%
# What went, and why.

reasons = sorted({unit.reason for unit in small.removed})
layers = sorted({unit.layer for unit in small.removed})
bottom = np.zeros(len(layers))
fig, ax = plt.subplots(figsize=(6, 3))
for reason in reasons:
    count = [
        sum(u.reason == reason and u.layer == layer for u in small.removed) for layer in layers
    ]
    ax.barh([f"layer {layer}" for layer in layers], count, left=bottom, label=reason)
    bottom += count
ax.set_xlabel("units removed")
ax.legend(frameon=False)
fig.tight_layout()
plt.show()

# %%
# The small network runs in onnxruntime like any other. The certificate bounds the difference
# over the whole box, not over the samples.

rn.save(small.network, folder / "small.onnx", dtype="float64")  # as certified; float32 would round
session = onnxruntime.InferenceSession(folder / "small.onnx")
(name,) = [i.name for i in session.get_inputs()]
out = session.run(None, {name: X.double().numpy()})[0]
print("largest difference on 1,797 digits:", abs(out - net(X.numpy())).max())
print("proved on all of [0,1]^64:", small.certificate.bound)
print(rn.verify(small.certificate, net, rn.load(folder / "small.onnx")))

# %%
# On the command line::
#
#     relunorm normalize digits.onnx -o small.onnx --domain box:0,1 --certificate proof.json
#     relunorm verify proof.json digits.onnx small.onnx --domain box:0,1
