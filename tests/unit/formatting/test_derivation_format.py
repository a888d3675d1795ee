"""Derivations in words, replayed by ``verify`` and ``explain``."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import samples

from mirage_py.axioms.proof.prove import prove
from mirage_py.axioms.proof.steps import Derivation, Proof
from mirage_py.axioms.terms.term import Term, apply, const, leaf, reduce, size
from mirage_py.cli.commands.equality import compare, proof_verdict
from mirage_py.cli.input.subject import Subject
from mirage_py.errors import FormatError
from mirage_py.formatting.derivation_format import (
    format_derivation,
    proof_summary,
    replayed,
    term_text,
)

A, B, C = (leaf(f"{name}[b, k]") for name in "ABC")


def subject(name: str, **changes: Any) -> Subject:
    ugraph = samples.ugraph(name)
    return replace(Subject(name, ugraph.program, ugraph), **changes)


def stored(name: str) -> dict[str, Any]:
    ugraph = samples.ugraph(name)
    proof = prove(ugraph.program, ugraph)
    assert proof is not None
    return json.loads(json.dumps(proof.document()))


@pytest.mark.parametrize(
    ("term", "depth", "text"),
    [
        (A + B * C, 9, "A[b, k] + B[b, k] * C[b, k]"),
        ((A + B) * C, 9, "(A[b, k] + B[b, k]) * C[b, k]"),
        (A - (B - C), 9, "A[b, k] - (B[b, k] - C[b, k])"),
        (A / (B * C) / C, 9, "A[b, k] / (B[b, k] * C[b, k]) / C[b, k]"),
        (-(A + B), 9, "-(A[b, k] + B[b, k])"),
        (apply("square", A * B), 9, "(A[b, k] * B[b, k])^2"),
        (apply("maximum", A, const("0")), 9, "max(A[b, k], 0)"),
        (apply("lt", A, B) * C, 9, "(A[b, k] < B[b, k]) * C[b, k]"),
        (reduce("sum", ("k.l", "k.t"), A) / size("k"), 9, "sum[k.l, k.t](A[b, k]) / |k|"),
        (Term("max", "k", (Term("sum", "b", (A,)),)), 9, "max[k](sum[b](A[b, k]))"),
        (apply("exp", apply("exp", A + B)), 2, "exp(exp(...))"),
    ],
)
def test_terms_read_as_specs(term: Term, depth: int, text: str):
    assert term_text(term, depth) == text


@pytest.mark.parametrize("version", [1, 2, 4, "3", None])
def test_a_stored_derivation_of_an_unknown_version_is_refused(version: object):
    other = subject("attention", proof={**stored("attention"), "version": version})
    with pytest.raises(FormatError, match="is no derivation"):
        proof_verdict(other, other.ugraph)


def test_a_derivation(golden):
    lines = format_derivation(stored("rms_norm_matmul_two_loops"))
    golden.check("\n".join(lines) + "\n", "cli/derivation.txt")


def test_a_long_derivation_is_cut():
    document = stored("rms_norm_matmul_two_loops")
    (output,) = document["outputs"]
    steps = [s for s in output["steps"] if not s["law"].endswith(("commutes", "commute"))]
    output["steps"] = steps * 30
    lines = format_derivation(document)
    assert len(lines) == 1 + 24 * 3 + 1
    assert lines[-1] == f"  and {30 * len(steps) - 24} more: --json has all of them"


def test_equal_expressions_need_no_step():
    proof = Proof((Derivation("Y", A, A, ()),))
    assert format_derivation(proof.document()) == ("Y: the same expression",)
    assert "without any step" in proof_summary(proof, "the program")


def test_verify_looks_for_a_proof():
    verdict = compare(
        subject("softmax"), subject("softmax"), trials=1, seed=0, progress=lambda _: None
    )
    assert verdict.equal
    assert [found.proved for found in verdict.proofs] == [True, True]
    assert any("the laws prove the µGraph of softmax for all sizes" in s for s in verdict.lines)


def test_a_stored_derivation_is_replayed():
    given = subject("rms_norm_matmul_two_loops", proof=stored("rms_norm_matmul_two_loops"))
    assert given.ugraph is not None
    found = proof_verdict(given, given.ugraph)
    assert (found.proved, found.stored, found.fault) == (True, True, "")
    assert found.steps > 5
    assert "sums.divide_terms" in found.laws
    assert "holds, for all sizes (tiles included): " in found.line
    assert "by 5 laws lead from the program to the µGraph" in found.line


def test_a_stored_derivation_that_does_not_hold_is_a_fault():
    document = stored("rms_norm_matmul_two_loops")
    del document["outputs"][0]["steps"][3]
    given = subject("rms_norm_matmul_two_loops", proof=document)
    verdict = compare(given, given, trials=1, seed=0, progress=lambda _: None)
    assert not verdict.equal
    assert "does not hold: output Y: step 4" in verdict.reason
    assert verdict.difference is None


def test_a_derivation_of_something_else_does_not_hold():
    ugraph = samples.ugraph("attention")
    start, fault = replayed(ugraph.program, ugraph, stored("softmax"))
    assert (start, fault) == ("", "it is about the outputs Y")


def test_what_is_no_derivation_is_named():
    given = subject("softmax", proof={"terms": 3})
    assert given.ugraph is not None
    with pytest.raises(FormatError, match=r"report.json.*is no derivation"):
        proof_verdict(given, given.ugraph)
