"""Graphs that are none: nodes which do not change what is computed, but have no meaning, or another.

What is added here is not used by any output, or is the value itself by the rules of reals. The
certificate stays as it is, so that it is the reading of the graph which has to refuse.
"""

# ruff: noqa: E501

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from adversarial.test_forged_certificates import (
    ADDED,
    CALL,
    LOOPS,
    SPLIT,
    TWO,
    Forgery,
    accepted,
    put,
)
from adversarial.test_forged_steps import appended

from mirage_py.axioms.certificate.checker import fault_of

Json = dict[str, Any]


def number(f: Forgery, op: str, kernel: int = 0) -> int:
    return f.nodes(kernel).index(f.node(op, kernel))


def beside(
    op: str, *args: int, before: str = "store", kernel: int = 0, **more: Any
) -> Callable[[Forgery], Any]:
    """A node that nothing uses, in front of the first one of an operator."""
    node: Json = {"op": op, "args": list(args), **more}
    return lambda f: appended(f, kernel, number(f, before, kernel), node)


def in_place_of(kernel: int, user: int, place: int, *made: Json) -> Callable[[Forgery], Any]:
    """Nodes in a row, of which the last is the operand; None stands for the node before."""

    def change(f: Forgery) -> None:
        now = f.nodes(kernel)[user]["args"][place]
        for node in made:
            args = [now if a is None else a for a in node["args"]]
            now = appended(f, kernel, user, {**node, "args": args})
        f.nodes(kernel)[user]["args"][place] = now

    return change


def cast(to: str, of: int | None = None) -> Json:
    return {"op": "cast", "attr": to, "args": [of]}


def rounding(copies: bool) -> Callable[[Forgery], Any]:
    """x - cast(x), times 1e6, is added to what a kernel stores; the second x may be a copy of the first."""

    def change(f: Forgery) -> None:
        store = number(f, "store", 1)
        (x,) = f.nodes(1)[store]["args"]
        if copies:
            again = {k: v for k, v in f.nodes(1)[x].items() if k != "dims"}
            y = appended(f, 1, store, again)
        else:
            y = x
        low = appended(f, 1, store, cast("bf16", y))
        wide = appended(f, 1, store, cast("f32", low))
        appended(f, 1, store, {"op": "sub", "args": [x, wide]})

    return change


def unfinished(f: Forgery) -> None:
    """An accumulator is read in its own loop."""
    total = number(f, "accum_rescaled")
    f.nodes().append({"op": "neg", "args": [total]})
    section = next(s for s in f.ugraph["kernels"][0]["sections"] if total in s["nodes"])
    section["nodes"].append(len(f.nodes()) - 1)


def writes_an_input(f: Forgery) -> None:
    call = next(k for k in f.ugraph["kernels"] if k["kind"] != "block")
    f.certificate["calls"]["W"] = f.certificate["calls"].pop(call["result"])
    call["result"] = "W"


FORGERIES: dict[str, tuple[str, Callable[[Forgery], Any]]] = {
    # Memory.
    "what nothing has written": (SPLIT, beside("load", attr="part0[s_part, h, t, e]")),
    "what a later kernel writes": (SPLIT, beside("load", attr="O[h, t, e]")),
    "what this kernel writes": (SPLIT, beside("load", attr="shift0[h, t, s_part]")),
    "a part of an input": (SPLIT, beside("load", attr="V[h, s, e - 1]")),
    "an input that there is not": (SPLIT, beside("load", attr="P[h, t]")),
    "one index of an intermediate fixed": (SPLIT, beside("load", kernel=1, attr="part1[0, h, t]")),
    "an intermediate by other dimensions": (SPLIT, beside("load", kernel=1, attr="part0[s_part, h, t, d]")),
    # Reductions.
    "a sum over one dimension twice": (SPLIT, beside("sum", 7, attr=["s", "s"])),
    "a sum over what is summed": (SPLIT, beside("sum", 9, attr=["s"])),
    "a sum over what a number lacks": (SPLIT, beside("sum", 4, attr=["e"])),
    "a sum over the blocks": (SPLIT, beside("sum", 9, attr=["t"])),
    "a product over what one side lacks": (SPLIT, beside("matmul", 7, 1, attr=["s"])),
    "a tile summed twice": (LOOPS, lambda f: appended(f, 0, number(f, "accum_rescaled"), {
        "op": "sum", "attr": ["s"], "args": [f.node("accum_rescaled")["args"][0]]})),
    "a sum over a dimension that there is not": (SPLIT, beside("sum", 7, attr=["q"])),
    # Loops.
    "a tile kept after its loop": (LOOPS, lambda f: appended(f, 0, number(f, "store"), {
        "op": "neg", "args": [f.node("accum_rescaled")["args"][0]]})),
    "a tile added up without a sum": (LOOPS, lambda f: appended(f, 0, number(f, "accum_rescaled"), {
        "op": "accum_sum", "args": [number(f, "exp")]})),
    "a sum before its loop is over": (LOOPS, unfinished),
    "a total outside of loops": (SPLIT, beside("accum_sum", 9)),
    "a total rescaled without a loop": (SPLIT, beside("accum_rescaled", 9, 5, attr=[1])),
    "a total rescaled by its last maximum alone": (LOOPS, lambda f: appended(f, 0, number(f, "store"), {
        "op": "accum_rescaled", "attr": [1], "args": f.node("accum_rescaled")["args"]})),
    # Clusters and blocks.
    "a cluster that adds to memory too": (ADDED, lambda f: [
        put(a, "cluster", True) for a in f.ugraph["kernels"][0]["grid"]]),
    "a cluster along a dimension of its loop": (LOOPS, lambda f: f.ugraph["kernels"][0]["grid"].append(
        {"dim": "s", "tile": 4, "cluster": True})),
    "a cluster that is not needed": (TWO, lambda f: put(f.ugraph["kernels"][0]["grid"][0], "cluster", True)),
    "a grid over what there is not": (SPLIT, lambda f: f.ugraph["kernels"][0]["grid"].append({"dim": "q", "tile": 1})),
    # Casts.
    "what a cast loses": (TWO, rounding(copies=False)),
    "what a cast of a copy loses": (TWO, rounding(copies=True)),
    "a cast to whole numbers": (SPLIT, in_place_of(1, 12, 0, cast("i32"))),
    "a cast to truth values": (SPLIT, in_place_of(1, 12, 0, cast("bool"))),
    # Numbers of nodes.
    "a node by a truth value": (SPLIT, lambda f: put(f.nodes()[3], "args", [True, 2.5])),
    "a node from the end": (SPLIT, lambda f: put(f.nodes()[3], "args", [-12, 2])),
    "a section with a node from the end": (SPLIT, lambda f: f.ugraph["kernels"][0]["sections"][0]["nodes"].append(-1)),
    "a node of itself": (SPLIT, lambda f: put(f.nodes()[7], "args", [7])),
    "nodes in another order": (SPLIT, lambda f: f.ugraph["kernels"][0]["sections"][0]["nodes"].reverse()),
    # Operators.
    "an operator that there is not": (SPLIT, beside("softmax", 7)),
    "infinity": (SPLIT, beside("const", attr=float("inf"))),
    "no number": (SPLIT, beside("const", attr=float("nan"))),
    "the size of nothing": (SPLIT, beside("size", attr="q")),
    "two stores to one place": (SPLIT, lambda f: appended(f, 1, 12, {**f.node("store", 1)})),
    "a call that writes an input": (CALL, writes_an_input),
}  # fmt: skip


@pytest.mark.parametrize("kind", FORGERIES)
def test_a_forgery_is_refused(kind: str):
    name, change = FORGERIES[kind]
    assert accepted(name)
    forgery = Forgery(name)
    change(forgery)
    assert fault_of(forgery.program, forgery.ugraph, forgery.certificate)


SAME: dict[str, tuple[str, Callable[[Forgery], Any]]] = {
    "a value that nothing uses": (SPLIT, beside("sum", 7, attr=["s"])),
    "a narrow cast before the result": (SPLIT, in_place_of(1, 12, 0, cast("f16", None))),
    "a cast there and back": (SPLIT, in_place_of(1, 12, 0, cast("f16"), cast("f32"))),
    "a factor that is cast twice": (SPLIT, in_place_of(0, 8, 0, cast("bf16"), cast("f32"))),
    "a wider load": (SPLIT, in_place_of(0, 3, 0, cast("f32"), cast("f32"), cast("f16"))),
}  # fmt: skip


@pytest.mark.parametrize("kind", SAME)
def test_what_computes_the_same_is_not_refused(kind: str):
    name, change = SAME[kind]
    forgery = Forgery(name)
    change(forgery)
    assert fault_of(forgery.program, forgery.ugraph, forgery.certificate) == ""
