"""How a command line, or a call, asks about the same model, rows, domain and plane again."""

from __future__ import annotations

import shlex
from contextlib import suppress

import numpy as np

from relunorm.errors import InvalidInputError
from relunorm.report.case import Case
from relunorm.report.plane import AROUND, Plane, choose_plane

#: Seconds that are suggested.
LONGER = 600


class Spelling:
    """The arguments of a command line about this case, as far as they are known."""

    def __init__(self, case: Case):
        self.model = shlex.quote(case.name) if "." in case.name or ":" in case.name else "MODEL"
        columns = case.outputs or ((case.target,) if case.target else ())
        target = "".join(f" --target {shlex.quote(name)}" for name in columns or ("COLUMN",))
        file, dropped = _source(case)
        self.data = f"--data {shlex.quote(file)}"
        self.data += "".join(f" --drop {shlex.quote(name)}" for name in dropped)
        self.rows = self.table = self.data + (target if case.y is not None else "")
        if case.classes is not None and case.classes.source == "given":
            self.table += f" --classes {case.classes.spelled}"
        self.domain = f"--domain {shlex.quote(self._domain(case))}"

    @staticmethod
    def _domain(case: Case) -> str:
        if case.domain_from == "data":
            columns = case.outputs or ((case.target,) if case.target else ())
            asked = [f"target={name}" for name in columns]
            file, dropped = _source(case)
            asked += [f"drop={name}" for name in dropped]
            return f"data:{file}{'?' if asked else ''}{'&'.join(asked)}"
        box = case.domain.as_box
        if box is not None:
            ends = np.unique(np.stack([box.lo, box.hi]), axis=1)
            if ends.shape[1] == 1:
                return f"box:{shortest(ends[0, 0])},{shortest(ends[1, 0])}"
        return "D"


def _source(case: Case) -> tuple[str, tuple[str, ...]]:
    """The table's file, and the columns of it that were left out."""
    if case.table is None or not case.table.file:
        return "DATA.csv", ()
    return case.table.file, case.table.dropped


def shortest(end: float) -> str:
    """The number to the last bit, without a point where it is whole."""
    return repr(float(end)).removesuffix(".0")


def regions_again(case: Case, plane: Plane | None = None) -> dict[str, str]:
    """The call and the command that list the regions of the same plane with more time.

    Args:
        plane: the one that was drawn; one that was asked for is known without. What a report has
            chosen by itself, and no option names, is asked for with another report.
    """
    spell = Spelling(case)
    limit, option = f"time_limit={LONGER}", f"--time-limit {LONGER}"
    command = f"relunorm regions {spell.model} {spell.domain}"
    if case.network.input_size <= 2:
        return {"call": f"rn.regions(model, domain, {limit})", "command": f"{command} {option}"}
    if plane is None and case.plane is not None:
        with suppress(InvalidInputError):  # three points on a line: then what a report chooses
            plane = choose_plane(case)
    if plane is not None and plane.inputs is not None:
        call, slice_ = _along_inputs(case, plane.inputs), f"{plane.inputs[0]},{plane.inputs[1]}"
    elif plane is not None and plane.marked is not None:
        # The page shows all of the window around them; a domain would clip it.
        call, slice_, command = _through(plane), "@points.npy", f"relunorm regions {spell.model}"
        if plane.rows is not None:
            slice_ = f"rows:{','.join(map(str, plane.rows))}"
            command += f" {spell.rows}"
    else:
        return _report_again(case, spell)
    return {"call": f"rn.on_plane(model, {call}, {limit})",
            "command": f"{command} --slice {slice_} {option}"}  # fmt: skip


def _report_again(case: Case, spell: Spelling) -> dict[str, str]:
    given, command = ["model"], f"relunorm report {spell.model}"
    if case.x is not None:
        given += ["X", "y"] if case.y is not None else ["X"]
        command += f" {spell.table}"
    if case.domain_from == "given":
        given.append("domain=domain")
        command += f" {spell.domain}"
    call = f"rn.report({', '.join(given)}, time_limit={LONGER})"
    return {"call": call, "command": f"{command} --time-limit {LONGER}"}


def _along_inputs(case: Case, inputs: tuple[int, int]) -> str:
    """The arguments of `on_plane` for two inputs, around the domain's centre."""
    box, centre = case.domain.bounding_box, case.domain.center
    window = [end for k in inputs for end in (box.lo[k] - centre[k], box.hi[k] - centre[k])]
    axes = (f"np.eye({case.network.input_size})[{k}]" for k in inputs)
    return f"domain.center, {', '.join(axes)}, {_tuple(window)}"


def _through(plane: Plane) -> str:
    """The arguments of `on_plane` for three points: one, the way to the second, and across it.

    The window is that of the page, in units of both ways.
    """
    assert plane.marked is not None
    rows, name = (plane.rows, "X") if plane.rows is not None else ((0, 1, 2), "points")
    first, second, third = (f"{name}[{k}]" for k in rows)
    u, v = plane.marked[1] - plane.marked[0], plane.marked[2] - plane.marked[0]
    share = float(v @ u / (u @ u))
    low, high = min(0.0, share), max(1.0, share)
    around = AROUND * (high - low)
    window = _tuple([low - around, high + around, -AROUND, 1 + AROUND])
    way = f"{second} - {first}"
    return f"{first}, {way}, {third} - {first} - {share!r} * ({way}), {window}"


def _tuple(numbers: list[float]) -> str:
    return f"({', '.join(shortest(number) for number in numbers)})"
