"""normalize: every form and option keeps the function within its certificate."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from exact_answers import difference
from exact_oracle import read

import relunorm as rn
from fuzzing.comparing import certificate
from fuzzing.nets import Kind, Rng, network
from fuzzing.outcome import Case, Outcome, jumps, limit, magnitudes, short
from fuzzing.places import Place, place_for
from relunorm import Network
from relunorm.forms.shapes import FORMS


def draw(rng: Rng) -> Case:
    """One form with random options."""
    steps = rng.random() < 0.15
    kind = Kind(inputs=(1, 2) if steps else (1, 2, 2, 3), steps=steps, width=3)
    if not steps and rng.random() < 0.2:
        kind = Kind(inputs=(1,), width=6)  # one input affords the oracle wider layers
    net = network(rng, kind)
    form = str(rng.choice(list(FORMS)))
    options = _options(rng, form)
    anywhere = not FORMS[form].needs_domain and not options.get("eps") and rng.random() < 0.15
    given = {"form": form, "anywhere": anywhere, "options": {**options, **limit(rng)}}
    return Case((net,), place_for(rng, net), given)


def judge(case: Case, out: Outcome) -> None:
    """The certificate holds and is accepted, nothing moved, the form is what it says."""
    (net,), where = case.networks, case.place
    assert where is not None
    form, anywhere, options = (case.options[k] for k in ("form", "anywhere", "options"))
    rng = np.random.default_rng(0)
    domain = None if anywhere else where.domain
    found = rn.normalize(net, form, domain, **options)
    if found.certificate is None:
        out.unknown += not anywhere
    else:
        certificate(found.certificate, net, found.network, where, out)
        _evaluated(rng, found.certificate, net, found.network, where, out)
    _close(net, found.network, options.get("eps", 0.0), options, where, out)
    if options.get("dtype") != "float32":
        _shape(rng, net, found.network, form, options, where, out)


def _options(rng: Rng, form: str) -> dict:
    options: dict = {}
    if rng.random() < 0.3:
        options["remove"] = bool(rng.integers(2))
    if rng.random() < 0.15:
        options["eps"] = float(rng.choice([1e-6, 1e-3, 0.1]))
    if rng.random() < 0.3:
        options["architecture"] = "keep"
    if rng.random() < 0.3:
        options["prefer"] = "units"
    if form == "signed" and rng.random() < 0.4:
        options["split"] = True
    if form in ("unit", "bounded") and rng.random() < 0.4:
        options["pure"] = True
    if form == "canonical" and rng.random() < 0.3:
        options["exact"] = True
    if rng.random() < 0.15:
        options["dtype"] = "float32"
    return options


def _close(
    net: Network, other: Network, eps: float, options: dict, where: Place, out: Outcome
) -> None:
    """What is called exact up to rounding is, measured by the magnitudes on the way."""
    if jumps(net):
        return
    gap = max(difference(read(net), read(other), where.inner))
    size = max(*magnitudes(net, where.domain), *magnitudes(other, where.domain))
    share = 1e-5 if options.get("dtype") == "float32" else 1e-9
    limit = Fraction(eps) + Fraction(share) * Fraction(float(min(size, 1e300)))
    out.claim(gap <= limit, f"moved by {short(gap)}, magnitudes {size:.3g}, eps {eps}")


def _shape(
    rng: Rng, net: Network, other: Network, form: str, options: dict, where: Place, out: Outcome
) -> None:
    plain = all(layer.activation.kind in ("relu", "leaky") for layer in net.layers)
    removes = options.get("remove") or options.get("eps") or form not in ("pow2", "unit")
    if form == "pow2" and plain and not removes:
        points = where.domain.sample(64, int(rng.integers(1 << 30)))
        out.claim(bool((net(points) == other(points)).all()), "pow2 changed bits of the outputs")
        gap = max(difference(read(net), read(other), where.inner))
        out.claim(gap == 0, f"pow2 changed the function by {short(gap)}")
    if form == "unit" and plain:
        for layer in other.layers:
            rows = np.column_stack(
                [m.toarray() if hasattr(m, "toarray") else m for m in layer.affine.terms.values()]
            )
            norms = np.linalg.norm(rows, axis=1)
            fits = (norms == 0) | (np.abs(norms - 1) < 1e-12)
            out.claim(bool(fits.all()), f"unit form has row norms {norms.tolist()}")


def _evaluated(
    rng: Rng, given: rn.Certificate, net: Network, other: Network, where: Place, out: Outcome
) -> None:
    """What evaluation in floats can lose, at a few points (nothing is claimed for steps)."""
    if jumps(net, other):
        return
    points = where.domain.sample(32, int(rng.integers(1 << 30)))
    points = points[[bool(inside) for inside in where.domain.contains(points)]]
    for dtype in ("float64", "float32"):
        if dtype == "float32":
            points = points.astype(np.float32).astype(float)
            points = points[where.domain.contains(points)]
        if not len(points):
            return
        stated = given.evaluated(dtype)
        with np.errstate(all="ignore"):
            gaps = np.abs(_forward(net, points, dtype) - _forward(other, points, dtype))
        worst = float(gaps.max())
        out.claim(not worst > stated, f"{dtype} outputs differ by {worst}, stated {stated}")


def _forward(net: Network, points: np.ndarray, dtype: str) -> np.ndarray:
    """The network in one number type, products by numpy."""
    values = [points.astype(dtype)]
    maps = [layer.affine for layer in net.layers] + [net.output]
    for k, affine in enumerate(maps):
        total = np.tile(affine.bias.astype(dtype), (len(points), 1))
        for source, m in affine.terms.items():
            dense = m.toarray() if hasattr(m, "toarray") else m
            total = total + values[source] @ dense.astype(dtype).T
        if k < len(net.layers):
            below, _ = net.layers[k].activation.slopes
            total = np.where(total > 0, total, total * np.asarray(below, dtype=dtype))
        values.append(total)
    return values[-1].astype(float)
