"""Every exception the package raises on purpose.

A message says what was found, where, what was expected and what to do next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class RelunormError(Exception):
    """Base of all errors raised by relunorm."""


#: What arguments that make no sense together raise: those of a damaged file, or of a wrong graph.
SENSELESS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class InvalidNetworkError(RelunormError, ValueError):
    """A network whose parts do not fit together, or whose numbers are not finite."""


class TableNote(UserWarning):
    """Something about a table that nobody said and that was taken for granted."""


class InvalidInputError(RelunormError, ValueError):
    """An argument of the wrong shape, type or range."""


class InvalidDomainError(RelunormError, ValueError):
    """A domain that is empty, unbounded where a bound is needed, or of the wrong dimension."""


class ModelFileError(RelunormError, ValueError):
    """A model file that cannot be read: damaged, unsafe, or not what its name says."""


class MissingFileError(RelunormError, FileNotFoundError):
    """A file that is not there."""

    def __init__(self, path: object, what: str = "file"):
        super().__init__(f"{path}: there is no such {what}")


class PropertyFileError(RelunormError, ValueError):
    """A property file that cannot be read, or that asks for more than linear constraints."""


class UnsupportedFormatError(RelunormError, ValueError):
    """A file or object of a kind relunorm does not read or write."""


class BranchingError(UnsupportedFormatError):
    """A model's forward chooses by the values of its input."""


class SeveralTensorsError(UnsupportedFormatError):
    """A module that does not take one tensor and give one."""


class MissingDependencyError(RelunormError, ImportError):
    """An optional package that this call needs is not installed."""


#: Packages that an extra of relunorm installs.
_EXTRAS = {
    **{name: name for name in ("torch", "onnx", "safetensors", "keras", "dask", "ray")},
    "distributed": "dask",
}


@contextmanager
def optional_packages() -> Iterator[None]:
    """Turn the import error of a package that is not installed into one that says what to do."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "relunorm"):
            raise
        extra = _EXTRAS.get(package)
        how = f"pip install 'relunorm[{extra}]'" if extra else f"pip install {package}"
        raise MissingDependencyError(f"the package {package} is not installed: {how}") from None


class UnsupportedOperationError(RelunormError, ValueError):
    """A model holds operations that are not piecewise affine or not known here.

    Attributes:
        operations: every offender as ``(place, operation)``, in graph order.
    """

    def __init__(self, source: str, operations: Sequence[tuple[str, str]], advice: str):
        self.operations = tuple(operations)
        listing = "\n".join(f"  - {place}: {operation}" for place, operation in operations)
        count = len(self.operations)
        super().__init__(
            f"{source}: {count} operation{'s are' if count != 1 else ' is'} not supported:\n"
            f"{listing}\n{advice}"
        )


class TimeLimitError(RelunormError, TimeoutError):
    """The time is up, and what was asked for has no partial answer."""


class StoreError(RelunormError, OSError):
    """A store of runs that cannot be opened, read or written."""
