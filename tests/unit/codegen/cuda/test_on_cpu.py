"""What threads do together, in the CPU stand-in, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from collective_kernels import COLLECTIVES, inputs_of

from mirage_py.runtime.cpu.cpu_build import cpp_compiler
from mirage_py.runtime.cpu.cuda_emulation import run_kernels

pytestmark = pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")


@pytest.mark.parametrize("case", COLLECTIVES, ids=lambda c: c.kernel.name)
def test_threads_together(case):
    arrays = inputs_of(case)
    got = run_kernels(case.program, (case.kernel,), arrays)
    np.testing.assert_array_equal(got["Y"], case.expected(arrays))
