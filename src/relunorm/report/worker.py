"""A process that computes sections and can be killed: what makes the time budgets hard.

It reads one pickled `Case`, says that it is ready, reads one request (section name, seconds) at a
time from standard input, and writes one JSON document a line. The empty name asks it to compile. It
is started by `relunorm.report.runner` alone.
"""

from __future__ import annotations

import json
import os
import pickle
import queue
import subprocess
import sys
import threading
from contextlib import suppress
from typing import IO, Any

from relunorm.report.case import Case
from relunorm.report.registry import SECTIONS, attempt, warm_up


class Worker:
    """The parent's end: ask for a section, wait for a while, kill."""

    def __init__(self, case: Case, compiled: bool = False):
        code = f"from relunorm.report.worker import serve; serve({compiled})"
        paths = os.pathsep.join(path for path in sys.path if path)
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths},
        )
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._started = threading.Event()
        threading.Thread(target=self._follow, args=(case,), daemon=True).start()

    @property
    def is_ready(self) -> bool:
        """Whether it has started (or ended: the next answer tells)."""
        return self._started.is_set()

    def ready(self, timeout: float) -> bool:
        """Wait until it has started; False if that takes longer."""
        return self._started.wait(timeout)

    def compile(self, timeout: float) -> float:
        """Wait until it has compiled; the seconds that took. A later answer tells if it has not."""
        self.ask("", timeout)
        with suppress(queue.Empty):
            found = self.answer(timeout)
            return 0.0 if found is None else found["compiling"]
        return timeout

    def ask(self, name: str, seconds: float) -> None:
        """Start a section."""
        self._send(pickle.dumps((name, seconds)))

    def answer(self, timeout: float) -> dict[str, Any] | None:
        """Its entry of the document; None if the process ended without one.

        Raises:
            queue.Empty: when it takes longer.
        """
        line = self._lines.get(timeout=max(timeout, 0.0))
        return json.loads(line) if line else None

    def kill(self) -> None:
        """End the process now."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:  # what was still to be written has no reader any more
                    continue
        self._process.wait()

    def _send(self, content: bytes) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        try:
            pipe.write(content)
            pipe.flush()
        except (BrokenPipeError, ValueError):  # it died or was killed; `answer` says so
            return

    def _follow(self, case: Case) -> None:
        """Hand over the case, which may be large, and then listen."""
        self._send(pickle.dumps(case))
        pipe = self._process.stdout
        assert pipe is not None
        try:
            for line in iter(pipe.readline, b""):
                if self._started.is_set():
                    self._lines.put(line)
                self._started.set()
        except ValueError:  # closed by `kill`
            return
        self._lines.put(b"")
        self._started.set()


def serve(compiled: bool) -> None:
    """The process's end: compute what is asked for until standard input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a solver prints must not mix with the answers
    requests: IO[bytes] = sys.stdin.buffer
    known = {section.name: section for section in SECTIONS}
    with suppress(EOFError, KeyboardInterrupt, BrokenPipeError):  # the parent has all it wants
        case: Case = pickle.load(requests)
        if compiled:
            warm_up(case)
        answers.write(b"{}\n")
        answers.flush()
        while True:
            name, seconds = pickle.load(requests)
            if name:
                found = attempt(known[name], case, seconds)
            else:
                found = {"compiling": warm_up(case)}
            answers.write(json.dumps(found, allow_nan=False).encode() + b"\n")
            answers.flush()
