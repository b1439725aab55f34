"""Lipschitz constants: one method per file, `front.lipschitz` in front of them.

Called, the package is that function.
"""

from relunorm.callable_package import make_callable

make_callable(__name__, "relunorm.lipschitz.front")
