"""Sweeps: one function over many parameters, on any joblib backend, kept in one small store.

Called, the package is the function `relunorm.sweep.front.sweep`.
"""

from relunorm.callable_package import make_callable

make_callable(__name__, "relunorm.sweep.front")
