"""
Fit a function near-optimally
=============================

With one input and one hidden layer the best fit can be certified: no network of that size is
better by more than the gap. With more inputs or layers the same compact parameter space is
searched greedily.
"""

# %%
# sin(4 pi x) with 20 units, from 200 points.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.neural_network import MLPRegressor

import relunorm as rn
from relunorm.papers.reduced import franke

rng = np.random.default_rng(0)
x = rng.random((200, 1))
y = np.sin(4 * np.pi * x[:, 0])
model = rn.ReLURegressor(hidden=20, random_state=0).fit(x, y)
mse = np.mean((model.predict(x) - y) ** 2)
print(f"{mse:.3e}, certified bound {model.lower_bound_:.3e}, gap {model.optimality_gap_:.2%}")

# %%
# The same size trained by scikit-learn's MLPRegressor.

peer = MLPRegressor(hidden_layer_sizes=(20,), solver="lbfgs", max_iter=5000, random_state=0).fit(
    x, y
)
print(f"MLPRegressor: {np.mean((peer.predict(x) - y) ** 2):.3e}")

grid = np.linspace(0, 1, 1000)[:, None]
fig, axes = plt.subplots(2, 1, figsize=(6, 5), sharex=True, height_ratios=[2, 1])
axes[0].plot(x, y, ".", color="0.6", label="data")
axes[0].plot(grid, peer.predict(grid), label="MLPRegressor")
axes[0].plot(grid, model.predict(grid), label="relunorm")
axes[0].legend(frameon=False)
truth = np.sin(4 * np.pi * grid[:, 0])
axes[1].semilogy(grid, abs(peer.predict(grid) - truth))
axes[1].semilogy(grid, abs(model.predict(grid) - truth))
axes[1].set_ylabel("error")
fig.tight_layout()
plt.show()

# %%
# Two inputs: Franke's function with 40 units.

train, test = rng.random((500, 2)), rng.random((1000, 2))
surface = rn.ReLURegressor(hidden=40, random_state=0).fit(train, franke(train))
print("validation MSE", np.mean((surface.predict(test) - franke(test)) ** 2))

# %%
# The result is a ``Network``: ask it anything the rest of the package answers.

unit_square = rn.Box.cube(2, 0, 1)
print(rn.regions(surface.network_, unit_square))
print(rn.lipschitz(surface.network_, unit_square))
