"""The evidence that a result is right, in plain sentences; see docs/explanation/verification.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mirage_py.cli.format.function_format import format_functions
from mirage_py.cli.format.kernel_format import count_text
from mirage_py.verify.numerical_check.check_strength import set_words, sets_text
from mirage_py.verify.numerical_check.float_case import SetFinding


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
