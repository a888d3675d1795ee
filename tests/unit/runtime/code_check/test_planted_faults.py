"""The checker of emitted code on kernels that nvcc compiled, and on faults of each kind in them.

``python -m benchmarks.checks.code_faults`` plants many more, into many more kernels.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from code_launches import NAMES, checked, launch_for, text_of
from cuda_plans import cuda_plan, kernel_of

from benchmarks.checks.planted_code import KINDS, OF_NVCC, Planted, planted
from mirage_py.errors import CompileError
from mirage_py.runtime.code_check.check import check_kernel
from mirage_py.runtime.compile.cuda_compiler import cuda_compiler
from mirage_py.ugraph.ir.ugraph import BlockGraph

# Lines of which a fault of this kind makes no other kernel, and why.
_NO_FAULT = {
    # Nobody waits for that barrier: there are as many stages as iterations.
    ("attention_with_producer", "arrival left out"): (422,),
    ("attention_with_producer", "arrivals: one more"): (102,),
    # The guard holds for all threads there are.
    ("ntrans_in_clusters", "mask dropped"): (62,),
    # What the groups hold is waited for together.
    ("lora_by_threads", "copy commit left out"): (112,),
    ("gated_mlp_in_clusters", "wgmma commit left out"): (278,),
    ("gated_mlp_in_clusters", "arrival left out"): (339,),
    # What is copied is fenced once more before tensor cores read it.
    ("lora_by_threads", "proxy fence left out"): (257,),
}


def test_the_kernels_themselves_are_clean():
    for name in NAMES:
        found = checked(text_of(name), launch_for(name))
        assert found.clean, str(found)
        assert found.events > 100
        assert found.classes <= 2


def _first(kind: str) -> tuple[str, Planted]:
    """The first fault of the kind, in the kernel with the fewest lines that it fits."""
    for name in sorted(NAMES, key=lambda n: len(text_of(n))):
        excepted = _NO_FAULT.get((name, kind), ())
        for fault in planted(text_of(name), {kind: OF_NVCC[kind]}):
            if fault.line not in excepted:
                return name, fault
    pytest.fail(f"'{kind}' fits none of {NAMES}")


@pytest.mark.parametrize("kind", KINDS)
def test_a_planted_fault_is_found(kind: str) -> None:
    name, fault = _first(kind)
    found = checked(fault.text, launch_for(name))
    assert found.faults, f"{fault.name} of {name} was not found: {found}"


def test_what_makes_no_other_kernel_stays_clean():
    for (name, kind), lines in _NO_FAULT.items():
        if name == "ntrans_in_clusters":
            for fault in planted(text_of(name), {kind: OF_NVCC[kind]}):
                if fault.line in lines:
                    assert checked(fault.text, launch_for(name)).clean


SPEC = "X[8, 1024] : f16\nY[b, d] = X[b, d] / sum[d](X[b, d] * X[b, d])"
KERNEL = """
kernel scaled {
  grid b by 1
  %0 = load X[b, d]
  %1 = square %0
  %2 = sum[d] %1
  %3 = div %0, %2
  store Y[b, d] = %3
}
"""


def test_an_emitted_kernel_is_compiled_and_checked() -> None:
    try:
        cuda_compiler()
    except CompileError as error:
        pytest.skip(str(error))
    plan = cuda_plan(SPEC, KERNEL)
    block = plan.ugraph.kernels[0]
    assert isinstance(block, BlockGraph)
    kernel = kernel_of(plan)
    found = check_kernel(kernel, plan.ugraph.program, block)
    assert found.clean, str(found)
    assert found.blocks == 8
    wrong = replace(kernel, source=kernel.source.replace("__syncthreads();", "", 1))
    assert wrong.source != kernel.source
    assert check_kernel(wrong, plan.ugraph.program, block).faults
