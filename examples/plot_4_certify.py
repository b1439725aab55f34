"""
Certify a classifier
====================

Is the answer still right if the measurements are a little off? ``certify`` proves it row by row,
or finds inputs nearby that get another class. ``sensitivity`` says which inputs matter.
"""

# %%
# A classifier of tumours from 30 measurements, trained by scikit-learn on standardized inputs.

from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

import relunorm as rn

cancer = load_breast_cancer()
X = StandardScaler().fit_transform(cancer.data)
X_train, X_test, y_train, y_test = train_test_split(X, cancer.target, random_state=0)
model = MLPClassifier((16,), alpha=1.0, max_iter=500, random_state=0).fit(X_train, y_train)
print("accuracy", model.score(X_test, y_test))

# %%
# Every input may move by a tenth of its standard deviation. Each row is robust (proved),
# attacked (an input that changes the class is at hand) or unknown (the time was up).

found = rn.certify(model, X_test[:40], radius=0.1, label=y_test[:40], time_limit=30)
print(found)
print(found.counts)

# %%
# Without a radius, every row gets its largest safe one, between what is proved and what is
# attacked. Accuracy against the radius is then a curve.

found = rn.certify(model, X_test[:40], label=y_test[:40], time_limit=30, tolerance=0.05)
picture = found.plot()

# %%
# The weakest row, and the input nearby that is taken for the other class.

weakest = min((row for row in found.rows if row.correct), key=lambda row: row.radius[1])
print(weakest)
moved = abs(weakest.adversarial - X_test[weakest.row]).max()
print(f"moved by {moved:.3f}: class", model.predict(weakest.adversarial[None])[0])

# %%
# Which measurements push the output which way, anywhere in the box of the training data? The
# ranges hold for every input of the box.

slopes = rn.sensitivity(
    model, rn.Box.around(X_train), time_limit=5, names=tuple(cancer.feature_names)
)
for row in slopes.steepest(3):
    print(f"{row['name']}: slope {row['slope']:.2f}")

# %%
# On the command line::
#
#     relunorm certify model.onnx --data test.csv --target y --eps 0.1
#     relunorm sensitivity model.onnx --domain data:train.csv?target=y
#     relunorm report model.onnx --data test.csv --target y -o page.html
