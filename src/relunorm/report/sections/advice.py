"""What to do next, in words: a pure function of the other sections, each with its call."""

from __future__ import annotations

from typing import Any

#: What the sentences of `diagnose` name -> the call that does it.
CALLS = {
    "revive_live_": "rn.dying.revive_live_(model, batch, optimizer)",
    "live_": "rn.dying.live_(model, batch)",
    "redo_": "rn.dying.redo_(model, batch, optimizer)",
    "rescale_targets": "rn.dying.TargetScaler().fit(y)",
    "TargetScaler": "rn.dying.TargetScaler().fit(y)",
    "DeadUnitMonitor": "rn.DeadUnitMonitor(model)",
    "removed exactly": 'rn.normalize(network, "minimal", domain)',
    "merged exactly": 'rn.normalize(network, "minimal", domain)',
}


def advise(sections: dict[str, Any], domain_from: str, has_data: bool) -> list[dict[str, Any]]:
    """Advice in the order to follow it: what was left open, what can go, what may be wrong."""
    items = [*_domain(domain_from, has_data), *_removal(sections["removal"])]
    items += _units(sections["units"], bool(items), has_data)
    items += _lipschitz(sections["lipschitz"])
    items += [
        _item(f"{entry['title']}: {entry['why']}.", entry["call"], "open")
        for entry in sections.values()
        if entry["status"] != "done" and entry["why"] and "no data was given" not in entry["why"]
    ]
    return items or [
        _item("Nothing to do: no unit is idle and no question stayed open.", "", "fine")
    ]


def _item(text: str, call: str, topic: str, command: str = "") -> dict[str, Any]:
    return {"text": text, "call": call, "command": command, "topic": topic}


def _domain(domain_from: str, has_data: bool) -> list[dict[str, Any]]:
    items = []
    if domain_from == "default":
        text = (
            "No domain was given, so everything here speaks of the box from -1 to 1. Say where "
            "the inputs really lie; proofs hold there and nowhere else."
        )
        items.append(
            _item(text, "rn.report(network, domain=rn.Box(lo, hi))", "domain",
                  "relunorm report MODEL --domain box:LO,HI")
        )  # fmt: skip
    if not has_data:
        text = "Give data to see which units the real inputs use, and the geometry through depth."
        items.append(
            _item(text, "rn.report(network, X, y)", "data", "relunorm report MODEL --data FILE")
        )
    return items


def _removal(entry: dict[str, Any]) -> list[dict[str, Any]]:
    body = entry["body"]
    if body is None or not body["removed"]["total"]:
        return []
    before, after = body["before"], body["after"]
    text = (
        f"Use the reduced network: {before['units']:,} units become {after['units']:,} and "
        f"{before['parameters']:,} parameters {after['parameters']:,}"
    )
    difference = body["difference"]
    if difference is not None and difference["value"] is not None:
        text += f", with outputs proved to differ by at most {difference['value']:.1e}"
    command = "relunorm normalize MODEL -o REDUCED --form minimal --domain D --certificate C.json"
    return [_item(text + ".", 'rn.normalize(network, "minimal", domain)', "removal", command)]


def _units(entry: dict[str, Any], others: bool, has_data: bool) -> list[dict[str, Any]]:
    """The sentences of `diagnose`, each with the call it names."""
    if entry["body"] is None:
        return []
    items = []
    for sentence in entry["body"]["sentences"]:
        call = next((call for name, call in CALLS.items() if name in sentence), "")
        said = not call or "normalize" in call  # what goes is the advice on removal already
        if not (said and others):
            where = "" if has_data else "With random points of the domain as data: "
            items.append(_item(where + sentence, call, "units"))
    return items


def _lipschitz(entry: dict[str, Any]) -> list[dict[str, Any]]:
    body = entry["body"]
    if body is None or body["exact"]:
        return []
    lower, upper = body["lower"]["value"], body["upper"]["value"]
    ends = ["infinity" if v is None else f"{v:.4g}" for v in (lower, upper)]
    text = (
        f"The Lipschitz constant is only known to lie between {ends[0]} and {ends[1]}; more time "
        "or a smaller domain narrows it."
    )
    return [_item(text, "rn.lipschitz(network, domain, time_limit=600)", "lipschitz",
                  "relunorm lipschitz MODEL --domain D --time-limit 600")]  # fmt: skip
