"""Which names of a graph share memory, so that in-place operations reach all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relunorm.io.graph.lower import CannotLower
from relunorm.io.torch.aten.moves import ALIASES
from relunorm.io.torch.aten.program import Operation, Program, is_in_place, names, split


class Memory:
    """What is known about the memory behind each name.

    Attributes:
        storage: names with the same number may share memory.
        identity: names with the same number are the same tensor, not merely overlapping views.
        last_use: the last operation that reads a name.
    """

    def __init__(self, program: Program):
        self.storage: dict[str, int] = {}
        self.identity: dict[str, int] = {}
        self.fixed = frozenset(program.constants)
        self.last_use = {program.output: len(program.operations)}
        for number, operation in enumerate(program.operations):
            for name in names(operation.arguments):
                self.last_use[name] = max(number, self.last_use.get(name, -1))

    def is_constant(self, arguments: Mapping[str, Any]) -> bool:
        """Whether the first argument is (a view of) a parameter or buffer."""
        target = next(names(arguments), "")
        storage = self.storage.get(target)
        shared = {name for name, s in self.storage.items() if s == storage} | {target}
        return bool(shared & self.fixed)

    def record(
        self, number: int, operation: Operation, values: dict[str, Any], result: Any
    ) -> None:
        """Note what an operation's outputs alias; an in-place one updates its other names."""
        _, name, _ = split(operation.target)
        outputs = operation.outputs
        results = [outputs] if isinstance(outputs, str) else list(outputs)
        base = next(names(operation.arguments), None)
        if base is not None and is_in_place(name):
            self._overwrite(number, base, values, result)
            self._join(results, base, same=True)
        elif base is not None and (name in ALIASES or name == "getitem"):
            self._join(results, base, same=False)

    def _join(self, results: Sequence[str], base: str, same: bool) -> None:
        storage = self.storage.setdefault(base, len(self.storage) + 1)
        identity = self.identity.setdefault(base, len(self.identity) + 1)
        for name in results:
            self.storage[name] = storage
            self.identity[name] = identity if same else len(self.identity) + 1

    def _overwrite(self, number: int, base: str, values: dict[str, Any], result: Any) -> None:
        if base not in self.storage:
            values[base] = result
            return
        for name, storage in self.storage.items():
            if storage != self.storage[base]:
                continue
            if self.identity[name] == self.identity[base]:
                values[name] = result
            elif self.last_use.get(name, -1) > number:
                raise CannotLower("changes memory in place of which another view is read later")
