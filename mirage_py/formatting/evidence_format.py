"""The evidence that a result is right, and its gap to the roofline bound, in plain sentences; see
docs/explanation/verification.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mirage_py.formatting.function_format import format_functions
from mirage_py.formatting.kernel_format import count_text, size_text
from mirage_py.targets import Target
from mirage_py.ugraph.ir.dtypes import F32, Fp32Precision
from mirage_py.ugraph.ir.program import Program
from mirage_py.verify.numerical_check.check_strength import set_words, sets_text
from mirage_py.verify.numerical_check.float_case import SetFinding

_PRECISIONS = {
    Fp32Precision.IEEE: "by multiply-adds, or by three products of TF32",
    Fp32Precision.TF32: "operands may be rounded to TF32",
    Fp32Precision.TF32_MATMULS: "operands of matmuls may be rounded to TF32",
    Fp32Precision.TF32_CONVOLUTIONS: "operands of convolutions may be rounded to TF32",
}
# What the cost model calls a limit.
LIMITS = {
    "memory": "the bytes that have to cross the memory bus",
    "cache": "reading its operands from the L2 again in every block",
    "tensor cores": "the tensor cores",
    "plain cores": "elementwise work and reductions on the plain cores",
    "latency": "latency: one block's chain of loads, products and barriers, with too few beside it",
}


def format_evidence(verification: Mapping[str, Any], proof: str) -> tuple[str, ...]:
    """What was checked, from a report's part ``verification``; nothing is said that was not.

    ``proof`` is the sentence about the derivation.
    """
    if not verification.get("trials"):
        return ("The original program is the result: there is nothing to prove.",)
    return tuple(_sentences(verification, proof))


def _sentences(evidence: Mapping[str, Any], proof: str) -> Iterator[str]:
    primes = ", ".join(map(str, evidence["primes"]))
    trials = count_text(evidence["trials"], "trial")
    yield (
        f"The µGraph and the program gave equal outputs in {trials} over finite fields, with "
        f"random inputs and sizes that leave tails (modulo {primes})."
    )
    yield from format_functions(evidence.get("functions"))
    bound, reason = evidence["error_bound"], evidence["bound_reason"]
    if bound is None:
        yield f"No probability of error is stated: {reason}."
    else:
        chance = f"a probability of at most {bound:.2g}"
        yield f"A wrong µGraph passes these trials with {chance}: {reason}."
    if evidence.get("samples"):
        samples = count_text(evidence["samples"], "sample")
        yield f"With its real tiles at the real sizes it agreed in {samples} of blocks as well."
    yield proof
    error, allowed = evidence["max_rel_error"], evidence["float_bound"]
    yield (
        f"The generated code is off from float64 by {error:.2g} (relative), where rounding "
        f"explains up to {allowed:.2g} ({evidence['float_source']})."
    )
    sets = [SetFinding(**s) for s in evidence.get("float_sets", ())]
    if sets:
        yield f"Sets of inputs that say something: {sets_text(sets)}."
    for found in sets:
        if found.telling < found.elements:
            yield f"Of the set {set_words(found)}."
    yield from map(_format_code, evidence.get("code", ()))


def _format_code(code: Mapping[str, Any]) -> str:
    """Of a kernel's compiled text."""
    name = code["kernel"]
    if not code["checked"]:
        return f"The compiled text of {name} was not checked: {code['reason']}."
    if code["faults"]:
        return f"The compiled text of {name} has a fault: {code['faults'][0]}."
    return (
        f"By the compiled text of {name}, its {code['blocks']} blocks stay inside of their tensors "
        f"and write each output once; nothing races ({code['events']} events in order)."
    )


def format_reach(proof: Mapping[str, Any]) -> str:
    """All sizes and tiles, or what they have to be like: needs are equations between them."""
    needs = proof["needs"]
    where = f" where {' and '.join(needs)}" if needs else ""
    return f"for all sizes (tiles included){where}"


def format_roofline(report: Mapping[str, Any], program: Program, target: Target) -> Iterator[str]:
    """Sentences from a report: the bound, what sets it, the gap and what limits the best plan."""
    search, best = report["search"], report["best"]
    floor_us = search["lower_bound_us"]
    yield f"No plan needs less than {floor_us:.2f} us: {_floor(program, target, floor_us)}."
    if program.has_fp32_matmul:
        held_to = program.fp32_precision
        yield f"Products of float32 are held to {held_to}: {_PRECISIONS[held_to]}."
    if best is None or best["time_us"] is None:
        return
    said = {"model": "predicted to take", "measured": "measured at"}[best["source"]]
    yield f"The best is {said} {best['time_us']:.2f} us, {search['gap']:.0%} more."
    limit = search.get("limited_by", "")
    if limit:
        yield f"By the cost model it waits for {LIMITS.get(limit, limit)}."


def _floor(program: Program, target: Target, floor_us: float) -> str:
    """What sets the roofline bound."""
    moved = sum(tensor.bytes for tensor in program.tensors.values())
    memory_us = moved / target.dram_bytes_per_us
    if floor_us <= target.launch_us * 1.001:
        return "a launch takes as long"
    if memory_us >= 0.999 * floor_us:
        rate = target.dram_bytes_per_us / 1e6
        return f"{size_text(moved)} of inputs and outputs at {rate:.2f} TB/s"
    if program.matmul_type == F32:
        return "its products at the fastest rate that is exact enough"
    return "its products at the full rate of the tensor cores"
