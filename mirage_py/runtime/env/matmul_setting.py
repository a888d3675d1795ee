"""torch's settings for matmuls and convolutions of float32 on a GPU, as a context."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mirage_py.settings import torch_rounds
from mirage_py.ugraph.ir.program import Program


@contextmanager
def matmuls_as_in(program: Program) -> Iterator[None]:
    """Whatever torch multiplies meanwhile, in eager mode, compiled or by a library, is as exact as
    the program asks; for a program without matmuls of float32 the setting stays.
    """
    before, asked = torch_rounds(), program.fp32_precision
    wanted = asked.rounds_matmuls, asked.rounds_convolutions
    if not program.has_fp32_matmul or before == wanted:
        yield
        return
    import torch

    # This property changes what both of torch's interfaces say.
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    matmul.allow_tf32, cudnn.allow_tf32 = wanted
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before
