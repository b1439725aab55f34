"""All regions of a network of two inputs: convex polygons, clipped layer by layer, compiled.

A face of the partition after k layers is a convex polygon and a pattern. On it the next layer's
pre-activations are affine; only units whose sign differs between corners can cut it. The face is
split by one of those, both parts keep the units that still cut them, and so on down to pieces that
no unit cuts. No graph and no linear programme. Faces come out in tree order, so that neighbours in
the list differ in few bits, and a layer's forms are updated by the columns of the changed bits.

How to call it (window coordinates, see `pack.pack`)::

    faces = one_face(net, corners)                 # the domain, corners in order
    faces, layer = refine(net, transposed(net), faces, 0, limit)
    # stops after the last hidden layer, or early once there are more than ``limit`` faces

Exactness: as in `tree`; a unit cuts a face when its scaled form exceeds its tolerance at one corner
and falls below minus that at another, which is the same criterion.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunorm.regions.jit import allocating, inner, kernel
from relunorm.regions.pack import Packed
from relunorm.regions.tree import ROUNDING, TOLERANCE, layer_of

#: Why `_fill` stopped.
FILL = MORE_FACES = 1
MORE_SCRATCH = 2

#: Columns added to and taken from a layer's forms before they are computed afresh.
REFRESH = 32


class Faces(NamedTuple):
    """Polygons: face f has the corners ``ptr[f]`` to ``ptr[f + 1]`` and the bits ``bits[f]``."""

    corners: NDArray[np.float64]
    ptr: NDArray[np.int64]
    points: NDArray[np.float64]  # the mean of each face's corners
    bits: NDArray[np.uint8]  # as np.packbits writes them, one row a face; undecided units are 0
    maps: NDArray[np.float64]  # (faces, 3 * outputs) after the last layer: x, y, constant


def one_face(net: Packed, corners: NDArray[np.float64]) -> Faces:
    """The domain as a single face, with nothing decided."""
    return Faces(
        np.array(corners, dtype=np.float64),
        np.array([0, len(corners)], np.int64),
        np.array(corners[:1], dtype=np.float64),
        np.zeros((1, (int(net.shape[2]) + 7) // 8), np.uint8),
        np.zeros((1, 3 * int(net.shape[3]))),
    )


def part(faces: Faces, begin: int, end: int) -> Faces:
    """The faces ``begin`` to ``end``."""
    a, b = faces.ptr[begin], faces.ptr[end]
    return Faces(
        faces.corners[a:b],
        faces.ptr[begin : end + 1] - a,
        faces.points[begin:end],
        faces.bits[begin:end],
        faces.maps[begin:end],
    )


def transposed(net: Packed) -> NDArray[np.float64]:
    """The weights with every matrix stored column by column, at the same places."""
    flat = np.empty_like(net.weights)
    layers = int(net.shape[1])
    for layer in range(layers + 1):
        width = int(net.first[layer + 1] - net.first[layer])
        for term in range(int(net.term_ptr[layer]), int(net.term_ptr[layer + 1])):
            source, start = int(net.source[term]), int(net.start[term])
            columns = (
                int(net.shape[0]) if source == 0 else int(net.first[source] - net.first[source - 1])
            )
            block = net.weights[start : start + width * columns].reshape(width, columns)
            flat[start : start + width * columns] = block.T.ravel()
    return flat


@allocating
def refine(net, weights_t, faces, layer, limit):  # type: ignore[no-untyped-def]
    """Clip faces by the layers from ``layer`` on; returns the faces and the layer reached."""
    layers = net.shape[1]
    total = net.shape[2] + net.shape[3]
    forms, size, band = np.zeros((3, total)), np.zeros(total), np.zeros(total)
    while layer < layers:
        faces = _refine_once(net, weights_t, faces, layer, forms, size, band)
        layer += 1
        if len(faces.ptr) - 1 > limit:
            break
    return faces, layer


@allocating
def _refine_once(net, weights_t, faces, layer, forms, size, band):  # type: ignore[no-untyped-def]
    """Clip faces by one layer: `_fill` does it, and stops whenever it needs more room."""
    count, width = len(faces.bits), net.first[layer + 1] - net.first[layer]
    last = layer == net.shape[1] - 1
    room = 4 * count + 64
    out_corners, out_points = np.empty((4 * room, 2)), np.empty((room, 2))
    out_ptr = np.zeros(room, np.int64)
    out_bits = np.empty((room, faces.bits.shape[1]), np.uint8)
    out_maps = np.empty((room if last else 0, 3 * net.shape[3]))
    current = np.zeros(net.shape[2], np.uint8), np.zeros(faces.bits.shape[1], np.uint8)
    search = np.empty(width), np.empty(width), np.empty(width, np.int64)
    scratch = _new_scratch(width if count == 1 else min(width, 16), 64)
    at = np.zeros(5, np.int64)
    status = FILL
    while status:
        out = Faces(out_corners, out_ptr, out_points, out_bits, out_maps)
        status = _fill(
            net, weights_t, faces, layer, forms, size, band, current, search, scratch, out, at
        )
        if status == MORE_FACES:
            out_corners, out_points = taller(out_corners, out_ptr[at[1]]), taller(out_points, at[1])
            out_ptr, out_bits = longer(out_ptr, at[1] + 1), taller(out_bits, at[1])
            if last:
                out_maps = taller(out_maps, at[1])
        elif status == MORE_SCRATCH:
            scratch = _new_scratch(max(at[3], 16), 2 * len(scratch.values))
    pieces, stop = at[1], out_ptr[at[1]]
    return Faces(
        out_corners[:stop].copy(),
        out_ptr[: pieces + 1].copy(),
        out_points[:pieces].copy(),
        out_bits[:pieces].copy(),
        out_maps[:pieces].copy() if last else np.zeros((pieces, 3 * net.shape[3])),
    )


@kernel
def _fill(net, weights_t, faces, layer, forms, size, band, current, search, s, out, at):  # type: ignore[no-untyped-def]
    """Clip faces from number ``at[0]`` on into ``out`` from piece ``at[1]`` on.

    Returns 0 when all are done, else what it needs more of, and can then be called again.
    ``at[2]``: see `_switch`; ``at[3]``: units that cut the face; ``at[4]``: its open pieces.
    """
    xy, ptr = faces.corners, faces.ptr
    begin, end = net.first[layer], net.first[layer + 1]
    bits, packed = current
    low, high, cutting = search
    for f in range(at[0], len(ptr) - 1):
        at[0] = f
        a, b = ptr[f], ptr[f + 1]
        if at[4] == 0:
            if _switch(net, weights_t, faces.bits[f], bits, packed, layer, forms, size, at):
                _measure(net, layer, forms, size, band)
            cuts = _find_cutting(xy, a, b, begin, end, forms, band, bits, low, high, cutting)
            at[3] = cuts
            if cuts >= len(s.choice) or b - a + len(s.choice) + 8 > len(s.values):
                return MORE_SCRATCH
            _open(xy, a, b, cuts, s)
            at[4] = 1
        if not _split(net, layer, at, cutting, forms, band, bits, packed, s, out):
            return MORE_FACES
    return 0


@inner
def _pack(packed, bits, begin, end):  # type: ignore[no-untyped-def]
    """Write the bits of one layer into the packed bytes, after those of the layers before."""
    byte = begin >> 3
    value = packed[byte] & ~(255 >> (begin & 7)) if begin < end else 0
    for u in range(begin, end):
        value |= bits[u] << (7 - (u & 7))
        if u & 7 == 7:
            packed[byte] = value
            byte += 1
            value = 0
    if end & 7:
        packed[byte] = value


@allocating
def longer(array: Any, used: int) -> Any:
    """Twice the room, the first ``used`` entries kept. (Loops compile faster than slices.)"""
    grown = np.zeros(2 * len(array), array.dtype)
    for k in range(used):
        grown[k] = array[k]
    return grown


@allocating
def taller(array: Any, used: int) -> Any:
    grown = np.empty((2 * len(array), array.shape[1]), array.dtype)
    for r in range(used):
        for k in range(array.shape[1]):
            grown[r, k] = array[r, k]
    return grown


@inner
def _switch(net, weights_t, face, bits, packed, layer, forms, size, at):  # type: ignore[no-untyped-def]
    """Make ``forms`` those of a face with these packed bits; whether anything changed.

    ``at[2]`` counts columns exchanged since the forms were computed afresh, plus one; 0 before.
    """
    before = net.first[layer]
    changed = 0 if at[2] == 0 else -1
    if changed < 0:
        for k in range((before + 7) >> 3):
            if face[k] != packed[k]:
                for u in range(8 * k, min(8 * k + 8, before)):
                    if (face[k] >> (7 - (u & 7))) & 1 != bits[u]:
                        changed = layer_of(net.first, u) + 1
                        break
                if changed >= 0:
                    break
    if changed < 0:
        return False
    if at[2] and changed == layer and at[2] < REFRESH:
        source = layer - 1
        for u in range(net.first[source], before):
            bit = (face[u >> 3] >> (7 - (u & 7))) & 1
            if bit != bits[u]:
                step = net.slopes[source, bit] - net.slopes[source, bits[u]]
                bits[u] = bit
                _add_column(net, weights_t, layer, source, u, step, forms, size)
                at[2] += 1
    else:
        for u in range(before):
            bits[u] = (face[u >> 3] >> (7 - (u & 7))) & 1
        for k in range(changed, layer + 1):
            _start_layer(net, weights_t, k, bits, forms, size)
        at[2] = 1
    for k in range((before + 7) >> 3):
        packed[k] = face[k]
    return True


@kernel
def _start_layer(net, weights_t, layer, bits, forms, size):  # type: ignore[no-untyped-def]
    """The forms of a layer's units: three rows of sums over the live units before it."""
    begin, end = net.first[layer], net.first[layer + 1]
    fx, fy, fc = forms[0, begin:end], forms[1, begin:end], forms[2, begin:end]
    width = end - begin
    for i in range(width):
        fx[i] = fy[i] = 0.0
        fc[i] = net.bias[begin + i]
        size[begin + i] = net.size0[begin + i]
    for term in range(net.term_ptr[layer], net.term_ptr[layer + 1]):
        start, source = net.start[term], net.source[term] - 1
        if source < 0:
            for i in range(width):
                fx[i] += weights_t[start + i]
                fy[i] += weights_t[start + width + i]
                size[begin + i] += abs(weights_t[start + i]) + abs(weights_t[start + width + i])
            continue
        for u in range(net.first[source], net.first[source + 1]):
            at = start + (u - net.first[source]) * width
            column = weights_t[at : at + width]
            weight = size[u]
            slope = net.slopes[source, bits[u]]
            if slope != 0.0:
                a, b, c = slope * forms[0, u], slope * forms[1, u], slope * forms[2, u]
                for i in range(width):
                    fx[i] += column[i] * a
                    fy[i] += column[i] * b
                    fc[i] += column[i] * c
                    size[begin + i] += abs(column[i]) * weight
    for i in range(begin, end):
        length = np.sqrt(forms[0, i] ** 2 + forms[1, i] ** 2)
        if length <= ROUNDING * size[i]:
            forms[0, i] = 0.0
            forms[1, i] = 0.0


@inner
def _add_column(net, weights_t, layer, source, unit, step, forms, size):  # type: ignore[no-untyped-def]
    """Add ``step`` times the column of one unit; the rounding bound only grows."""
    begin, end = net.first[layer], net.first[layer + 1]
    width = end - begin
    fx, fy, fc = forms[0, begin:end], forms[1, begin:end], forms[2, begin:end]
    for term in range(net.term_ptr[layer], net.term_ptr[layer + 1]):
        if net.source[term] != source + 1:
            continue
        at = net.start[term] + (unit - net.first[source]) * width
        column = weights_t[at : at + width]
        a, b, c = step * forms[0, unit], step * forms[1, unit], step * forms[2, unit]
        for i in range(width):
            fx[i] += column[i] * a
            fy[i] += column[i] * b
            fc[i] += column[i] * c
            size[begin + i] += abs(step * column[i]) * size[unit]


@inner
def _measure(net, layer, forms, size, band):  # type: ignore[no-untyped-def]
    """How far from zero a raw form must be to count as a sign."""
    for i in range(net.first[layer], net.first[layer + 1]):
        length = np.sqrt(forms[0, i] ** 2 + forms[1, i] ** 2)
        noise = ROUNDING * size[i]
        if length <= noise:
            forms[0, i] = 0.0
            forms[1, i] = 0.0
        band[i] = max(TOLERANCE * length, noise)


@inner
def _output(net, bits, forms, out):  # type: ignore[no-untyped-def]
    """The output's forms on a finished face."""
    layers, outputs = net.shape[1], net.shape[3]
    for o in range(outputs):
        a, b, c = 0.0, 0.0, net.bias[net.shape[2] + o]
        for term in range(net.term_ptr[layers], net.term_ptr[layers + 1]):
            start, source = net.start[term], net.source[term] - 1
            if source < 0:
                a += net.weights[start + 2 * o]
                b += net.weights[start + 2 * o + 1]
                continue
            first, width = net.first[source], net.first[source + 1] - net.first[source]
            at = start + o * width
            below, above = net.slopes[source, 0], net.slopes[source, 1]
            for j in range(width):
                w = net.weights[at + j] * (above if bits[first + j] else below)
                a += w * forms[0, first + j]
                b += w * forms[1, first + j]
                c += w * forms[2, first + j]
        out[3 * o], out[3 * o + 1], out[3 * o + 2] = a, b, c


@inner
def _find_cutting(xy, a, b, begin, end, forms, band, current, low, high, cutting):  # type: ignore[no-untyped-def]
    """List the units (relative to ``begin``) that cut the face; set the bits of the others."""
    width = end - begin
    fx, fy, fc = forms[0, begin:end], forms[1, begin:end], forms[2, begin:end]
    for i in range(width):
        low[i] = high[i] = fx[i] * xy[a, 0] + fy[i] * xy[a, 1] + fc[i]
    for v in range(a + 1, b):
        px, py = xy[v, 0], xy[v, 1]
        for i in range(width):
            value = fx[i] * px + fy[i] * py + fc[i]
            low[i] = min(low[i], value)
            high[i] = max(high[i], value)
    cuts = 0
    for i in range(width):
        edge = band[begin + i]
        if high[i] > edge and low[i] < -edge:
            cutting[cuts] = i
            cuts += 1
        else:
            current[begin + i] = _side(low[i], high[i], edge, fx[i], fy[i])
    return cuts


@inner
def _side(low, high, edge, gx, gy):  # type: ignore[no-untyped-def]
    """The bit of a unit that does not cut: plus, minus, or the larger part of a sliver."""
    if high > edge:
        return 1
    if low < -edge or (gx == 0.0 and gy == 0.0):
        return 0
    return 1 if high + low > 0.0 else 0


class _Scratch(NamedTuple):
    """A stack of open pieces of one face: their corners and the units that may still cut them."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    ptr: NDArray[np.int64]
    units: NDArray[np.int64]
    units_ptr: NDArray[np.int64]
    choice: NDArray[np.uint8]
    values: NDArray[np.float64]


@allocating
def _new_scratch(cuts, corners):  # type: ignore[no-untyped-def]
    # An open piece was cut at most ``cuts`` times, and so many pieces are open at most; `_cut`
    # works behind the last one.
    depth = (cuts + 5) * (corners + cuts + 4)
    return _Scratch(
        np.empty(depth),
        np.empty(depth),
        np.zeros(cuts + 4, np.int64),
        np.empty((cuts + 3) * (cuts + 2), np.int64),
        np.zeros(cuts + 4, np.int64),
        np.zeros(cuts + 1, np.uint8),
        np.empty(corners + cuts + 8),
    )


@inner
def _open(xy, a, b, cuts, s):  # type: ignore[no-untyped-def]
    """Put a face on the empty stack, with all the units that cut it."""
    for v in range(a, b):
        s.x[v - a], s.y[v - a] = xy[v, 0], xy[v, 1]
    s.ptr[0], s.ptr[1] = 0, b - a
    for c in range(cuts):
        s.units[c] = c
    s.units_ptr[0], s.units_ptr[1] = 0, cuts


@inner
def _split(net, layer, at, cutting, forms, band, bits, packed, s, out):  # type: ignore[no-untyped-def]
    """Split the pieces on the stack until none is left; False when ``out`` is full first."""
    begin, cuts = net.first[layer], at[3]
    while at[4]:
        level = at[4] - 1
        va, vb = s.ptr[level], s.ptr[level + 1]
        ua, ub = s.units_ptr[level], s.units_ptr[level + 1]
        chosen, kept = -1, ua
        for k in range(ua, ub):
            c = s.units[k]
            i = begin + cutting[c]
            fx, fy, fc, edge = forms[0, i], forms[1, i], forms[2, i], band[i]
            low = high = fx * s.x[va] + fy * s.y[va] + fc
            for v in range(va + 1, vb):
                value = fx * s.x[v] + fy * s.y[v] + fc
                low, high = min(low, value), max(high, value)
            if high > edge and low < -edge:
                if chosen < 0:
                    chosen = c
                else:
                    s.units[kept] = c
                    kept += 1
            else:
                s.choice[c] = _side(low, high, edge, fx, fy)
        if chosen >= 0:
            _cut(s, level, va, vb, ua, kept, chosen, forms, band, begin + cutting[chosen])
            at[4] += 1
            continue
        corner, piece = out.ptr[at[1]], at[1]
        if corner + vb - va > len(out.corners) or piece + 1 >= len(out.bits):
            s.units_ptr[level + 1] = ua
            return False
        mean_x, mean_y = 0.0, 0.0
        for v in range(va, vb):
            out.corners[corner + v - va, 0], out.corners[corner + v - va, 1] = s.x[v], s.y[v]
            mean_x += s.x[v]
            mean_y += s.y[v]
        out.points[piece, 0], out.points[piece, 1] = mean_x / (vb - va), mean_y / (vb - va)
        out.ptr[piece + 1] = corner + vb - va
        for c in range(cuts):
            bits[begin + cutting[c]] = s.choice[c]
        _pack(packed, bits, begin, net.first[layer + 1])
        for k in range(len(packed)):
            out.bits[piece, k] = packed[k]
        if layer == net.shape[1] - 1:
            _output(net, bits, forms, out.maps[piece])
        at[1] += 1
        at[4] -= 1
        if at[4]:
            # The waiting piece is the minus side of the cut remembered in its first unit.
            ua = s.units_ptr[at[4] - 1]
            s.choice[s.units[ua]] = 0
            s.units_ptr[at[4] - 1] = ua + 1
    return True


@inner
def _cut(s, level, va, vb, ua, kept, chosen, forms, band, i):  # type: ignore[no-untyped-def]
    """Replace the top piece by its minus side (below) and its plus side (on top).

    A crossing is interpolated from the positive end, so both sides get the same numbers.
    """
    fx, fy, fc, edge = forms[0, i], forms[1, i], forms[2, i], band[i]
    n = vb - va
    for v in range(n):
        s.values[v] = fx * s.x[va + v] + fy * s.y[va + v] + fc
    # Both sides have at most n + 1 corners; they are built behind the piece and then moved.
    minus, plus = vb, vb + n + 2
    nm, np_ = 0, 0
    for v in range(n):
        w = v + 1 if v + 1 < n else 0
        p, q = s.values[v], s.values[w]
        if p >= -edge:
            s.x[plus + np_], s.y[plus + np_] = s.x[va + v], s.y[va + v]
            np_ += 1
        if p <= edge:
            s.x[minus + nm], s.y[minus + nm] = s.x[va + v], s.y[va + v]
            nm += 1
        if (p > edge and q < -edge) or (p < -edge and q > edge):
            if p > q:
                t = p / (p - q)
                cx = s.x[va + v] + t * (s.x[va + w] - s.x[va + v])
                cy = s.y[va + v] + t * (s.y[va + w] - s.y[va + v])
            else:
                t = q / (q - p)
                cx = s.x[va + w] + t * (s.x[va + v] - s.x[va + w])
                cy = s.y[va + w] + t * (s.y[va + v] - s.y[va + w])
            s.x[plus + np_], s.y[plus + np_] = cx, cy
            s.x[minus + nm], s.y[minus + nm] = cx, cy
            np_ += 1
            nm += 1
    for v in range(nm):
        s.x[va + v], s.y[va + v] = s.x[minus + v], s.y[minus + v]
    to = va + nm
    for v in range(np_):
        s.x[to + v], s.y[to + v] = s.x[plus + v], s.y[plus + v]
    s.ptr[level + 1], s.ptr[level + 2] = to, to + np_
    # Units: the waiting minus side remembers the cut in front of its list.
    rest = kept - ua
    for k in range(rest - 1, -1, -1):
        s.units[ua + 1 + k] = s.units[ua + k]
    s.units[ua] = chosen
    s.units_ptr[level + 1] = ua + 1 + rest
    for k in range(rest):
        s.units[ua + 1 + rest + k] = s.units[ua + 1 + k]
    s.units_ptr[level + 2] = ua + 1 + 2 * rest
    s.choice[chosen] = 1
