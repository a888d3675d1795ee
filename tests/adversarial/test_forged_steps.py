"""Forgeries of what only the checker's own form has: versions, tiles, shifts, index expressions."""

# ruff: noqa: E501

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from adversarial.test_forged_certificates import (
    CALL,
    LOOPS,
    SPLIT,
    Forgery,
    Json,
    accepted,
    put,
)

from mirage_py.axioms.certificate.checker import fault_of

FIRST, LAST = "shift program_first %5", "shift program_last %3"


def with_law(f: Forgery, law: str, number: int = 0) -> Json:
    steps = [s for o in f.certificate["outputs"] for s in o["steps"] if s["law"] == law]
    return steps[number]


def joined(f: Forgery) -> Json:
    """The step from a dimension to the iterations and tiles of a loop with tiles of its own."""
    return next(
        s for s in (with_law(f, "tiles.sum", n) for n in range(9)) if "program" in s["with"]["j"]
    )


def axes(f: Forgery, **changed: Any) -> None:
    joined(f)["with"].update(changed)


def read(f: Forgery, text: str, kernel: int = 0, node: int = 0) -> None:
    f.nodes(kernel)[node]["attr"] = text


def mask(f: Forgery, text: str) -> None:
    """Of every mask of the kernel, not of the program's."""
    for node in f.nodes():
        if node["op"] == "mask":
            node["attr"] = text


def version(value: Any) -> Callable[[Forgery], Any]:
    return lambda f: put(f.certificate, "version", value)


def args(f: Forgery, kernel: int, node: int, *numbers: int) -> None:
    f.nodes(kernel)[node]["args"] = list(numbers)


def appended(f: Forgery, kernel: int, before: int, node: Json) -> int:
    """A node more, in the section of another and in front of it."""
    nodes = f.nodes(kernel)
    nodes.append(node)
    section = next(s for s in f.ugraph["kernels"][kernel]["sections"] if before in s["nodes"])
    section["nodes"].insert(section["nodes"].index(before), len(nodes) - 1)
    return len(nodes) - 1


def instead(f: Forgery, kernel: int, user: int, place: int, node: Json) -> None:
    """An operand of a node is another."""
    f.nodes(kernel)[user]["args"][place] = appended(f, kernel, user, node)


FORGERIES: dict[str, tuple[str, Callable[[Forgery], Any]]] = {
    # The form.
    "no version": (SPLIT, lambda f: f.certificate.pop("version")),
    "the version before": (SPLIT, version(2)),
    "a version to come": (SPLIT, version(4)),
    "a version of nothing": (SPLIT, version(None)),
    "a version as text": (SPLIT, version("3")),
    "a version that is a fraction": (SPLIT, version(3.0)),
    "a version that is true": (SPLIT, version(True)),
    "a version in a list": (SPLIT, version([3])),
    # Tiles.
    "the iterations of another loop": (LOOPS, lambda f: axes(f, j="s.l")),
    "the tile of another loop": (LOOPS, lambda f: axes(f, k="s.t")),
    "another loop altogether": (LOOPS, lambda f: axes(f, j="s.l", k="s.t")),
    "iterations and tile exchanged": (LOOPS, lambda f: axes(f, j="s.tprogram/1", k="s.lprogram/1")),
    "tiles of another dimension": (LOOPS, lambda f: axes(f, i="t")),
    "tiles of tiles": (LOOPS, lambda f: axes(f, i="s.l", j="s.l.l", k="s.l.t")),
    "iterations alone": (LOOPS, lambda f: axes(f, i="s.lprogram/1")),
    "a dimension for its tile": (LOOPS, lambda f: axes(f, k="s")),
    "an axis of another kind": (LOOPS, lambda f: axes(f, k="s.xprogram/1")),
    "an axis without a kind": (LOOPS, lambda f: axes(f, k="s.")),
    "a maximum's tiles for a sum's": (LOOPS, lambda f: put(joined(f), "law", "tiles.max")),
    "a size's tiles for a sum's": (LOOPS, lambda f: put(joined(f), "law", "tiles.size")),
    "tiles joined that were parted": (LOOPS, lambda f: put(joined(f), "forward", False)),
    "tiles of another term": (LOOPS, lambda f: axes(f, x=0)),
    "the tiles of the law before": (LOOPS, lambda f: put(joined(f), "law", "extents.of_axes")),
    "a sum over tiles called one over all": (LOOPS, lambda f: [
        put(t, 1, "s") for t in f.certificate["terms"] if t[1] == "s.tprogram/2"]),
    "a sum over tiles of another loop": (LOOPS, lambda f: [
        put(t, 1, "s.t") for t in f.certificate["terms"] if t[1] == "s.tprogram/1"]),
    "tiles of two loops taken for one": (LOOPS, lambda f: [
        put(t, 1, t[1].replace("/2", "/1")) for t in f.certificate["terms"] if t[1].startswith("s.t")]),
    # Steps that take out shifts.
    "an exponential that is not divided out": (SPLIT, lambda f: put(
        with_law(f, "shifts.cancel"), "law", "scalars.times_one")),
    "another shift for the one divided out": (SPLIT, lambda f: put(
        with_law(f, "shifts.cancel")["with"], "y", f.term("sum"))),
    "a factor other than one": (SPLIT, lambda f: put(with_law(f, "shifts.cancel")["with"], "x", 0)),
    "a cancellation without its sum": (SPLIT, lambda f: f.certificate["outputs"][0]["steps"].remove(
        with_law(f, "sums.divide"))),
    "a cancellation left out": (SPLIT, lambda f: f.certificate["outputs"][0]["steps"].remove(
        with_law(f, "shifts.cancel"))),
    "a shift by another name": (SPLIT, lambda f: [
        put(t, 1, "shift program_first %6") for t in f.certificate["terms"] if t[1] == FIRST]),
    "two shifts taken for one": (SPLIT, lambda f: [
        put(t, 1, LAST) for t in f.certificate["terms"] if t[1] == FIRST]),
    "a shift for what is read": (SPLIT, lambda f: put(f.certificate["terms"], 0, ["leaf", FIRST])),
    "a load for a shift": (SPLIT, lambda f: [
        put(t, 1, "Q[h, t, d]") for t in f.certificate["terms"] if t[1] == FIRST]),
    "the last maximum for a running one": (LOOPS, lambda f: [
        put(t, 1, "shift program %9") for t in f.certificate["terms"] if t[1].startswith("shift")]),
    # Shifts in the µGraph.
    "a shift that varies along the sum": (SPLIT, lambda f: args(f, 0, 5, 3)),
    "a shift that varies along the parts": (SPLIT, lambda f: args(f, 1, 3, 1)),
    "a shift of other columns": (LOOPS, lambda f: args(f, 0, 22, 21, 8)),
    "a shift taken twice": (SPLIT, lambda f: instead(f, 0, 7, 0, {"op": "sub", "args": [6, 5]})),
    "a shift that is added": (SPLIT, lambda f: put(f.nodes()[6], "op", "add")),
    "a shift that is a factor": (SPLIT, lambda f: put(f.nodes()[6], "op", "mul")),
    "a shift in the numerator alone": (SPLIT, lambda f: args(f, 0, 9, 3)),
    "no shift in the exponent": (SPLIT, lambda f: args(f, 0, 7, 3)),
    "parts that are not scaled alike": (SPLIT, lambda f: args(f, 1, 10, 8)),
    "parts scaled the other way": (SPLIT, lambda f: args(f, 1, 4, 3, 1)),
    "parts scaled by a half": (SPLIT, lambda f: instead(f, 1, 5, 0, {"op": "mul", "args": [4, appended(
        f, 1, 5, {"op": "const", "attr": 0.5})]})),
    "a root of what is scaled": (SPLIT, lambda f: instead(f, 1, 11, 1, {"op": "sqrt", "args": [10]})),
    "a shift in the result": (SPLIT, lambda f: instead(f, 1, 12, 0, {"op": "add", "args": [11, 3]})),
    "a maximum that is taken for its shift": (SPLIT, lambda f: args(f, 0, 6, 3, 4)),
    "a shift that selects": (SPLIT, lambda f: instead(f, 1, 12, 0, {"op": "where", "args": [3, 11, 11]})),
    "a running maximum for the last one": (LOOPS, lambda f: args(f, 0, 14, 13, 8)),
    "a sum scaled by a half": (LOOPS, lambda f: put(f.node("accum_rescaled"), "attr", [0.5])),
    "a sum scaled by no number": (LOOPS, lambda f: put(f.node("accum_rescaled"), "attr", ["x"])),
    "a sum without powers": (LOOPS, lambda f: put(f.node("accum_rescaled"), "attr", [])),
    # Index expressions.
    "before the first element": (SPLIT, lambda f: read(f, "V[h, s_part * 11 + s - 1, e]")),
    "behind the last element": (SPLIT, lambda f: read(f, "V[h, s_part * 11 + s + 11, e]")),
    "elements left out": (SPLIT, lambda f: read(f, "V[h, s_part * 12 + s, e]")),
    "elements read twice": (SPLIT, lambda f: read(f, "V[h, s_part * 10 + s, e]")),
    "an index too few": (SPLIT, lambda f: read(f, "V[h, s_part * 11 + s]")),
    "an index too many": (SPLIT, lambda f: read(f, "V[h, s_part * 11 + s, e, 0]")),
    "no index": (SPLIT, lambda f: read(f, "V[]")),
    "an index of two": (SPLIT, lambda f: read(f, "V[h, s_part * s, e]")),
    "an index of products of products": (SPLIT, lambda f: read(
        f, f"V[h, {'(' * 60}s{' * (1))' * 60} + {'1 * (' * 60}s{')' * 60}, e]")),
    "an index by nothing": (SPLIT, lambda f: read(f, "V[h, s_part * 11 + s // 0, e]")),
    "a remainder of nothing": (SPLIT, lambda f: read(f, "V[h, s_part * 11 + s % 0, e]")),
    "a remainder by a dimension": (SPLIT, lambda f: read(f, "V[h, s_part * 11 + s % e, e]")),
    "a remainder": (SPLIT, lambda f: read(f, "V[h, (s_part * 11 + s) % 54, e]")),
    "a fraction": (SPLIT, lambda f: read(f, "V[h, s_part * 11.0 + s, e]")),
    "a quotient that is no index": (SPLIT, lambda f: read(f, "V[h, (s_part * 22 + s) / 2, e]")),
    "a truth value": (SPLIT, lambda f: read(f, "V[h, s_part * 11 + s * True, e]")),
    "a comparison": (SPLIT, lambda f: read(f, "V[h, (s_part * 11 + s) | 0, e]")),
    "a slice": (SPLIT, lambda f: read(f, "V[h, 0:s, e]")),
    "all that there is": (SPLIT, lambda f: read(f, "V[h, *s, e]")),
    "lists side by side": (SPLIT, lambda f: read(f, "V[h], [s_part * 11 + s, e]")),
    "an assignment": (SPLIT, lambda f: read(f, "V[h, (s := s_part * 11), e]")),
    "a text": (SPLIT, lambda f: read(f, "V[h, 's', e]")),
    "a comment": (SPLIT, lambda f: read(f, "V[h, e #]")),
    "a dimension that there is not": (SPLIT, lambda f: read(f, "V[h, q, e]")),
    "another tensor": (SPLIT, lambda f: read(f, "K[h, s_part * 11 + s, e]")),
    "a mask without its border": (LOOPS, lambda f: mask(f, "(s < t)")),
    "a mask of the border": (LOOPS, lambda f: mask(f, "(s == t)")),
    "a mask the other way": (LOOPS, lambda f: mask(f, "(t <= s)")),
    "no mask": (LOOPS, lambda f: mask(f, "(0 <= s)")),
    "what a mask leaves out": (LOOPS, lambda f: mask(f, "(~(s <= t))")),
    "a mask one further": (LOOPS, lambda f: mask(f, "(s <= t + 1)")),
    "a mask in two parts": (LOOPS, lambda f: mask(f, "((s <= t) & (s < 12))")),
    "a mask or another": (LOOPS, lambda f: mask(f, "((s <= t) | (t < 1))")),
    "a mask of three": (LOOPS, lambda f: mask(f, "(0 <= s <= t)")),
    "a mask by words": (LOOPS, lambda f: mask(f, "(s <= t and s <= t)")),
    "a mask that is a number": (LOOPS, lambda f: mask(f, "1")),
    # Calls.
    "a call that there is not": (CALL, lambda f: f.certificate["calls"].update(other=["X[b, d]", "W[d, n]"])),
    "a call of one operand": (CALL, lambda f: [texts.pop() for texts in f.certificate["calls"].values()]),
    "a call of three": (CALL, lambda f: [texts.append(texts[0]) for texts in f.certificate["calls"].values()]),
    "a call that reads a part": (CALL, lambda f: [put(texts, 0, texts[0].replace("]", " * 0]"))
                                                 for texts in f.certificate["calls"].values()]),
}  # fmt: skip


@pytest.mark.parametrize("kind", FORGERIES)
def test_a_forgery_is_refused(kind: str):
    name, change = FORGERIES[kind]
    assert accepted(name)
    forgery = Forgery(name)
    change(forgery)
    assert fault_of(forgery.program, forgery.ugraph, forgery.certificate)


SAME: dict[str, tuple[str, Callable[[Forgery], Any]]] = {
    "an index in other words": (SPLIT, lambda f: read(f, "V[h, (s) + s_part * 11 + 0, e]")),
    "a mask in brackets": (LOOPS, lambda f: mask(f, "((s) <= (t))")),
    "other tiles": (LOOPS, lambda f: put(f.ugraph["kernels"][0]["sections"][1], "tile", 7)),
}  # fmt: skip


@pytest.mark.parametrize("kind", SAME)
def test_what_says_the_same_is_not_refused(kind: str):
    name, change = SAME[kind]
    forgery = Forgery(name)
    change(forgery)
    assert fault_of(forgery.program, forgery.ugraph, forgery.certificate) == ""
