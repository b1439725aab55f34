"""One self-contained page of what was reproduced: claims, verdicts, figures, tables and code."""

from __future__ import annotations

import base64
import csv
import io
from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from relunorm.atomic import write_bytes
from relunorm.papers import TITLES
from relunorm.papers.claim import Verdict
from relunorm.papers.exhibit import cell
from relunorm.papers.run import FAILED, Outcome, code_of

#: Columns of verdicts.csv.
COLUMNS: tuple[str, ...] = (
    "paper", "seed", "item", "printed", "corrected", "ran", "numbers", "basis", "verdict",
    "exhibit", "code",
)  # fmt: skip
#: Tables longer than this are cut on the page; the CSV file has all of it.
MOST_ROWS = 40
#: How the items begin that no paper states.
OURS = "ours: "
_CLASS = {
    Verdict.HOLDS.value: "holds",
    Verdict.CORRECTED.value: "corrected",
    Verdict.FAILS.value: "fails",
    Verdict.SHORT.value: "short",
    FAILED: "failed",
}


def write_page(outcomes: Sequence[Outcome], folder: str | Path, heading: str) -> list[Path]:
    """Write index.html and verdicts.csv; returns their paths."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rows = [row for outcome in outcomes for row in outcome.rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(COLUMNS), extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    paths = [folder / "index.html", folder / "verdicts.csv"]
    write_bytes(paths[0], _page(outcomes, folder, heading).encode())
    write_bytes(paths[1], text.getvalue().encode())
    return paths


def counts(rows: Sequence[dict[str, Any]]) -> dict[str, int]:
    """How many rows have each verdict, in a fixed order, without zeros; the statements that no
    paper makes are counted apart, as "ours: holds" and so on."""
    found = Counter(OURS * row["item"].startswith(OURS.strip()) + row["verdict"] for row in rows)
    names = [*_CLASS, *(OURS + name for name in _CLASS)]
    return {name: found[name] for name in names if found[name]}


def _page(outcomes: Sequence[Outcome], folder: Path, heading: str) -> str:
    rows = [row for outcome in outcomes for row in outcome.rows]
    papers = list(dict.fromkeys(outcome.task.paper for outcome in outcomes))
    chips = "".join(f"<li>{_chip(name)} {n}</li>" for name, n in counts(rows).items())
    links = "".join(f'<li><a href="#{p}">{escape(TITLES[p])}</a></li>' for p in papers)
    sections = "".join(
        _section(paper, [o for o in outcomes if o.task.paper == paper], folder) for paper in papers
    )
    style = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<title>The seed papers, re-run</title>"
        f"<style>{style}</style></head><body>"
        f"<header><h1>The seed papers, re-run</h1><p>{escape(heading)}</p>"
        f'<ul class="chips">{chips}</ul><p class="small">A verdict is computed: the number in a '
        "row is compared with the limit beside it. The last column leads to the exhibit with its "
        "code, to its picture and to its data. Items called “ours” are in no paper "
        "and counted apart.</p>"
        '</header><nav aria-label="Papers"><ul>'
        f"{links}</ul></nav><main>{sections}</main></body></html>\n"
    )


def _section(paper: str, outcomes: Sequence[Outcome], folder: Path) -> str:
    rows = [row for outcome in outcomes for row in outcome.rows]
    head = "".join(
        f'<th scope="col">{name}</th>'
        for name in ("item", "statement", "what was run", "number and limit", "verdict", "look")
    )
    body = "".join(_row(paper, row, folder) for row in rows)
    return (
        f'<section><h2 id="{paper}">{escape(TITLES[paper])}</h2>'
        f'<div class="wide"><table class="claims"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
        + "".join(_exhibit(outcome, folder) for outcome in outcomes)
        + "</section>"
    )


def _row(paper: str, row: dict[str, Any], folder: Path) -> str:
    """One claim: the printed statement and the corrected one, what was run, the number beside its
    limit, where the limit comes from, the verdict, and the way to the picture and the data."""
    printed = f"<p>{escape(row['printed'])}</p>"
    if row["corrected"]:
        printed += f"<p><b>Corrected:</b> {escape(row['corrected'])}</p>"
    basis = f'<p class="small">Limit: {escape(row["basis"])}.</p>' if row["basis"] else ""
    stem = escape(f"{paper}/{row['exhibit']}", quote=True)
    files = [
        e for e in ("png", "csv", "json") if (folder / f"{paper}/{row['exhibit']}.{e}").exists()
    ]
    names = {"png": "picture", "csv": "table", "json": "all data"}
    links = [f'<a href="#{_anchor(paper, row["exhibit"])}">{escape(row["exhibit"])}</a>']
    links += [f'<a href="{stem}.{ending}">{names[ending]}</a>' for ending in files]
    return (
        f'<tr><th scope="row">{escape(row["item"])}</th>'
        f'<td data-label="statement">{printed}</td>'
        f'<td data-label="what was run">{escape(row["ran"])}</td>'
        f'<td class="number" data-label="number and limit">{_lines(row["numbers"])}{basis}</td>'
        f"<td>{_chip(row['verdict'])}</td>"
        f'<td class="small">{"<br>".join(links)}</td></tr>'
    )


def _exhibit(outcome: Outcome, folder: Path) -> str:
    task = outcome.task
    anchor, document = _anchor(task.paper, task.name), outcome.document
    start = f'<article id="{anchor}"><h3>'
    if document is None:
        text = f'{escape(task.name)}</h3><p class="error">{escape(outcome.error)}</p>'
        return start + text + _code(outcome) + "</article>"
    note = f"<p>{escape(document['note'])}</p>" if document["note"] else ""
    return (
        f"{start}{escape(document['title'])}</h3>{_figure(outcome, folder)}{note}"
        f"{_table(document)}{_code(outcome)}</article>"
    )


def _figure(outcome: Outcome, folder: Path) -> str:
    task, document = outcome.task, outcome.document
    home = folder / task.paper
    stem = f"{task.paper}/{task.name}"
    links = ["csv", "json"]
    picture = ""
    if document is not None and document["has_figure"]:
        data = base64.b64encode((home / f"{task.name}.png").read_bytes()).decode()
        title = escape(document["title"], quote=True)
        picture = f'<img alt="{title}" loading="lazy" src="data:image/png;base64,{data}">'
        links = ["png", "svg", *links]
    text = " ".join(f'<a href="{escape(stem, quote=True)}.{e}">{e}</a>' for e in links)
    return f'<figure>{picture}<figcaption class="small">files: {text}</figcaption></figure>'


def _table(document: dict[str, Any]) -> str:
    head = "".join(f'<th scope="col">{escape(str(name))}</th>' for name in document["columns"])
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell(value))}</td>" for value in row) + "</tr>"
        for row in document["rows"][:MOST_ROWS]
    )
    more = len(document["rows"]) - MOST_ROWS
    note = f'<p class="small">{more} more rows in the csv file.</p>' if more > 0 else ""
    size = f"{len(document['rows'])} rows"
    return (
        f'<details><summary>table ({size})</summary><div class="wide"><table><thead><tr>{head}'
        f"</tr></thead><tbody>{body}</tbody></table></div>{note}</details>"
    )


def _code(outcome: Outcome) -> str:
    code = code_of(outcome.task.make)
    return (
        f"<details><summary>code: <code>{escape(code['name'])}</code> "
        f'<span class="small">{escape(code["place"])}</span></summary>'
        f"<pre><code>{escape(code['text'])}</code></pre></details>"
    )


def _chip(verdict: str) -> str:
    kind = _CLASS.get(verdict.removeprefix(OURS), "failed")
    return f'<span class="chip {kind}">{escape(verdict)}</span>'


def _lines(text: str) -> str:
    return "<br>".join(escape(part) for part in text.split("; "))


def _anchor(paper: str, name: str) -> str:
    return escape(f"{paper}-{name}".replace(".", "-"), quote=True)
