"""Certificates that were tampered with: the checker refuses every one that says anything else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from typing import Any

import pytest
import samples
from adversarial.corpus import originals
from unit.axioms.proof.test_proof_check import says_the_same

from mirage_py.axioms.certificate.checker import fault_of
from mirage_py.axioms.certificate.terms import TRUSTED
from mirage_py.axioms.proof.prove import prove
from mirage_py.axioms.proof.steps import Step, read_proof
from mirage_py.errors import FormatError
from mirage_py.ugraph.text.json_form import to_json

Json = dict[str, Any]
# A split with a combining kernel, a library call, several loops, masks, atomic additions.
NAMES = (
    "attention_long.split",
    "rmsnorm_matmul.two_kernels",
    "causal_attention.one_kernel_long",
    "layernorm_linear.one_kernel",
    "gated_mlp_long.split",
    "hand_split_matmul_added",
)
LAWS = [law["name"] for law in TRUSTED["laws"]]


@cache
def case(name: str) -> tuple[Json, Json, Json]:
    """Program, µGraph and certificate as plain data."""
    ugraph = samples.ugraph(name) if name in samples.TEXTS else None
    program, ugraph = originals()[name] if ugraph is None else (ugraph.program, ugraph)
    proof = prove(program, ugraph)
    assert proof is not None, name
    found = to_json(program), to_json(ugraph), proof.document()
    a, b, c = json.loads(json.dumps(found))
    return a, b, c


# --- kinds of tampering --------------------------------------------------------------------------


def steps_of(certificate: Json) -> Iterator[Json]:
    for output in certificate["outputs"]:
        yield from output["steps"]


def each_step(certificate: Json) -> Iterator[tuple[Json, Json]]:
    """A copy of the certificate for each of the first steps, and the step in it."""
    for number in range(min(6, len(list(steps_of(certificate))))):
        copy = deepcopy(certificate)
        yield copy, list(steps_of(copy))[number]


def wrong_laws(certificate: Json) -> Iterator[Json]:
    for number in range(0, len(LAWS), 9):
        for copy, step in each_step(certificate):
            step["law"] = LAWS[(number + LAWS.index(step["law"])) % len(LAWS)] if number else "x"
            yield copy


def wrong_places(certificate: Json) -> Iterator[Json]:
    for change in ([], [0, 0, 0, 0, 0, 0, 0, 0, 0], [1], [-1], ["0"]):
        for copy, step in each_step(certificate):
            step["at"] = change if not step["at"] or change else step["at"][:-1]
            yield copy


def wrong_directions(certificate: Json) -> Iterator[Json]:
    for copy, step in each_step(certificate):
        step["forward"] = not step["forward"]
        yield copy


def wrong_variables(certificate: Json) -> Iterator[Json]:
    count = len(certificate["terms"])
    for copy, step in each_step(certificate):
        for name, of in list(step["with"].items()):
            for other in ("b", "nowhere", 0, count - 1, -1, None):
                changed = deepcopy(copy)
                found = next(s for s in steps_of(changed) if s == step)
                found["with"][name] = other
                if other != of:
                    yield changed
        step["with"]["extra"] = 0
        yield copy


def wrong_ends_of_steps(certificate: Json) -> Iterator[Json]:
    for key in ("before", "after"):
        for copy, step in each_step(certificate):
            step[key] = (step[key] + 1) % len(copy["terms"])
            yield copy


def lost_steps(certificate: Json) -> Iterator[Json]:
    for number in range(len(certificate["outputs"][0]["steps"])):
        copy = deepcopy(certificate)
        del copy["outputs"][0]["steps"][number]
        yield copy


def wrong_claims(certificate: Json) -> Iterator[Json]:
    for key, value in (("first", 0), ("last", 0), ("output", "other"), ("steps", None)):
        copy = deepcopy(certificate)
        copy["outputs"][0][key] = value
        yield copy
    yield {**certificate, "outputs": []}
    yield {**certificate, "outputs": certificate["outputs"] * 2}


def wrong_terms(certificate: Json) -> Iterator[Json]:
    used = {s["before"] for s in steps_of(certificate)}
    used |= {o[end] for o in certificate["outputs"] for end in ("first", "last")}
    for number, (op, attr, *args) in enumerate(certificate["terms"]):
        others = {"const": [op, "7"], "sum": ["max", attr, *args], "add": ["sub", attr, *args]}
        others |= {"leaf": [op, attr.replace("[", "0[")], "div": ["mul", attr, *args]}
        if op in others and reaches(certificate, number, used):
            copy = deepcopy(certificate)
            copy["terms"][number] = others[op]
            yield copy


def reaches(certificate: Json, number: int, roots: set[int]) -> bool:
    """Whether a term is part of one of these."""
    todo, seen = list(roots), set(roots)
    while todo:
        new = {a for a in certificate["terms"][todo.pop()][2:] if a not in seen}
        seen |= new
        todo += new
    return number in seen


def wrong_needs(certificate: Json) -> Iterator[Json]:
    needs = certificate["needs"]
    for other in ([*needs, "|b| = 1"], needs[:-1] or None, "", {}, [*needs, *needs[:1]] or None):
        if other != needs:
            yield {**certificate, "needs": other}
    yield {k: v for k, v in certificate.items() if k != "needs"}


def wrong_axes(certificate: Json) -> Iterator[Json]:
    """Calls read something else, or all has another form."""
    for other in (2, 4, "3", None):
        yield {**certificate, "version": other}
    for result, texts in certificate["calls"].items():
        for other in (texts[::-1], texts[:1], ["nowhere[b]", texts[1]], None):
            yield {**certificate, "calls": {result: other}}
        yield {**certificate, "calls": {}}


def wrong_dims(certificate: Json) -> Iterator[Json]:
    yield {**certificate, "dims": {"nowhere": ["b"]}}
    yield {**certificate, "dims": {**certificate["dims"], "b": ["nowhere", "b"]}}
    for d, new in certificate["dims"].items():
        yield {**certificate, "dims": {**certificate["dims"], d: new[::-1]}}
        yield {**certificate, "dims": {}}


KINDS: tuple[Callable[[Json], Iterator[Json]], ...] = (
    *(wrong_laws, wrong_places, wrong_directions, wrong_variables, wrong_ends_of_steps),
    *(lost_steps, wrong_claims, wrong_terms, wrong_needs, wrong_axes, wrong_dims),
)


def as_steps(certificate: Json) -> list[Step] | None:
    try:
        return [s for d in read_proof(certificate).derivations for s in d.steps]
    except FormatError:
        return None


def is_as_true(changed: Json, certificate: Json) -> bool:
    """Whether each step says what it said before: what commutes fits in both directions."""
    steps, was = as_steps(changed), as_steps(certificate)
    if steps is None or was is None or len(steps) != len(was):
        return False
    return all(a == b or says_the_same(a, b) for a, b in zip(steps, was, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_what_was_tampered_with_is_refused(name: str):
    program, ugraph, certificate = case(name)
    assert fault_of(program, ugraph, certificate) == ""
    refused = dict.fromkeys((kind.__name__ for kind in KINDS), 0)
    for kind in KINDS:
        for changed in kind(certificate):
            fault = fault_of(program, ugraph, changed)
            if fault:
                refused[kind.__name__] += 1
            else:
                steps_only = {**changed, "outputs": [], "terms": []}
                assert steps_only == {**certificate, "outputs": [], "terms": []}, kind.__name__
                assert is_as_true(changed, certificate), (kind.__name__, changed)
    assert sum(refused.values()) >= (60 if any(steps_of(certificate)) else 25), refused
    assert refused["wrong_needs"] >= 4


# --- other programs, other µGraphs ---------------------------------------------------------------


def test_a_certificate_is_of_one_program_and_one_ugraph():
    for name in NAMES:
        for other in NAMES:
            if name != other:
                assert fault_of(*case(name)[:2], case(other)[2])
                assert fault_of(case(name)[0], case(other)[1], case(name)[2])
                assert fault_of(case(other)[0], *case(name)[1:])


def changed_ugraphs(ugraph: Json) -> Iterator[Json]:
    """One size, operator, index or store at a time."""
    for k, kernel in enumerate(ugraph["kernels"]):
        for n, node in enumerate(kernel["nodes"]):
            other = {"mul": "add", "sum": "max", "exp": "square", "div": "mul", "load": "index"}
            if node["op"] in other:
                copy = deepcopy(ugraph)
                copy["kernels"][k]["nodes"][n]["op"] = other[node["op"]]
                yield copy
            if node["op"].startswith("store"):
                copy = deepcopy(ugraph)
                copy["kernels"][k]["nodes"][n]["op"] = (
                    "store_add" if node["op"] == "store" else "store"
                )
                # Without a part to add up they are the same.
                if node["op"] == "store_add":
                    yield copy
                copy = deepcopy(ugraph)
                del copy["kernels"][k]["nodes"][n]
                yield copy
    for d in range(len(ugraph["program"]["dims"])):
        copy = deepcopy(ugraph)
        copy["program"]["dims"][d]["size"] += 1
        yield copy


@pytest.mark.parametrize("name", NAMES)
def test_a_changed_ugraph_is_refused(name: str):
    program, ugraph, certificate = case(name)
    tried = 0
    for changed in changed_ugraphs(ugraph):
        assert fault_of(program, changed, certificate), changed
        tried += 1
    assert tried >= 6


def other_tiles(ugraph: Json) -> Iterator[Json]:
    """Each tile of a grid or a loop one larger: another µGraph that computes the same."""
    for k, kernel in enumerate(ugraph["kernels"]):
        for part in ("grid", "sections"):
            for n, entry in enumerate(kernel[part]):
                if entry.get("tile"):
                    copy = deepcopy(ugraph)
                    copy["kernels"][k][part][n]["tile"] += 1
                    yield copy


@pytest.mark.parametrize("name", NAMES)
def test_a_certificate_holds_for_all_tiles(name: str):
    program, ugraph, certificate = case(name)
    tried = 0
    for changed in other_tiles(ugraph):
        assert fault_of(program, changed, certificate) == ""
        tried += 1
        for wrong in (0, -1, 1.5, True, "4"):
            text = json.dumps(changed).replace('"tile": 5', f'"tile": {json.dumps(wrong)}')
            if text != json.dumps(changed):
                assert fault_of(program, json.loads(text), certificate)
    assert tried >= 2


# --- all sizes -----------------------------------------------------------------------------------


def resized(document: Any, sizes: dict[int, int]) -> Any:
    """The same data with other extents: those of the examples are all different."""
    if isinstance(document, dict):
        return {
            k: [sizes[n] for n in v]
            if k == "shape"
            else sizes[v]
            if k == "size"
            else resized(v, sizes)
            for k, v in document.items()
        }
    return [resized(v, sizes) for v in document] if isinstance(document, list) else document


@pytest.mark.parametrize("name", ["rms_norm_matmul_two_loops", "attention"])
def test_a_certificate_holds_at_all_sizes(name: str):
    program, ugraph, certificate = case(name)
    own = sorted({d["size"] for d in program["dims"]})
    assert not certificate["needs"]
    for start in (1, 2, 64, 1001, 1 << 20):
        sizes = {n: start + number for number, n in enumerate(own)}
        assert fault_of(resized(program, sizes), resized(ugraph, sizes), certificate) == ""
    wrong = {n: 5 + number for number, n in enumerate(own)}
    assert "of another program" in fault_of(resized(program, wrong), ugraph, certificate)
