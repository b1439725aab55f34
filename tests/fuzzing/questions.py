"""certify, check and sensitivity against exact pieces."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
from exact_answers import gradients, inside, largest_margin, maximum, output_at, whole
from exact_oracle import Cell, cut, hull_cell, pieces, read

import relunorm as rn
from fuzzing.nets import Kind, Rng, network
from fuzzing.outcome import Case, Outcome, limit, short
from fuzzing.places import box, disc, place_for
from relunorm import Network
from relunorm.questions.vnnlib import parse_vnnlib

# --- certify


def draw_certify(rng: Rng) -> Case:
    """One input; a radius or the largest one, a class or outputs that may move a little."""
    net = network(rng, Kind(inputs=(1, 2)))
    x = rng.normal(size=net.input_size)
    if rng.random() < 0.5:
        x = np.round(2 * x) / 2
    classes = max(net.output_size, 2)
    options = {
        "x": x.tolist(),
        "norm": str(rng.choice(["inf", "2", "1"])),
        "radius": float(rng.choice([0.1, 0.3, 1.0, 1e-3, 1e-6])) if rng.random() < 0.7 else None,
        "delta": float(rng.choice([0.2, 1.0, 1e-6])) if rng.random() < 0.3 else None,
        "label": int(rng.integers(classes)) if rng.random() < 0.3 else None,
        **limit(rng),
    }
    where = None
    if rng.random() < 0.4:
        where = box(x - rng.random(len(x)), x + rng.choice([0.0, 0.5, 2.0], size=len(x)))
    return Case((net,), where, options)


def judge_certify(case: Case, out: Outcome) -> None:
    """What is robust is, an adversarial input is one, and both ends of the radius hold."""
    (net,), o = case.networks, case.options
    x, norm, delta = o["x"], o["norm"], o["delta"]
    label = o["label"] if delta is None else None
    valid = None if case.place is None else case.place.domain
    found = rn.certify(
        net, [x], o["radius"], norm, None if label is None else [label],
        delta=delta, valid=valid, time_limit=o["time_limit"],
    ).rows[0]  # fmt: skip
    exact, text = read(net), f"{found!r}"
    out.unknown += found.verdict == "unknown"
    goals = _wrong(net, found.label, delta, net(x))

    def worst(radius: Fraction, inner: bool) -> Fraction:
        cell = _near(whole(x), radius, norm, valid, inner)
        parts = list(pieces(exact, cell))
        return max(maximum(parts, row) + shift for row, shift in goals)

    low, high = found.radius
    if found.adversarial is not None:
        point = found.adversarial.tolist()
        values = output_at(exact, point)
        most = max(sum(a * v for a, v in zip(whole(r), values, strict=True)) + s for r, s in goals)
        out.claim(most >= 0, f"{text}: at {point} the answer is right by {short(-most)}")
        out.claim(valid is None or inside(valid, point), f"{text}: {point} is not valid")
        steps = [abs(a - b) for a, b in zip(whole(point), whole(x), strict=True)]
        far = {"inf": max(steps), "1": sum(steps)}.get(norm)
        for end in {high, o["radius"] or high}:
            near = (
                (far <= end)
                if far is not None
                else sum(s * s for s in steps) <= whole([end])[0] ** 2
            )
            out.claim(near, f"{text}: {point} is further than {end} away")
    else:
        out.claim(found.verdict != "attacked", f"{text}: attacked without an input")
    if found.verdict == "robust" and o["radius"] is not None:
        gap = worst(Fraction(o["radius"]), True)
        out.claim(gap < 0, f"{text}: not robust, wrong by {short(gap)}")
    if 0 < low < math.inf:
        gap = worst(Fraction(low), True)
        out.claim(gap < 0, f"{text}: radius {low} is not safe, wrong by {short(gap)}")
    if high < math.inf:
        gap = worst(Fraction(high), False)
        out.claim(gap >= 0, f"{text}: radius {high} is safe by {short(-gap)}")


def _wrong(
    net: Network, label: int | None, delta: float | None, value: np.ndarray
) -> list[tuple[list[float], Fraction]]:
    """Rows and constants: the answer is wrong where row . f + constant >= 0 for one of them."""
    own = np.eye(net.output_size)
    if delta is not None:
        shift = [Fraction(v) for v in value.tolist()]
        up = [(own[i].tolist(), -shift[i] - Fraction(delta)) for i in range(len(own))]
        return up + [((-own[i]).tolist(), shift[i] - Fraction(delta)) for i in range(len(own))]
    assert label is not None
    if len(own) == 1:
        return [([-1.0 if label else 1.0], Fraction(0))]
    return [((own[j] - own[label]).tolist(), Fraction(0)) for j in range(len(own)) if j != label]


def _near(x: list[Fraction], r: Fraction, norm: str, valid: rn.Box | None, inner: bool) -> Cell:
    """The valid inputs within a radius; discs between two polygons."""
    if len(x) == 1:
        cell = hull_cell([[x[0] - r], [x[0] + r]])
    elif norm == "inf":
        cell = hull_cell(
            [[x[0] + a * r, x[1] + b * r] for a, b in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
        )
    elif norm == "1":
        cell = hull_cell(
            [[x[0] + a * r, x[1] + b * r] for a, b in ((-1, 0), (0, -1), (1, 0), (0, 1))]
        )
    else:
        cell = disc(x, r)[0 if inner else 1]
    if valid is None:
        return cell
    for i, sign in itertools.product(range(len(x)), (-1, 1)):
        end = Fraction(float(valid.lo[i] if sign < 0 else valid.hi[i]))
        heights = [sign * (c[i] * end.denominator - end.numerator * c[-1]) for c in cell.corners]
        if max(heights) > 0:
            below, on, _ = cut(cell, heights)
            part = below or on
            assert part is not None  # x itself is valid
            cell = part
    return cell


# --- check


def draw_check(rng: Rng) -> Case:
    """Boxes of inputs joined by or; conjunctions of linear constraints, some about inputs too."""
    net = network(rng, Kind(inputs=(1, 2)))
    d, m = net.input_size, net.output_size
    boxes = [place_for(rng, net, balls=False, scales=False).domain.bounding_box for _ in range(2)]
    boxes = boxes[: int(rng.integers(1, 3))]
    near = net(boxes[0].center)
    groups = []
    for _ in range(int(rng.integers(1, 3))):
        rows = []
        for _ in range(int(rng.integers(1, 3))):
            weights = rng.integers(-2, 3, m).astype(float)
            inputs = rng.integers(-1, 2, d).astype(float) * (rng.random() < 0.3)
            level = float(weights @ near + inputs @ boxes[0].center)
            level += float(rng.choice([0.0, 1e-9, -1e-9, 0.1, -0.1, 1.0])) * max(1.0, abs(level))
            rows.append([*weights.tolist(), *inputs.tolist(), level])
        groups.append(rows)
    ends = [[b.lo.tolist(), b.hi.tolist()] for b in boxes]
    return Case((net,), None, {"boxes": ends, "groups": groups, **limit(rng)})


def judge_check(case: Case, out: Outcome) -> None:
    """sat has an input that satisfies the file, unsat has none."""
    (net,), boxes, groups = case.networks, case.options["boxes"], case.options["groups"]
    found = rn.check(net, parse_vnnlib(_property(net, boxes, groups)), case.options["time_limit"])
    out.unknown += found.verdict in ("unknown", "timeout")
    exact = read(_with_inputs(net))
    A = [np.array(rows)[:, :-1] for rows in groups]
    b = [np.array(rows)[:, -1] for rows in groups]
    if found.verdict == "sat":
        assert found.point is not None
        point = found.point.tolist()
        held = any(inside(rn.Box(lo, hi), point) for lo, hi in boxes)
        out.claim(held, f"{found!r}: {point} lies in none of the boxes")
        values = output_at(exact, point)
        slack = max(
            min(
                rhs - sum(a * v for a, v in zip(whole(row), values, strict=True))
                for row, rhs in zip(rows, whole(level), strict=True)
            )
            for rows, level in zip(A, b, strict=True)
        )
        out.claim(slack >= 0, f"{found!r}: {point} misses the property by {short(-slack)}")
    if found.verdict == "unsat":
        for lo, hi in boxes:
            parts = list(pieces(exact, box(np.array(lo), np.array(hi)).inner))
            for rows, level in zip(A, b, strict=True):
                most = largest_margin(parts, rows, level)
                out.claim(most < 0, f"{found!r}: met by {short(most)} in {lo}, {hi}")


def _with_inputs(net: Network) -> Network:
    """The outputs, then the inputs."""
    d, m = net.input_size, net.output_size
    terms = {
        k: np.vstack([t.toarray() if hasattr(t, "toarray") else t, np.zeros((d, t.shape[1]))])
        for k, t in net.output.terms.items()
    }
    whole_input = np.vstack([np.zeros((m, d)), np.eye(d)])
    terms[0] = terms[0] + whole_input if 0 in terms else whole_input
    bias = np.concatenate([net.output.bias, np.zeros(d)])
    return Network(net.layers, rn.Affine(terms, bias), input_shape=d)


def _property(net: Network, boxes: list, groups: list) -> str:
    """The property as a file says it; every number with all its digits."""
    names = [f"Y_{i}" for i in range(net.output_size)] + [f"X_{i}" for i in range(net.input_size)]

    def number(value: float) -> str:
        return format(Decimal(value), "f")

    def sides(lo: list[float], hi: list[float]) -> str:
        return " ".join(
            f"(>= X_{i} {number(a)}) (<= X_{i} {number(b)})"
            for i, (a, b) in enumerate(zip(lo, hi, strict=True))
        )

    def row(entries: list[float]) -> str:
        terms = [f"(* {number(w)} {n})" for w, n in zip(entries[:-1], names, strict=True) if w]
        return f"(<= (+ 0.0 {' '.join(terms)}) {number(entries[-1])})"

    lines = [f"(declare-const {name} Real)" for name in names]
    lines.append(f"(assert (or {' '.join(f'(and {sides(*ends)})' for ends in boxes)}))")
    lines.append(f"(assert (or {' '.join(f'(and {_joined(map(row, g))})' for g in groups)}))")
    return "\n".join(lines)


def _joined(parts: object) -> str:
    return " ".join(parts)  # type: ignore[arg-type]


# --- sensitivity


def draw_sensitivity(rng: Rng) -> Case:
    """All slopes over a domain that is not flat across its axes."""
    net = network(rng, Kind(inputs=(1, 2, 2, 3)))
    where = place_for(rng, net, flat=False)
    while where.flat:
        where = place_for(rng, net, flat=False)
    return Case((net,), where, limit(rng))


def judge_sensitivity(case: Case, out: Outcome) -> None:
    """Intervals hold every slope, and what is called exact is attained."""
    (net,), where = case.networks, case.place
    assert where is not None
    found = rn.sensitivity(net, where.domain, time_limit=case.options["time_limit"])
    out.unknown += not found.exact.all()
    exact = read(net)
    inner = gradients(pieces(exact, where.inner), range(net.input_size))
    outer = inner if where.exact else gradients(pieces(exact, where.outer), range(net.input_size))
    for i, j in np.ndindex(*found.lower.shape):
        slopes = [m[i][j] for m in inner]
        least, most = found.lower[i, j], found.upper[i, j]
        text = f"slope of output {i} in input {j} is in [{short(least)}, {short(most)}], exactly "
        text += f"[{short(min(slopes))}, {short(max(slopes))}]"
        out.claim(least <= min(slopes), f"{text}: lower end too high")
        out.claim(most >= max(slopes), f"{text}: upper end too low")
        sizes = np.maximum(np.abs(found.lower[i]), np.abs(found.upper[i]))
        room = Fraction(3e-7) * Fraction(float(sizes.max())) if np.isfinite(sizes).all() else None
        word = str(found.direction[i, j])
        out.claim(word != "unused" or not any(slopes), f"{text}: called unused")
        if room is None:
            continue
        out.claim(word != "increasing" or min(slopes) >= -room, f"{text}: called increasing")
        out.claim(word != "decreasing" or max(slopes) <= room, f"{text}: called decreasing")
        if found.exact[i, j]:
            wide = [m[i][j] for m in outer]
            attained = least >= min(wide) - room and most <= max(wide) + room
            out.claim(attained, f"{text}: called exact")
