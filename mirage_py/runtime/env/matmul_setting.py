"""torch's setting for matmuls of float32 on a GPU, as a context."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mirage_py.settings import torch_fp32_precision
from mirage_py.ugraph.ir.dtypes import Fp32Precision
from mirage_py.ugraph.ir.program import Program


@contextmanager
def matmuls_as_in(program: Program) -> Iterator[None]:
    """Whatever torch multiplies meanwhile, in eager mode, compiled or by a library, is as exact as
    the program asks; for a program without matmuls of float32 the setting stays.
    """
    before = torch_fp32_precision()
    if not program.has_fp32_matmul or before == program.fp32_precision:
        yield
        return
    import torch

    # This property changes what both of torch's interfaces say.
    matmul = torch.backends.cuda.matmul
    matmul.allow_tf32 = program.fp32_precision is Fp32Precision.TF32
    try:
        yield
    finally:
        matmul.allow_tf32 = before == Fp32Precision.TF32
