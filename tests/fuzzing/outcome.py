"""A case of a subject (what is asked) and its outcome (what the oracle contradicts)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fuzzing.places import Place
from relunorm import Domain, Network


@dataclass(frozen=True)
class Case:
    """What is asked: networks, a domain, and options that are plain JSON."""

    networks: tuple[Network, ...]
    place: Place | None
    options: dict[str, Any]

    @property
    def domain(self) -> Domain:
        """The domain; a case without one asks for none."""
        assert self.place is not None
        return self.place.domain

    def save(self, path: Path, note: dict[str, Any]) -> None:
        """Networks as plain arrays; domain, options and findings as JSON."""
        arrays: dict[str, Any] = {}
        for i, network in enumerate(self.networks):
            maps = [layer.affine for layer in network.layers] + [network.output]
            for k, affine in enumerate(maps):
                arrays[f"net{i}.map{k}.bias"] = affine.bias
                for source, m in affine.terms.items():
                    dense = m.toarray() if hasattr(m, "toarray") else m
                    arrays[f"net{i}.map{k}.from{source}"] = dense
            note[f"net{i}"] = [
                [a.kind, a.slope, a.at_zero] for a in (x.activation for x in network.layers)
            ]
        if self.place is not None:
            note["domain"] = self.domain.to_dict()
        np.savez(path, note=json.dumps({**note, "options": self.options}), **arrays)


@dataclass
class Outcome:
    """What the judge of a subject found.

    Attributes:
        wrong: one sentence for every answer that the oracle contradicts.
        unknown: how many answers were honest refusals (unknown, undecided, refused in words).
    """

    wrong: list[str] = field(default_factory=list)
    unknown: int = 0

    def claim(self, holds: bool, text: str) -> None:
        """Note a contradiction."""
        if not holds:
            self.wrong.append(text)


def magnitudes(network: Network, domain: Any) -> np.ndarray:
    """Sums of absolute values behind each output: what rounding is measured in."""
    box = domain.bounding_box
    sizes: list[Any] = [np.maximum(np.abs(box.lo), np.abs(box.hi))]
    maps = [layer.affine for layer in network.layers] + [network.output]
    for k, affine in enumerate(maps):
        total = np.abs(affine.bias)
        for source, matrix in affine.terms.items():
            total = total + abs(matrix) @ sizes[source]
        if k < len(network.layers):
            activation = network.layers[k].activation
            if activation.kind == "step":
                total = np.full(len(total), max(1.0, abs(activation.at_zero)))
            total = total * max(1.0, *map(abs, activation.slopes))
        sizes.append(total)
    return sizes[-1]


def limit(rng: np.random.Generator) -> dict[str, float]:
    """A time limit that suffices, or one that does not: what is said must hold all the same."""
    return {"time_limit": float(rng.choice([2.0, 2.0, 2.0, 2.0, 1e-3]))}


def jumps(*networks: Network) -> bool:
    """Whether one of them has step units."""
    return any(x.activation.kind == "step" for n in networks for x in n.layers)


def short(value: Any) -> str:
    """A number with enough digits to see the difference."""
    try:
        return f"{float(value):.17g}"
    except OverflowError:
        return "beyond float64"
