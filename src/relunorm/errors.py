"""Every exception the package raises on purpose.

A message says what was found, where, what was expected and what to do next.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class RelunormError(Exception):
    """Base of all errors raised by relunorm."""


class InvalidNetworkError(RelunormError, ValueError):
    """A network whose parts do not fit together, or whose numbers are not finite."""


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


class MissingDependencyError(RelunormError, ImportError):
    """An optional package that this call needs is not installed."""


#: Packages that an extra of relunorm installs.
_EXTRAS = {"torch": "torch", "onnx": "onnx", "safetensors": "safetensors", "keras": "keras"}


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


#: What to do about an operation that is not read, by words in its name.
_INSTEAD = (
    (
        r"quanti[sz]|fake_?quant|qlinear|qgemm",
        "This model rounds its values as it computes (it is quantized, or made ready for that); "
        "pass the one in floating point that it was made from.",
    ),
    (
        r"gelu|silu|swish|mish|[sc]?elu\b|soft(plus|sign|max|min)|sigmoid|tanh|\berf",
        "Curved activations are read at the end of a model only, as its head; inside it ReLU, "
        "LeakyReLU, Hardtanh or Hardsigmoid are piecewise linear.",
    ),
    (
        r"(layer|group|instance|rms).?norm",
        "Layer norm and its kin divide by what they measure on each input; batch norm in eval mode "
        "is folded into the layer before it.",
    ),
    (
        r"encoder|vectorizer",
        "Encode the table first, and load what follows: a pipeline without its first step is "
        "pipeline[1:].",
    ),
)


class UnsupportedOperationError(RelunormError, ValueError):
    """A model holds operations that are not piecewise affine or not known here.

    Attributes:
        operations: every offender as ``(place, operation)``, in graph order.
    """

    def __init__(self, source: str, operations: Sequence[tuple[str, str]], instead: str = ""):
        self.operations = tuple(operations)
        count = len(self.operations)
        listing = "\n".join(f"  - {place}: {operation}" for place, operation in operations)
        names = "\n".join(operation for _, operation in operations)
        advice = [text for words, text in _INSTEAD if re.search(words, names, re.IGNORECASE)]
        if instead or not advice:
            advice.append(instead or "Load the part of the model before it, or write it otherwise.")
        super().__init__(
            f"{source}: {count} operation{'s are' if count != 1 else ' is'} not supported:\n"
            f"{listing}\nNetworks are read exactly or not at all. {' '.join(advice)} "
            "What is read stands in docs/formats.md."
        )


class TimeLimitError(RelunormError, TimeoutError):
    """The time is up, and what was asked for has no partial answer."""


class StoreError(RelunormError, OSError):
    """A store of runs that cannot be opened, read or written."""
