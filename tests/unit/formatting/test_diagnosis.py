"""Diagnoses of searches that find nothing: the reason is named, and the remedy works."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from unit.search import programs

from mirage_py.cli.explain.explanation import Explanation, of_search
from mirage_py.cli.input.search_limits import read_limits
from mirage_py.errors import InputError
from mirage_py.formatting.diagnosis import REASONS, RULES, Diagnosis, diagnose
from mirage_py.frontend.spec import parse
from mirage_py.pipeline.pipeline import rank_plans
from mirage_py.pipeline.selection.request import Request
from mirage_py.reasons import Code, Reason, reason
from mirage_py.search.enumerate.search import SearchLimits, search
from mirage_py.search.space.counters import named
from mirage_py.targets import target
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Program

# Each line but the first needs the whole row of the one before it.
FOUR_ROWS = """
B = 512, D = 1048576
X[B, D] : f16
let m[b] = mean[d](X[b, d])
let v[b] = mean[d]((X[b, d] - m[b])^2)
let z[b, d] = (X[b, d] - m[b]) / sqrt(v[b] + 1e-5)
let k[b] = max[d](abs(z[b, d]))
let w[b, d] = relu(z[b, d] / k[b] - 0.5)
let q[b] = sum[d](w[b, d]^2)
Y[b, d] = w[b, d] / (q[b] + 1)
"""
LONG_ROW = "B = 4, N = 4194304\nX[B, N] : f16\nY[b] = sum[n](X[b, n])\n"
# The bounds that a report names.
LIMITS = {
    "rounds": 40,
    "max_nodes": 20_000,
    "max_loops": 3,
    "max_kernels": 2,
    "max_tensors": 3000,
    "max_intermediates": 256,
    "max_operators": 8,
}


def _explained(program: Program, *limits: str) -> Explanation:
    bounds = read_limits(limits)
    ranking = rank_plans(program, target("h200"), Request("h200", "triton", "none", limits=bounds))
    return of_search("p.math", ranking)


def _until_found(program: Program, *limits: str) -> list[Diagnosis]:
    """Do what is suggested, one bound after the other, until something is found."""
    met = []
    for _ in range(8):
        explanation = _explained(program, *limits)
        if explanation.winner is not None:
            return met
        suggested = [d for d in explanation.diagnoses if d.repair.startswith("--limit ")]
        assert suggested, explanation.diagnoses
        met.append(suggested[0])
        limits = (*limits, suggested[0].repair.split()[1])
    raise AssertionError(f"the suggestions lead nowhere: {limits}")


def test_a_row_that_is_read_too_often():
    explanation = _explained(parse(FOUR_ROWS, name="rows"), "rings=factored")
    assert explanation.winner is None
    assert explanation.headline.startswith("rows on h200: nothing that runs")
    unfit, loops = explanation.diagnoses[:2]
    assert "families were found, none fits h200" in unfit.what
    assert "d = 1048576 whole: 4.19 MB" in unfit.why
    assert "232 kB of shared memory" in unfit.why
    assert loops.what == "more loops in a row would be needed"
    assert "max_loops = 3" in loops.why
    assert loops.repair == "--limit max_loops=4"


def test_allowing_the_loops_finds_it():
    met = _until_found(parse(FOUR_ROWS, name="rows"), "rings=factored")
    assert met[0].repair == "--limit max_loops=4"
    assert all(d.repair.startswith("--limit max_loops=") for d in met)


def test_a_pool_that_is_too_small():
    met = _until_found(programs.ntrans(), "max_tensors=2", "max_kernels=1", "rings=factored")
    assert met[0].repair == "--limit max_tensors=4"
    assert "cut off" in met[0].what


def test_a_row_too_long_to_hold_whole():
    explanation = _explained(parse(LONG_ROW), "max_loop_dims=1", "max_kernels=1", "max_tensors=1")
    assert explanation.winner is None
    unfit = explanation.diagnoses[0]
    assert "n = 4194304 whole: 16.8 MB" in unfit.why
    assert _until_found(parse(LONG_ROW), "max_tensors=1", "max_kernels=1")


def _of(program: Program, **limits: int) -> Mapping[str, Any]:
    found = search(program, limits=SearchLimits(rings=("factored",), **limits))
    return {
        "pruned": named(found.counters.pruned),
        "examples": named(found.counters.examples),
        "reasons": [*map(str, found.reasons)],
        "codes": {str(r): r.name for r in (*found.reasons, *found.counters.pruned)},
        "hits": found.counters.hits,
        "limits": {**LIMITS, **limits},
    }


def _division_by_zero() -> Program:
    s = programs.Spec("undefined", b=4)
    x = s.load("X", "b")
    s.output("Y", s.b.apply("div", x, s.b.apply("sub", x, x)), "b")
    return s.b.build()


def _infinity() -> Program:
    s = programs.Spec("infinite", b=4)
    s.output("Y", s.b.apply("minimum", s.load("X", "b"), s.b.const(float("inf"))), "b")
    return s.b.build()


def _accumulator() -> Program:
    program = programs.row_softmax(4, 8)
    return replace(program, nodes=(*program.nodes[:-1], Node("accum_sum", (1,), None, ("b", "n"))))


def _many_axes() -> Program:
    names = [f"d{n}" for n in range(40)]
    s = programs.Spec("many", **dict.fromkeys(names, 2))
    s.b.input("X", [2] * 40, programs.F16)
    total = s.b.sum(s.b.load("X", names), names)
    s.b.output("Y", total, [], programs.F16)
    return s.b.build()


@pytest.mark.parametrize(
    ("make", "limits", "what"),
    [
        (_division_by_zero, {}, "the program divides by zero"),
        (_infinity, {}, "a constant has no value in a finite field"),
        (_accumulator, {}, "an operator belongs to block graphs"),
        (_many_axes, {}, "the program has too many reduced dimensions"),
        (programs.rmsnorm_matmul, {"rounds": 1}, "the laws were cut off"),
        (programs.rmsnorm_matmul, {"max_nodes": 4}, "the laws were cut off"),
        (programs.rmsnorm_matmul, {"max_tensors": 4}, "a pool of tensors was cut off"),
    ],
)
def test_real_reasons_have_a_diagnosis(make, limits: dict[str, int], what: str):
    found = _of(make(), **{"max_kernels": 1, **limits})
    diagnoses = diagnose(found)
    assert what in diagnoses[0].what
    assert diagnoses[0].repair


def _codes(*reasons: Reason) -> dict[str, str]:
    return {str(r): r.name for r in reasons}


def _seven(code: Code) -> Reason:
    return reason(code, *[7] * code.sentence.count("{}"))


def test_a_reason_is_told_once_with_how_often_it_was_met():
    reasons = [reason(Code.POOL_OUTGREW, 9, where) for where in ("no loop", "loop")]
    found = {
        "pruned": {},
        "hits": 1,
        "reasons": [*map(str, reasons)],
        "codes": _codes(*reasons),
        "limits": {**LIMITS, "max_tensors": 9},
    }
    (diagnosis,) = diagnose(found)
    assert diagnosis.count == 2
    assert diagnosis.repair == "--limit max_tensors=18"
    assert diagnosis.why.endswith("(the pool outgrew 9 tensors (no loop))")


@pytest.mark.parametrize("cause", REASONS, ids=lambda cause: cause.code.name)
def test_texts_fill_in(cause):
    said = _seven(cause.code)
    search = {"pruned": {}, "reasons": [str(said)], "codes": _codes(said), "hits": 1}
    found = diagnose({**search, "limits": LIMITS})
    assert [d.what for d in found] == [cause.what]
    assert "{" not in found[0].why + found[0].repair


def test_an_unknown_reason_is_passed_on():
    reasons = ["the moon is full\n  why: it is the 14th"]
    found = {"pruned": {}, "reasons": reasons, "hits": 1, "limits": LIMITS}
    (diagnosis,) = diagnose(found)
    assert diagnosis.what == "the moon is full"
    assert "14th" in diagnosis.why


@pytest.mark.parametrize("cause", RULES, ids=lambda cause: cause.code.name)
def test_texts_of_rules_fill_in(cause):
    limits = {**LIMITS, "max_kernels": 1}
    rule = _seven(cause.code)
    search = {"pruned": {str(rule): 2}, "reasons": [], "codes": _codes(rule), "hits": 0}
    found = diagnose({**search, "limits": limits})
    assert [d.what for d in found] == [cause.what]
    assert "{" not in found[0].why + found[0].repair


def test_parts_without_bounds_have_no_diagnosis():
    held = {"pruned": {str(Reason(Code.GRID)): 3}, "reasons": ["p: x"], "hits": 0, "limits": {}}
    assert diagnose(held) == ()
    lost = Diagnosis("lost", "why", "try")
    assert diagnose(held, lost) == (lost,)


def test_nothing_at_all_still_says_something():
    (diagnosis,) = diagnose({"pruned": {}, "reasons": [], "hits": 0, "limits": LIMITS})
    assert diagnosis.what == "no configuration reaches all outputs"
    assert diagnosis.repair


def test_a_second_kernel_is_suggested_where_there_was_one():
    found = {
        "pruned": {str(Reason(Code.GRID)): 3},
        "examples": {},
        "codes": _codes(Reason(Code.GRID)),
        "reasons": [],
        "hits": 0,
    }
    (diagnosis,) = diagnose({**found, "limits": {**LIMITS, "max_kernels": 1}})
    assert diagnosis.repair == "--limit max_kernels=2"
    (other,) = diagnose({**found, "limits": LIMITS})
    assert other.what == "no configuration reaches all outputs"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("max_tensors", "is not a limit"),
        ("max_tensors=0", "is not a limit"),
        ("max_tensors=many", "is not a limit"),
        ("rings=golden", "is not a limit"),
        ("extraction=3", "there is no limit 'extraction'"),
        ("max_tensor=3", "did you mean 'max_tensors'"),
    ],
)
def test_limits_that_are_none(text: str, says: str):
    with pytest.raises(InputError, match=re.escape(says)):
        read_limits([text])


def test_limits_are_read():
    limits = read_limits(["max_tensors=7", "rings=expanded", "max_loops=2", "max_operators=9"])
    assert (limits.max_tensors, limits.max_loops, limits.max_operators) == (7, 2, 9)
    assert limits.rings == ("factored", "expanded")
    assert read_limits(["rings=factored"]).rings == ("factored",)
