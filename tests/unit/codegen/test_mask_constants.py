"""Plans that the search finds for masks with constants, in both back ends, as eager has it."""

from __future__ import annotations

import mask_constants
import numpy as np
import pytest

from mirage_py.runtime.cpu.cuda_emulation import run_emulated
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted

# The other programs and constants are for a GPU (tests/gpu/test_mask_constants.py).
CASES = (("softmax", "f32.min"), ("log_sum_exp", "-1e30"), ("both", "-1e30"))


@pytest.mark.parametrize(("name", "constant"), CASES)
def test_every_kind_of_plan_gives_what_eager_does(name: str, constant: str):
    case, value = mask_constants.CASES[name], mask_constants.CONSTANTS[constant]
    want = case.wanted(value).numpy()
    assert np.isfinite(want).all()
    arrays = {f"x{n}": x.double().numpy() for n, x in enumerate(case.inputs(value))}
    found = mask_constants.plans(name, value, ("triton", "cuda"))
    for kind, plan in found.items():
        run = run_interpreted if plan.backend == "triton" else run_emulated
        (got,) = run(plan, arrays).values()
        np.testing.assert_allclose(got, want, atol=4e-3, rtol=4e-3, err_msg=kind)
    assert {kind.split()[0] for kind in found} == {"triton", "cuda"}
