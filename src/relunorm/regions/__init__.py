"""Linear regions of piecewise affine networks: listed, located, measured, drawn.

Called, the package is the function `relunorm.regions.enumerate.regions`.
"""

from relunorm.callable_package import make_callable

make_callable(__name__, "relunorm.regions.enumerate")
