"""Piecewise-linear fits of other packages, one JSON line in and one out: run by pieces.py.

Needs pwlf and piecewise-regression (both MIT) in the Python it is run with, and nothing of ours.
"""

from __future__ import annotations

import json
import signal
import sys
import time
import warnings

import numpy as np

#: Seconds of CPU time after which a fit counts as not finished.
LIMIT = 30


def fast(x, y, pieces):
    import pwlf

    model = pwlf.PiecewiseLinFit(x, y, seed=0)
    model.fitfast(pieces, pop=4)
    return model.predict(x)


def global_search(x, y, pieces):
    import pwlf

    model = pwlf.PiecewiseLinFit(x, y, seed=0)
    model.fit(pieces)
    return model.predict(x)


def muggeo(x, y, pieces):
    import piecewise_regression

    np.random.seed(0)  # noqa: NPY002  (the package draws from the global generator)
    model = piecewise_regression.Fit(x, y, n_breakpoints=pieces - 1)
    if not model.get_results()["converged"]:
        raise ValueError("not converged")
    return np.asarray(model.predict(x))


METHODS = {
    "pwlf fitfast": fast,
    "pwlf fit (differential evolution)": global_search,
    "piecewise-regression": muggeo,
}


def spent(number, frame):
    raise TimeoutError


def main():
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGVTALRM, spent)
    for line in sys.stdin:
        task = json.loads(line)
        x, y = np.array(task["x"]), np.array(task["y"])
        began = time.process_time()
        signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT)
        try:
            fitted = METHODS[task["method"]](x, y, task["pieces"])
            answer = {"mse": float(np.mean((fitted - y) ** 2))}
        except TimeoutError:
            answer = {"failed": f"not within {LIMIT} s"}
        except Exception as error:  # whatever a peer raises is its result
            answer = {"failed": str(error)[:60] or type(error).__name__}
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        print(json.dumps({**answer, "seconds": time.process_time() - began}), flush=True)


if __name__ == "__main__":
    main()
