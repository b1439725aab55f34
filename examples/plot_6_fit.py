"""
Fit a table
===========

A small ReLU network fitted near its optimum: from a table to a model with its error, what every
input does, and, with one input, a proof that no network of that size is better.
"""

# %%
# A table: ten measurements of patients, and how their diabetes progressed. A few units and a
# penalty chosen by hold-out, compared with a linear model on rows kept aside.

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import train_test_split

import relunorm as rn
from relunorm.train.effects import feature_effects, plot_effects

table = load_diabetes()
X, X_test, y, y_test = train_test_split(table.data, table.target, random_state=0)
model = rn.ReLURegressor(hidden=8, random_state=0).fit(X, y)
for name, fitted in (("relu network", model), ("linear", RidgeCV().fit(X, y))):
    error = np.sqrt(np.mean((fitted.predict(X_test) - y_test) ** 2))
    print(f"{name}: {error:.1f} on held-out rows")

# %%
# What every input does to the output, averaged over the table.

picture = plot_effects(feature_effects(model.network_, X, names=table.feature_names))

# %%
# The result is a ``Network``: ask it anything the rest of the package answers, and save it as
# ONNX.

print(model.network_)
print(rn.lipschitz(model.network_, rn.Box.around(X), time_limit=5))

# %%
# With one input and one hidden layer a lower bound is proved on the error of every network of
# that size, and the gap says how far above it the fit is: nothing here, on noisy data often a
# few per cent. sin(4 pi x) with 20 units, from 200 points:

rng = np.random.default_rng(0)
x = rng.random((200, 1))
wave = np.sin(4 * np.pi * x[:, 0])
curve = rn.ReLURegressor(hidden=20, random_state=0).fit(x, wave)
mse = np.mean((curve.predict(x) - wave) ** 2)
print(f"{mse:.3e}, certified bound {curve.lower_bound_:.3e}, gap {curve.optimality_gap_:.2%}")

# %%
# On the command line, also for classes (``--classify``), words (``--one-hot``) and empty cells
# (``--missing median``), all of which the file remembers::
#
#     relunorm fit table.csv --target y --hidden 8 --plot effects.png -o model.onnx
#     relunorm report model.onnx --data table.csv --target y --open
