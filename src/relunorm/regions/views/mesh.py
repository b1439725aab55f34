"""A surface of polygons with shared corners, written as .obj or .ply text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from relunorm.errors import InvalidInputError, UnsupportedFormatError
from relunorm.matrix import Array
from relunorm.regions.geometry.boundaries import LevelSet


@dataclass(frozen=True, eq=False, repr=False)
class Mesh:
    """Corners of shape (n, 3) and faces as lists of corner numbers, counter-clockwise."""

    vertices: Array
    faces: list[list[int]]

    def save(self, path: str | Path) -> None:
        """Write .obj or .ply, as the ending says."""
        path = Path(path)
        text = {".obj": _obj, ".ply": _ply}.get(path.suffix.lower())
        if text is None:
            raise UnsupportedFormatError(f"{path}: a mesh is written as .obj or .ply")
        path.write_text(text(self), encoding="ascii")

    def __repr__(self) -> str:
        return f"Mesh({len(self.vertices):,} vertices, {len(self.faces):,} faces)"


def mesh(surface: LevelSet, tolerance: float = 1e-9) -> Mesh:
    """Join the polygons of a 3-D level set at corners closer than ``tolerance`` (of its extent)."""
    if surface.dimension != 3:
        raise InvalidInputError(
            f"a mesh is for three inputs; the level set has {surface.dimension}"
        )
    if not surface.pieces:
        return Mesh(np.zeros((0, 3)), [])
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components
    from scipy.spatial import KDTree

    points = np.concatenate(surface.pieces)
    extent = float(np.ptp(points, axis=0).max()) or 1.0
    pairs = KDTree(points).query_pairs(tolerance * extent, output_type="ndarray")
    graph = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(len(points),) * 2)
    _, label = connected_components(graph, directed=False)
    _, first = np.unique(label, return_index=True)
    faces, at = [], 0
    for piece in surface.pieces:
        ring = label[at : at + len(piece)].tolist()
        at += len(piece)
        ring = [v for k, v in enumerate(ring) if v != ring[k - 1]]
        if len(ring) >= 3:
            faces.append(ring)
    return Mesh(points[first], faces)


def _obj(shape: Mesh) -> str:
    lines = [f"v {x!r} {y!r} {z!r}" for x, y, z in shape.vertices.tolist()]
    lines += ["f " + " ".join(str(v + 1) for v in face) for face in shape.faces]
    return "\n".join(lines) + "\n"


def _ply(shape: Mesh) -> str:
    head = [
        "ply",
        "format ascii 1.0",
        f"element vertex {len(shape.vertices)}",
        *(f"property double {axis}" for axis in "xyz"),
        f"element face {len(shape.faces)}",
        "property list int int vertex_indices",
        "end_header",
    ]
    lines = [f"{x!r} {y!r} {z!r}" for x, y, z in shape.vertices.tolist()]
    lines += [" ".join(map(str, [len(face), *face])) for face in shape.faces]
    return "\n".join([*head, *lines]) + "\n"
