"""The verdict on a mutant, tier by tier, and that of float64 on those accepted."""

from __future__ import annotations

from functools import cache

from adversarial.corpus import Site, given, mutant, originals
from adversarial.judge import DIFFERENT, OVERFLOWS, SAME, verdict

from mirage_py.errors import MirageError
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.verify.field_test.families import FamilyTests
from mirage_py.verify.samples.sampled_test import sampled_test

# As the pipeline has them.
TRIALS = 4
SAMPLES = 3

# The first tier that refuses a mutant, in their order; then what becomes of the others.
RULES, SMALL, REAL = "rules", "small sizes", "real sizes"
FLOATS, EQUAL, WRONG = "left to floats", "equal", "wrong"
OUTCOMES = (RULES, SMALL, REAL, FLOATS, EQUAL, WRONG)
# Other roundings are left to the numerical check.
_ROUNDS_MORE = ("casts_to_few_digits", "hands_over_few_digits")
_ACCEPTED = {SAME: EQUAL, OVERFLOWS: FLOATS, DIFFERENT: WRONG}


def outcome(site: Site, *, seed: int = 0) -> str:
    """One of OUTCOMES. The last three are accepted: float64 sees no difference, or sees one, or
    only that exponents are shifted so far that they overflow, which the numerical check refuses.

    The rules alone decide nothing: what they refuse has to be refused by the field test too, which
    the pipeline asks. An exception that is no MirageError is a fault of the verifier and goes on.
    """
    ugraph = mutant(site)
    program, _ = originals()[site.graph]
    tier = refused_by(program, ugraph, _tests(site.graph, seed), seed=seed)
    if tier:
        return RULES if tier == SMALL and _breaks_rules(ugraph) else tier
    rounds = site.kind not in _ROUNDS_MORE
    return _ACCEPTED[verdict(given(site.graph), ugraph, seed=seed, rounds=rounds)]


def refused_by(program: Program, ugraph: UGraph, tests: FamilyTests, *, seed: int = 0) -> str:
    """SMALL or REAL, or nothing if the pipeline would take it."""
    try:
        if not tests.run(ugraph).equal:
            return SMALL
    except MirageError:
        return SMALL
    try:
        return "" if sampled_test(program, ugraph, samples=SAMPLES, seed=seed).equal else REAL
    except MirageError:
        return REAL


def _breaks_rules(ugraph: UGraph) -> bool:
    try:
        validate_ugraph(ugraph)
    except MirageError:
        return True
    return False


@cache
def _tests(name: str, seed: int) -> FamilyTests:
    return FamilyTests(originals()[name][0], trials=TRIALS, seed=seed)
