"""Certificates of programs: they replay from the file, and nothing in them can be changed."""

from __future__ import annotations

import contextlib
import copy
import json
import re
from dataclasses import replace
from fractions import Fraction
from math import floor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scalar_program import exact_network

from relunorm import Box, Network, to_c
from relunorm.embedded import Export, ProgramCertificate, verify
from relunorm.embedded.arithmetic.integers import IntegerNetwork
from relunorm.embedded.c.c_file import Options
from relunorm.embedded.guarantees import notes
from relunorm.embedded.program_certificate import seal, tables_digest
from relunorm.embedded.programs import c_file, tables
from relunorm.embedded.proof.layerwise import walk_through
from relunorm.errors import InvalidInputError


def network(seed: int = 0) -> Network:
    rng = np.random.default_rng(seed)
    shapes = ((8, 3), (6, 8), (2, 6))
    return Network.from_weights(
        [rng.normal(size=s) for s in shapes], [rng.normal(size=s[0]) for s in shapes]
    )


@pytest.fixture(scope="module")
def made() -> Export:
    return to_c(network(), Box.cube(3), bits=16, classes=True, parts=16, samples=50, shrink=False)


def resealed(document: dict[str, Any]) -> ProgramCertificate:
    return ProgramCertificate({**document, "digest": seal(document)})


def forged(
    made: Export, program: Any, document: dict[str, Any]
) -> tuple[ProgramCertificate, Network, str]:
    """A certificate and a file that agree with each other, whatever they claim."""
    options = Options(**document["options"])
    numbers = {name: values for name, (_, values) in tables(program, options.name).items()}
    certificate = resealed({**document, "tables": tables_digest(numbers)})
    return certificate, made.network, c_file(program, options).source(notes(certificate.document))


def test_it_replays_from_a_file(made: Export, tmp_path: Path) -> None:
    made.save(tmp_path / "net.c", tmp_path / "net.json", tmp_path / "net.h")
    certificate = ProgramCertificate.load(tmp_path / "net.json")
    found = verify(certificate, network(), (tmp_path / "net.c").read_text(), Box.cube(3, -1, 1))
    assert found.holds
    assert found.bound == made.epsilon
    assert made.certificate.document["digest"] in made.source
    windows = made.source.replace("\n", "\r\n")
    assert verify(certificate, network(), windows).holds


def test_shrinking_is_part_of_the_proof() -> None:
    shrunk = to_c(network(), Box.cube(3), bits=16, parts=4, samples=50)
    document = shrunk.certificate.document
    assert document["shrunk"] is not None
    assert verify(shrunk.certificate, network(), shrunk.source).holds
    for wrong in (None, {**document["shrunk"], "certificate": {}}):
        other = {**document, "shrunk": wrong}
        assert not verify(resealed(other), network(), shrunk.source).holds


def test_every_number_of_every_table_matters(made: Export) -> None:
    rng = np.random.default_rng(0)
    tables = list(re.finditer(r"(net_\w+)\[\d+\] = \{\n(.*?)\n\};", made.source, re.DOTALL))
    assert len(tables) >= 6
    for table in tables:
        numbers = list(re.finditer(r"-?\d+", table.group(2)))
        for k in rng.choice(len(numbers), min(4, len(numbers)), replace=False):
            place, end = (table.start(2) + p for p in numbers[k].span())
            moved = int(numbers[k].group()) + 1
            changed = made.source[:place] + str(moved) + made.source[end:]
            found = verify(made.certificate, network(), changed)
            assert not found.holds, (table.group(1), moved)


def test_weights_the_network_does_not_have_exceed_the_bound(made: Export) -> None:
    """Everything written anew around a changed weight: the bound itself is what refuses it."""
    program = made.program
    assert isinstance(program, IntegerNetwork)
    term = program.output.terms[2]
    weight = term.weight.copy()
    weight[0, int(np.argmax(np.abs(weight[0])))] += 50
    output = replace(program.output, terms={2: replace(term, weight=weight)})
    found = verify(*forged(made, replace(program, output=output), made.certificate.document))
    assert any("of_floats" in problem for problem in found.problems)


def test_a_changed_line_of_code_is_found(made: Export) -> None:
    for old, new in ((">> ", ">> 1 + "), ("acc <= 0", "acc < 5"), ("clamped++", "clamped--")):
        assert old in made.source
        found = verify(made.certificate, network(), made.source.replace(old, new, 1))
        assert "the C file is not the one" in " ".join(found.problems)


def test_a_changed_scale_is_found_even_where_the_document_is_sealed_again(made: Export) -> None:
    for path in (
        ("program", "input_exponent", 0),
        ("program", "maps", 0, "exponent", 1),
        ("program", "maps", 1, "layer", "exponent", 2),
        ("program", "maps", 2, "exponent", 0),
        ("program", "input_high", 1),
    ):
        for step in (-1, 1):
            document = copy.deepcopy(made.certificate.document)
            place = document
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] += step
            assert not verify(resealed(document), network(), made.source).holds, path


@pytest.mark.parametrize("key", ["of_floats", "on_grid"])
def test_a_smaller_epsilon_is_refused(made: Export, key: str) -> None:
    document = copy.deepcopy(made.certificate.document)
    document["bounds"][key] = [0.9 * b for b in document["bounds"][key]]
    found = verify(*forged(made, made.program, document))
    assert any(key in problem for problem in found.problems)


def test_another_margin_domain_network_or_digest_is_refused(made: Export) -> None:
    document = copy.deepcopy(made.certificate.document)
    document["classes"]["margin"] *= 0.5
    assert not verify(resealed(document), network(), made.source).holds
    document = copy.deepcopy(made.certificate.document)
    document["domain"]["hi"] = [2.0, 2.0, 2.0]
    assert not verify(resealed(document), network(), made.source).holds
    assert not verify(made.certificate, network(1), made.source).holds
    document = {**made.certificate.document, "trusted": 1}
    assert not verify(ProgramCertificate(document), network(), made.source).holds
    assert not verify(made.certificate, network(), "int main;").holds
    assert not verify(made.certificate, network(), made.source, Box.cube(3, -2, 2)).holds


def test_cuts_that_leave_a_part_out_are_refused(made: Export) -> None:
    cuts = made.certificate.document["cuts"]
    assert len(cuts) > 3
    for wrong in (cuts[:-1], [*cuts, None], [[0, 5.0], None, None], [[7, 0.0], None, None]):
        document = {**copy.deepcopy(made.certificate.document), "cuts": wrong}
        assert not verify(resealed(document), network(), made.source).holds


@pytest.fixture(scope="module")
def tree() -> Export:
    rng = np.random.default_rng(3)
    weights = [rng.normal(size=(6, 2)), rng.normal(size=(1, 6))]
    net = Network.from_weights(weights, [rng.normal(size=6), np.zeros(1)])
    return to_c(net, Box.cube(2), bits=16, style="pieces", samples=50, shrink=False)


@pytest.mark.parametrize(
    ("field", "place", "step"),
    [
        ("wall", (0, 0), 3000),
        ("threshold", (0,), 10**7),
        ("slope", (0, 0, 1), 500),
        ("start", (1, 0), 10**7),
    ],
)
def test_a_tree_with_another_number_exceeds_its_bound(
    tree: Export, field: str, place: tuple[int, ...], step: int
) -> None:
    """File and document written anew around the change: the bound itself refuses it."""
    table = getattr(tree.program, field).copy()
    table[place] += step if table[place] < 0 else -step
    wrong = replace(tree.program, **{field: table})
    found = verify(*forged(tree, wrong, tree.certificate.document))
    assert any("of_floats" in problem for problem in found.problems)


def test_what_is_no_tree_is_refused(tree: Export) -> None:
    follow = tree.program.follow
    for wrong in (follow[:, ::-1], np.where(follow == 1, 0, follow), np.full_like(follow, 1)):
        program = replace(tree.program, follow=wrong)
        assert not verify(*forged(tree, program, tree.certificate.document)).holds
    wide = replace(tree.program, wall=tree.program.wall * 4)
    assert not verify(*forged(tree, wide, tree.certificate.document)).holds
    huge = replace(tree.program, start=tree.program.start * 64)
    found = verify(*forged(tree, huge, tree.certificate.document))
    assert any("could leave" in problem or "hold" in problem for problem in found.problems)


def test_one_more_bit_overflows(made: Export) -> None:
    """Accumulators are the narrowest: one bit less, or weights one bit larger, are refused."""
    program = made.program
    assert isinstance(program, IntegerNetwork)
    walk_through(network(), program)
    narrower = {"int64_t": "int32_t", "int32_t": "int16_t"}
    for index, layer in enumerate(program.layers):
        affine = replace(layer.affine, accumulator=narrower[layer.affine.accumulator])
        layers = list(program.layers)
        layers[index] = replace(layer, affine=affine)
        with pytest.raises(
            InvalidInputError, match=r"more than int16_t holds|too long for int16_t"
        ):
            walk_through(network(), replace(program, layers=tuple(layers)))


def test_weights_scaled_until_they_overflow_are_refused() -> None:
    """All weights and biases doubled again and again: refused before a sum can leave its type."""
    weights = [np.full((1, 40), 1.0), np.ones((1, 1))]
    net, box = Network.from_weights(weights), Box.cube(40, 0, 1)
    program = to_c(net, box, bits=16, parts=1, samples=10).program
    assert isinstance(program, IntegerNetwork)
    layer = program.layers[0]
    term = layer.affine.terms[0]
    highest = int((term.weight[0] * program.input_high).sum())
    factor = 1
    while factor * highest < 2**31:
        factor *= 2
    grown = replace(term, weight=term.weight * factor)
    exponent = layer.affine.exponent + int(np.log2(factor))
    affine = replace(layer.affine, terms={0: grown}, exponent=exponent)
    wrong = replace(program, layers=(replace(layer, affine=affine),))
    with pytest.raises(InvalidInputError, match="more than int32_t holds"):
        walk_through(net, wrong)


def changed(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The document with something else at a dotted path."""
    document = copy.deepcopy(document)
    *way, last = path.split(".")
    place = document
    for key in way:
        place = place[key]
    place[last] = value
    return document


@pytest.mark.parametrize(
    ("path", "value", "word"),
    [
        ("found.of_floats", 0.0, "found: the difference there is"),
        ("found.on_grid", 1.0, "found: the difference there is"),
        ("found.inputs", [0.0, 0.0, 0.0], "found: the difference there is"),
        ("found.inputs", [9.0, 0.0, 0.0], "not one of the domain"),
        ("found.inputs", [0.0], "not one of the domain"),
        ("found.integers", [10**6, 0, 0], "not an input of the program"),
        ("found.integers", None, "not an input of the program"),
        ("sizes.flash", 1, "the sizes are"),
        ("sizes.ram", 1, "the sizes are"),
        ("sizes.multiplications", 1, "the sizes are"),
        ("options.labels", ["cat", "dog"], "labels"),
        ("version", "1 */ int evil; /*", "version"),
        ("proved", True, "the key 'proved' is not known"),
        ("found.proved", True, "at found: the key 'proved' is not known"),
        ("bounds.inputs", [], "at bounds: the key 'inputs' is not known"),
        ("domain.name", "all", "not written as an export writes it"),
        ("program.fast", True, "says more of the program"),
        ("trusted", 0, "the key 'trusted' is not known"),
        ("cuts", {}, "expected a list"),
        ("program.maps", [], "has no output"),
        ("program", {}, "the key 'arithmetic' is missing"),
    ],
)
def test_nothing_but_what_was_proved_can_be_stated(
    made: Export, path: str, value: Any, word: str
) -> None:
    """File and digest written anew around every change."""
    document = changed(made.certificate.document, path, value)
    certificate = resealed(document)
    source = made.source
    if path != "program":
        options = Options(**made.certificate.document["options"])
        with contextlib.suppress(AttributeError, TypeError, KeyError):
            source = c_file(made.program, options).source(notes(certificate.document))
    found = verify(certificate, made.network, source)
    assert re.search(word, " ".join(found.problems)), found.problems


def test_what_was_found_is_a_fact(made: Export, tree: Export) -> None:
    """The stated difference occurs at the stated input: rational arithmetic on both sides."""
    for export in (made, tree):
        program, found = export.program, export.certificate.document["found"]
        steps = [Fraction(2) ** -int(s) for s in program.input_exponent]
        grid = [q * step for q, step in zip(found["integers"], steps, strict=True)]
        real = [Fraction(x) for x in found["inputs"]]
        nearest = [floor(x / step + Fraction(1, 2)) for x, step in zip(real, steps, strict=True)]
        for key, inputs, integers in (
            ("on_grid", grid, found["integers"]),
            ("of_floats", real, nearest),
        ):
            clamped = np.clip(integers, program.input_low, program.input_high)
            ours = [Fraction(int(y)) / 2**program.output_exponent for y in program(clamped)]
            gaps = [
                abs(a - b) for a, b in zip(ours, exact_network(export.network, inputs), strict=True)
            ]
            assert 0 < found[key] <= max(gaps)
            assert found[key] >= float(max(gaps)) * (1 - 1e-15)
            assert found[key] <= max(export.certificate.document["bounds"][key])


def test_what_is_no_certificate_is_refused(tmp_path: Path) -> None:
    for text in ("{", "[]", json.dumps({"schema": "relunorm.certificate/2"})):
        (tmp_path / "c.json").write_text(text)
        with pytest.raises(InvalidInputError):
            ProgramCertificate.load(tmp_path / "c.json")
    (tmp_path / "c.json").write_text('{"schema": "relunorm.program/3", "schema": 1}')
    with pytest.raises(InvalidInputError, match="the key 'schema' twice"):
        ProgramCertificate.load(tmp_path / "c.json")
    for schema, word in (("3", "the key 'version' is missing"), ("2", "export anew")):
        damaged = ProgramCertificate({"schema": f"relunorm.program/{schema}"})
        assert word in verify(damaged, network(), "").problems[0]


def test_a_deep_document_is_no_certificate(tmp_path):
    path = tmp_path / "deep.json"
    path.write_text("[" * 100_000)
    with pytest.raises(InvalidInputError, match="not a JSON document"):
        ProgramCertificate.load(path)
