"""The report: everything the other rooms find about one network, as one document and one page.

The package can be called: ``relunorm.report(network)``.
"""

from relunorm.callable_package import make_callable

make_callable(__name__, "relunorm.report.front")
