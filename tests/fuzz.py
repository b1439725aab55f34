"""Fuzz the exact answers against an oracle in rational arithmetic.

    python tests/fuzz.py --minutes 60 [--seed S] [--subject NAME] [--jobs N]
    python tests/fuzz.py --subject regions --seed 3 --case 17 [--shrink]  # one case, in words

Every case is a function of subject, seed and number. What the oracle contradicts is printed with
the command that repeats it, and written to a folder: networks and domain as plain arrays.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from fuzzing.outcome import Case
from fuzzing.shrink import shrunk
from fuzzing.subjects import SUBJECTS, draw_case, judged

from relunorm import Network

#: Cases of one subject before the next one has its turn.
BATCH = 20


@dataclass
class Tally:
    """What one subject came to."""

    cases: int = 0
    unknown: int = 0
    wrong: int = 0
    texts: list[str] = field(default_factory=list)


def batch(subject: str, seed: int, first: int, count: int, folder: str) -> Tally:
    """Some cases in a row; what is wrong is written to the folder."""
    tally = Tally()
    for number in range(first, first + count):
        case = draw_case(subject, seed, number)
        out = judged(subject, case)
        tally.cases += 1
        tally.unknown += bool(out.unknown)
        if out.wrong:
            tally.wrong += 1
            Path(folder).mkdir(parents=True, exist_ok=True)
            path = Path(folder) / f"{subject}-{seed}-{number}.npz"
            note = {"subject": subject, "seed": seed, "case": number, "wrong": out.wrong}
            case.save(path, note)
            again = f"--subject {subject} --seed {seed} --case {number}"
            tally.texts.append(f"{again}\n    " + "\n    ".join(out.wrong[:3]))
    return tally


def batches(subjects: list[str], seed: int, folder: str) -> Iterator[tuple]:
    """The subjects in turn, without end."""
    first = 0
    while True:
        for subject in subjects:
            yield subject, seed, first, BATCH, folder
        first += BATCH


def run(subjects: list[str], seed: int, minutes: float, jobs: int, folder: str) -> dict[str, Tally]:
    """Fuzz for so long; a batch that has begun is finished."""
    end = time.monotonic() + 60 * minutes
    tallies = {subject: Tally() for subject in subjects}
    work = batches(subjects, seed, folder)

    def add(subject: str, found: Tally) -> None:
        own = tallies[subject]
        own.cases, own.unknown = own.cases + found.cases, own.unknown + found.unknown
        own.wrong += found.wrong
        for text in found.texts:
            print(text, flush=True)

    if jobs == 1:
        for job in work:
            if time.monotonic() > end:
                return tallies
            add(job[0], batch(*job))
    with ProcessPoolExecutor(jobs) as pool:
        while time.monotonic() < end:
            running = [(job[0], pool.submit(batch, *job)) for job in itertools.islice(work, jobs)]
            for subject, future in running:
                add(subject, future.result())
    return tallies


def table(tallies: dict[str, Tally]) -> str:
    """One line a subject and the sum."""
    rows = [("subject", "cases", "unknown", "wrong")]
    rows += [(s, str(t.cases), str(t.unknown), str(t.wrong)) for s, t in tallies.items()]
    sums = [sum(getattr(t, n) for t in tallies.values()) for n in ("cases", "unknown", "wrong")]
    rows.append(("all", *map(str, sums)))
    return "\n".join(f"{a:12} {b:>8} {c:>8} {d:>8}" for a, b, c, d in rows)


def show(subject: str, seed: int, number: int, shrink: bool) -> int:
    """One case in words, made smaller first if asked."""
    case = draw_case(subject, seed, number)
    out = judged(subject, case)
    if shrink and out.wrong:
        kind = _kind(out.wrong[0])

        def fails(smaller: Case) -> bool:
            return any(_kind(text) == kind for text in judged(subject, smaller).wrong)

        case = shrunk(case, fails)
        out = judged(subject, case)
    for i, network in enumerate(case.networks):
        print(f"net{i} = {written(network)}")
    if case.place is not None:
        print(f"domain = {written_domain(case.place.domain)}")
    print(case.options)
    print("\n".join(out.wrong or ["nothing wrong"]))
    return bool(out.wrong)


def _kind(text: str) -> str:
    """A sentence without its numbers."""
    return re.sub(r"[^a-z:]", "", re.sub(r"\(.*?\)|\[.*?\]", "", text))[:60]


def written(network: Network) -> str:
    """The network as the Python that makes it."""
    layers = ", ".join(
        f"Layer({_affine(x.affine)}{_activation(x.activation)})" for x in network.layers
    )
    shape = network.input_shape[0] if len(network.input_shape) == 1 else network.input_shape
    return f"Network([{layers}], {_affine(network.output)}, input_shape={shape})"


def _activation(activation: Any) -> str:
    if activation.kind == "relu":
        return ""
    detail = {"leaky": f", slope={activation.slope!r}", "step": f", at_zero={activation.at_zero!r}"}
    return f", Activation({activation.kind!r}{detail.get(activation.kind, '')})"


def _affine(affine: Any) -> str:
    terms = {
        k: (m.toarray() if hasattr(m, "toarray") else m).tolist() for k, m in affine.terms.items()
    }
    return f"Affine({terms}, {affine.bias.tolist()})"


def written_domain(domain: Any) -> str:
    """The domain as the Python that makes it."""
    return f"{type(domain).__name__}.from_dict({domain.to_dict()})"


def main() -> int:
    """Exit code 1 where anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--subject", action="append", choices=list(SUBJECTS))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--case", type=int, help="repeat one case of one subject")
    parser.add_argument("--shrink", action="store_true", help="make that case smaller first")
    parser.add_argument("--folder", default="fuzz-findings", help="where failing cases are written")
    given = parser.parse_args()
    subjects = given.subject or list(SUBJECTS)
    if given.case is not None:
        return show(subjects[0], given.seed, given.case, given.shrink)
    tallies = run(subjects, given.seed, given.minutes, given.jobs, given.folder)
    print(table(tallies))
    return int(any(tally.wrong for tally in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
