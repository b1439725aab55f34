"""What to do next, in words: a pure function of the other sections, each with its command."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context
from typing import Any

from relunorm.arithmetic.floats import at_most
from relunorm.clock import INTERRUPTED
from relunorm.display.shown import counted
from relunorm.report.case import Case
from relunorm.report.misfit import HARDLY
from relunorm.report.registry import NEEDS_TIME, NO_TIME, SECTIONS
from relunorm.report.sections.robustness import MOST_ROWS
from relunorm.report.spelling import Spelling

_KERAS = "from relunorm.dying.adapters.keras import"

#: What the sentences of `diagnose` name -> the call that does it.
CALLS = {
    "adapters.keras.Revive": f"{_KERAS} Revive; model.fit(X, y, callbacks=[Revive()])",
    "adapters.keras.DeadUnits": f"{_KERAS} DeadUnits; model.fit(X, y, callbacks=[DeadUnits()])",
    "revive_live_": "rn.dying.revive_live_(model, batch, optimizer)",
    "live_": "rn.dying.live_(model, batch)",
    "redo_": "rn.dying.redo_(model, batch, optimizer)",
    "rescale_targets": "rn.dying.TargetScaler().fit(y)",
    "TargetScaler": "rn.dying.TargetScaler().fit(y)",
    "DeadUnitMonitor": "rn.DeadUnitMonitor(model)",
    "removed exactly": 'rn.normalize(model, "minimal", domain)',
    "merged exactly": 'rn.normalize(model, "minimal", domain)',
}

#: What more time would bring to a section that ran out of it.
MORE = {section.name: section.more for section in SECTIONS if section.more}


def advise(sections: dict[str, Any], case: Case, limit: float) -> list[dict[str, Any]]:
    """Advice in the order to follow it: what the answer lacks, what can go, what may be wrong.

    Where model and rows do not fit together that comes first, and what follows from these rows is
    held back.
    """
    spell = Spelling(case)
    quality = sections["quality"]["body"]
    misfit = _misfit(quality, case, spell)
    items = [*misfit, *_given(case, spell)]
    if not (misfit and quality["misfit"]["whole"]):
        items += _found(sections, case, spell)
    items += [
        _item(f"{entry['title']}: {entry['why']}.", entry["call"], "open", entry["command"])
        for name, entry in sections.items()
        if entry["status"] == "not computed" and not _only_time(name, entry)
    ]
    items += _more_time(sections, spell, limit)
    return items or [
        _item("Nothing to do: no unit is idle and no question stayed open.", "", "fine")
    ]


def _found(sections: dict[str, Any], case: Case, spell: Spelling) -> list[dict[str, Any]]:
    """What follows from the answers of the sections."""
    quality = sections["quality"]["body"]
    items = [*_missed(quality, case), *_robustness(sections["robustness"], spell)]
    removal = _removal(sections["removal"], spell)
    items += removal
    if not case.is_point:  # of one row nothing follows about units
        items += _units(sections["units"], case, bool(removal), _learned(quality))
    return items + _sensitivity(sections["sensitivity"], spell)


def _item(text: str, call: str, topic: str, command: str = "") -> dict[str, Any]:
    return {"text": text, "call": call, "command": command, "topic": topic}


def _given(case: Case, spell: Spelling) -> list[dict[str, Any]]:
    """What the page could say with more to go by."""
    items = []
    if case.x is None or case.y is None:
        missing = "data with a target column" if case.x is None else "the target column"
        text = f"Give {missing} to see how well the network does, row by row."
        command = f"relunorm report {spell.model} {spell.data} --target COLUMN"
        items.append(_item(text, "rn.report(model, X, y)", "data", command))
    if case.is_point:
        text = (
            "The domain is a single input, the box around one row. Give more rows, or say where "
            "the inputs lie, for what holds over a domain."
        )
        call, command = "rn.report(model, domain=rn.Box(lo, hi))", f"relunorm report {spell.model}"
        items.append(_item(text, call, "domain", f"{command} {spell.table} --domain box:LO,HI"))
    elif case.domain_from == "default":
        text = (
            "No domain was given, so proofs on this page speak of the box from -1 to 1. Say where "
            "the inputs really lie; proofs hold there and nowhere else."
        )
        items.append(
            _item(text, "rn.report(model, domain=rn.Box(lo, hi))", "domain",
                  f"relunorm report {spell.model} --domain box:LO,HI")
        )  # fmt: skip
    return items


def _misfit(quality: dict[str, Any] | None, case: Case, spell: Spelling) -> list[dict[str, Any]]:
    """That an answer which looks at no input is as good, and what may be the reason."""
    if quality is None or quality.get("misfit") is None:
        return []
    found = quality["misfit"]
    words = _worse_than_mean if quality["type"] == "numbers" else _worse_than_commonest
    text, questions, command = words(quality, case, spell)
    remedy = found["remedy"]
    if remedy is not None:
        score = f"{_percent(remedy['score'])} of the rows would be right"
        if quality["type"] == "numbers":
            score = f"R² would be {remedy['score']:.3g}"
        text += f" If {remedy['words']}, {score}: give rows and targets as in training."
        command = ""
    else:
        text += f" Does the data fit the model: {questions}?"
    if found["whole"]:
        text += " Until then what else this page says of these rows means little."
    return [_item(text, "", "misfit", command)]


def _worse_than_mean(quality: dict[str, Any], case: Case, spell: Spelling) -> tuple[str, str, str]:
    known = [row for row in quality["errors"]["rows"] if row["r2"] is not None]
    below = [row for row in known if row["r2"] < 0]
    rows = below or [row for row in known if row["r2"] < HARDLY]
    how = "Worse" if below else "Hardly better"
    if quality["errors"]["of"] == 1:
        text = f"{how} than always answering the mean of the target (R² = {rows[0]['r2']:.3g})."
    else:
        named = [
            f"{row['name'] or 'output ' + str(row['output'])} (R² = {row['r2']:.3g})"
            for row in rows[:4]
        ] + ([f"{len(rows) - 4} more"] if len(rows) > 4 else [])
        text = f"{how} than always answering the mean of the target: {_listed(named)}."
    order = "" if case.network.columns else "are the columns in the model's order, "
    return text, f"{order}are the inputs and the target scaled as in training", ""


def _worse_than_commonest(
    quality: dict[str, Any], case: Case, spell: Spelling
) -> tuple[str, str, str]:
    assert case.classes is not None
    names, accuracy = case.classes.names, quality["accuracy"]
    baseline = quality["baseline"]
    share = _percent(accuracy["right"] / accuracy["rows"])
    always = _percent(baseline["right"] / accuracy["rows"])
    text = (
        f"No better than always answering {names[baseline['label']]}, which would be right on "
        f"{always} of the rows (the model: {share})."
    )
    if quality["answers"]["different"] == 1:
        text = f"Every row gets the same answer. {text}"
    order = "" if case.network.columns else "are the columns in the model's order, "
    questions = f"{order}are the inputs scaled as in training"
    command = ""
    if case.classes.guessed:
        listed = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
        questions += (
            f", and do the outputs stand for the classes in this order: {listed} (sorted, for the "
            "answers do not tell)"
        )
        command = f"relunorm report {spell.model} {spell.rows} --classes CLASS,CLASS,..."
    return text, questions, command


def _percent(share: float) -> str:
    """As the page writes it: three digits, a half rounded up."""
    return f"{Context(prec=3, rounding=ROUND_HALF_UP).create_decimal_from_float(100 * share):f} %"


def _missed(quality: dict[str, Any] | None, case: Case) -> list[dict[str, Any]]:
    """A class of which most rows are missed."""
    if quality is None or quality["type"] != "classes" or case.classes is None:
        return []
    worst, rows = quality["recall"]["rows"][0], quality["accuracy"]["rows"]
    if 2 * worst["right"] >= worst["rows"]:
        return []
    missed, of = worst["rows"] - worst["right"], f"the {worst['rows']:,} rows"
    text = (
        f"{missed:,} of {of if worst['rows'] > 1 else 'the one row'} of class "
        f"{case.classes.names[worst['label']]} {'is' if missed == 1 else 'are'} missed"
    )
    if not worst["said"]:
        text += " (no row gets that answer)"
    common = quality["baseline"]
    if common["label"] != worst["label"]:
        text += (
            f"; always answering {case.classes.names[common['label']]} would be right on "
            f"{_percent(common['right'] / rows)} of all rows"
        )
    text += ". If that class matters, give it more weight in training, or decide at another margin."
    return [_item(text, "", "classes")]


def _robustness(entry: dict[str, Any], spell: Spelling) -> list[dict[str, Any]]:
    body = entry["body"]
    weak = body["weakest"]["rows"] if body is not None else []
    near = next((row for row in weak if row["correct"] and row["attacked"] is not None), None)
    if body is None or near is None or near["attacked"] == 0:
        return []
    unit, option, argument = "", "", ""
    if body["scales_differ"]:
        unit, option = " of their spread", " --scale spread"
        argument = ", scale=X.std(axis=0)"
    radius = at_most(near["attacked"], 2)
    text = (
        f"Row {near['row']} is answered correctly, but moving its inputs by "
        f"{radius}{unit} each changes the class. Choose how far inputs may "
        "move in practice and count the rows that stand it."
    )
    command = f"relunorm certify {spell.model} {spell.table} --eps {radius}{option}"
    call = f"rn.certify(model, X, radius={radius}, label=y{argument})"
    return [_item(text, call, "robustness", command)]


def _removal(entry: dict[str, Any], spell: Spelling) -> list[dict[str, Any]]:
    """The reduced network, where it is smaller in every respect."""
    body = entry["body"]
    if body is None or not body["removed"]["total"]:
        return []
    before, after = body["before"], body["after"]
    if after["parameters"] >= before["parameters"]:
        return []
    text = (
        f"Use the reduced network: {counted(before['units'], 'unit')} become"
        f"{'s' if before['units'] == 1 else ''} {after['units']:,} and "
        f"{before['parameters']:,} parameters {after['parameters']:,}"
    )
    difference = body["difference"]
    if difference is not None and difference["value"] is not None:
        text += f", with outputs proved to differ by at most {at_most(difference['value'], 2)}"
    command = (
        f"relunorm normalize {spell.model} -o reduced.onnx --form minimal {spell.domain} "
        "--certificate proof.json"
    )
    return [_item(text + ".", 'rn.normalize(model, "minimal", domain)', "removal", command)]


def _learned(quality: dict[str, Any] | None) -> bool:
    """Whether a regression explains most of its targets: their scale was no hindrance."""
    if quality is None or quality["type"] != "numbers":
        return False
    return all((row["r2"] or 0.0) > 0.5 for row in quality["errors"]["rows"])


def _units(entry: dict[str, Any], case: Case, removal: bool, learned: bool) -> list[dict[str, Any]]:
    """The sentences of `diagnose` that say what to do, each with the call it names.

    Units are revived in training only: not those of a file, nor where the network without them is
    advised.
    """
    if entry["body"] is None:
        return []
    items = []
    for sentence in entry["body"]["sentences"]:
        call = next((call for name, call in CALLS.items() if name in sentence), "")
        about_scale, about_removal = "TargetScaler" in call, "normalize" in call
        if about_scale:
            wanted = not learned
        elif about_removal:
            wanted = not removal  # what goes is the advice on removal already
        else:
            wanted = case.trainable and not removal
        if call and wanted:
            where = "" if case.x is not None else "With random points of the domain as data: "
            if about_scale and not case.trainable:
                where = "If the model is trained again: "
            items.append(_item(where + sentence, call, "units"))
    return items


def _sensitivity(entry: dict[str, Any], spell: Spelling) -> list[dict[str, Any]]:
    body = entry["body"]
    if body is None or not body["monotone"]["unused"]:
        return []
    count = body["monotone"]["unused"]
    ones = "1 input is" if count == 1 else f"{count} inputs are"
    text = f"{ones} never used by the outputs shown, proved over the domain: leave out or look why."
    command = f"relunorm sensitivity {spell.model} {spell.domain}"
    return [_item(text, "rn.sensitivity(model, domain)", "sensitivity", command)]


def _more_time(sections: dict[str, Any], spell: Spelling, limit: float) -> list[dict[str, Any]]:
    """One item for everything that only lacked time."""
    brings = [
        MORE[name]
        for name, entry in sections.items()
        if name in MORE
        and (entry["status"] == "partial" or _only_time(name, entry) or _few_rows(name, entry))
    ]
    if not brings:
        return []
    longer = max(60, round(8 * limit))
    cut = any(entry["why"] == INTERRUPTED for entry in sections.values())
    more = "Without the interruption the report" if cut else f"More time than {limit:.3g} s"
    text = f"{more} would {_listed(brings)}."
    command = f"relunorm report {spell.model} {spell.table} --time-limit {longer}"
    return [_item(text, f"rn.report(model, X, y, time_limit={longer})", "time", command)]


def _only_time(name: str, entry: dict[str, Any]) -> bool:
    """Whether nothing but time was missing: then it is told with the others."""
    return name in MORE and entry["why"].startswith((NO_TIME, NEEDS_TIME, INTERRUPTED))


def _few_rows(name: str, entry: dict[str, Any]) -> bool:
    """Whether the time ended before all rows that robustness looks at were looked at."""
    if name != "robustness" or entry["body"] is None:
        return False
    rows = entry["body"]["rows"]
    return rows["value"] < min(MOST_ROWS, rows["of"])


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
