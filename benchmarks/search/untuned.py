"""Programs whose seconds before compilation are measured: real functions and random programs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from benchmarks.kernelbench.problem import load, problems
from benchmarks.wild.catalogue import programs
from benchmarks.wild.program import WildProgram
from mirage_py.frontend.spec import parse_file
from mirage_py.frontend.torch.guards.calls import Signature
from mirage_py.frontend.torch.trace import trace_call
from mirage_py.ugraph.ir.program import Program

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
WILD = (
    "alibi_attention", "biased_attention", "capped_attention", "sink_attention",
    "window_attention", "eager_attention", "differential_attention", "talking_heads",
    "latent_attention", "rotary_halves", "channel_norm", "gated_rms_norm", "swiglu",
    "clamped_swiglu", "softmax_router", "cross_entropy", "head_log_sum_exp", "siglip_loss",
    "residual_distribution", "retention", "patchify", "zero_modulation", "smoothed_linear",
    "llama_attention_block", "llama_mlp_block", "shifted_cross_entropy", "residual_block",
    "scan_by_loop",
)  # fmt: skip
KERNELBENCH = ("L1-1", "L1-23", "L1-36", "L1-95", "L2-12", "L2-22", "L2-28", "L2-37", "L2-45",
               "L2-59", "L2-62", "L2-66", "L2-70", "L2-76", "L2-84", "L2-88", "L2-95", "L3-31",
               "L3-43", "L3-44")  # fmt: skip
RANDOM = 200


def untuned(checkout: Path | None) -> dict[str, Callable[[], Program]]:
    """Each program by its name; those of KernelBench where a checkout is given."""
    found: dict[str, Callable[[], Program]] = {}
    specs = [*sorted(EXAMPLES.glob("*.math")), *sorted((EXAMPLES / "large").glob("*.math"))]
    for spec in specs:
        found[f"example:{spec.stem}"] = partial(parse_file, spec)
    wild = programs()
    for name in WILD:
        if name in wild:
            found[f"wild:{name}"] = partial(_wild, wild[name])
    if checkout is not None:
        for problem in problems(checkout, (1, 2, 3)):
            if problem.key in KERNELBENCH:
                found[f"kernelbench:{problem.key}"] = partial(
                    lambda p: _traced(*load(p, filled=False)), problem
                )
    for seed in range(RANDOM):
        found[f"random:{seed}"] = partial(_random, seed)
    for seed in range(RANDOM):
        found[f"large:{seed}"] = partial(_large, seed)
    return found


def _wild(program: WildProgram) -> Program:
    return _traced(program.function, program.arguments(real=True, device="meta"))


def _traced(function: Callable[..., object], inputs: list[object]) -> Program:
    signature = Signature.of(function)
    with torch.no_grad():
        return trace_call(signature, signature.bind(inputs, {})).program


def _random(seed: int) -> Program:
    _with_tests()
    from adversarial.random_programs import random_program

    return random_program(seed)


def _large(seed: int) -> Program:
    _with_tests()
    from adversarial.large_programs import large_program

    return large_program(seed)


def _with_tests() -> None:
    tests = str(ROOT / "tests")
    if tests not in sys.path:
        sys.path.insert(0, tests)
