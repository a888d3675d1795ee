"""Masks with the constants that users write, on the GPU: rows that are masked wholly too.

`pytest -m gpu -n 8 tests/gpu/test_mask_constants.py` takes about a minute.
"""

from __future__ import annotations

import mask_constants
import pytest
import torch

from mirage_py.errors import MirageError
from mirage_py.runtime.compile.cuda_compiler import cuda_compiler
from mirage_py.runtime.launch.launch import PlanRunner

pytestmark = pytest.mark.gpu

# nvcc takes seconds for each of these.
CUDA_KINDS = ("cuda one kernel", "cuda split", "cuda cluster")
OTHERS = [(name, c) for name in ("chosen", "both") for c in ("-1e31", "f32.min", "1e30")]


def backends() -> tuple[str, ...]:
    try:
        cuda_compiler()
    except MirageError:
        return ("triton",)
    return ("triton", "cuda")


def compare(name: str, constant: str, chosen: tuple[str, ...]) -> None:
    """One plan of each kind, with eager."""
    case, value = mask_constants.CASES[name], mask_constants.CONSTANTS[constant]
    want = case.wanted(value)
    given = [x.cuda() for x in case.inputs(value)]
    for kind, plan in mask_constants.plans(name, value, chosen).items():
        if plan.backend == "cuda" and kind not in CUDA_KINDS:
            continue
        (got,) = PlanRunner(plan).run_poisoned(*given)
        torch.testing.assert_close(
            got.double().cpu(), want, atol=4e-3, rtol=4e-3, msg=lambda m, kind=kind: f"{kind}: {m}"
        )


@pytest.mark.parametrize("name", mask_constants.CASES)
def test_every_kind_of_plan_gives_what_eager_does(name: str):
    compare(name, "-1e30", backends())


@pytest.mark.parametrize(("name", "constant"), OTHERS)
def test_other_constants(name: str, constant: str):
    compare(name, constant, ("triton",))
