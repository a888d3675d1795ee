"""Parts that a library computes as one call: their plan, without a search, and its evidence.

That a part is the convolution of the call is found by evaluating its indices and masks at every
place of its windows (``ugraph/rewrite/convolutions.py``). That what a call means is what such a sum
of products means is tested over a finite field, at small numbers of samples and channels.
"""

from __future__ import annotations

import time
from dataclasses import replace

from mirage_py.errors import UnsupportedError
from mirage_py.reasons import Code, reason
from mirage_py.result import Candidate, Evidence, Result, SearchSummary, Timing
from mirage_py.search.model.cost_model import lower_bound_us
from mirage_py.search.model.library_model import library_estimate
from mirage_py.search.tilings.kinds import describe
from mirage_py.targets import Target
from mirage_py.ugraph.building.convolution import convolution_program, small_sizes
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import LibraryCall, UGraph
from mirage_py.ugraph.rewrite.convolutions import library_convolution
from mirage_py.verify.field_test.field_test import FieldEvidence, field_test

_TRIALS = 2


def library_result(part: Program, target: Target, *, seed: int, backend: str) -> Result | None:
    """The result for a part that is one library call; None for any other part.

    Raises VerificationError where the call does not compute the part, UnsupportedError where that
    cannot be tested.
    """
    call = library_convolution(part)
    if call is None:
        return None
    started = time.monotonic()
    found = library_evidence(part, call, seed=seed).require()
    plan = Plan(UGraph(part, (call,)), (LaunchConfig(),), backend)
    time_us = library_estimate(call, plan.ugraph, target).time_us
    best = Timing(call.name, time_us, "model")
    floor_us = lower_bound_us(part, target)
    return Result(
        program=part,
        target=target.name,
        backend=backend,
        baseline=best,  # it is what one has
        best=best,
        plan=plan,
        evidence=Evidence(
            trials=found.trials,
            primes=found.primes,
            error_bound=found.error_bound,
            bound_reason=reason(Code.LIBRARY_CONVOLUTION, found.bound_reason),
            proved=False,
            max_rel_error=0.0,
            float_bound=0.0,
            float_source="the library's own",
        ),
        search=SearchSummary(
            seconds=time.monotonic() - started,
            candidates=1,
            valid=1,
            exhausted=True,
            pruned={},
            gap=time_us / floor_us - 1.0,
            lower_bound_us=floor_us,
            kinds={"library": 1},
        ),
        families=(plan.ugraph,),
        candidates=(Candidate(plan, best, kind=describe(plan.ugraph)),),
    )


def library_evidence(part: Program, call: LibraryCall, *, seed: int) -> FieldEvidence:
    """The field test of a call against a part, with few samples, channels and windows."""
    known = library_convolution(part)
    if known is None or known.convolution is None or call.convolution is None:
        return field_test(part, UGraph(part, (call,)), trials=_TRIALS, seed=seed)
    shapes = [part.tensors[name].shape for name in known.args]
    sizes = small_sizes(known.convolution, shapes[0], shapes[1])
    small = convolution_program(known.convolution, *sizes)
    again = library_convolution(small)
    if again is None or again.convolution is None:
        raise UnsupportedError("a convolution that has no small sizes", where=part.name)
    spec = replace(
        call.convolution, counts=again.convolution.counts, groups=again.convolution.groups
    )
    inside = replace(again, convolution=spec)
    return field_test(small, UGraph(small, (inside,)), trials=_TRIALS, seed=seed)
