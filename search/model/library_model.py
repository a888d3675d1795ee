"""Cost of kernels that are not generated: library calls, and clearing a tensor to add into."""

from __future__ import annotations

from collections.abc import Collection
from math import prod

from mirage_py.search.model.cost_model import Estimate
from mirage_py.search.model.footprint import Footprint
from mirage_py.search.model.matmul_rates import library_rate
from mirage_py.search.model.model_constants import ModelConstants, constants_of
from mirage_py.targets import Target
from mirage_py.ugraph.ir.dtypes import F32, Fp32Precision
from mirage_py.ugraph.ir.program import Tensor
from mirage_py.ugraph.ir.ugraph import LibraryCall, UGraph

# Tiles of the result that one block makes; fewer tiles than SMs leave SMs idle, up to what a split
# sum regains.
_TILE = 128
_MAX_SPLIT = 8

# Of the rate of CUDA cores, what depthwise convolutions reach, with channels last or otherwise:
# 3 by 3 and 7 by 7 on an H200, halves and float32 alike.
_DEPTHWISE = {True: 1 / 6, False: 1 / 30}


def library_estimate(
    call: LibraryCall,
    ugraph: UGraph,
    target: Target,
    in_cache: Collection[str] = (),
    constants: ModelConstants | None = None,
) -> Estimate:
    """The roofline of a library call at the efficiency that such libraries reach."""
    known = constants or constants_of(target)
    args = [ugraph.tensors[name] for name in call.args]
    result = ugraph.tensors[call.result]
    results = [ugraph.tensors[name] for name in call.written_tensors]
    moved = sum(t.bytes for t in (*args, *results) if t.name not in in_cache)
    memory_us = moved / target.dram_bytes_per_us / known.library_memory
    cache_us = sum(t.bytes for t in (*args, *results)) / target.l2_bytes_per_us
    compute_us = _compute_us(call, args, result, ugraph.program.fp32_precision, target, known)
    bound = "memory" if max(memory_us, cache_us) >= compute_us else "tensor cores"
    time_us = max(memory_us, cache_us, compute_us) + target.launch_us + known.library_us
    return Estimate(time_us, Footprint(0, 0), 0, 0, bound)


def clearing_us(tensor: Tensor, target: Target, in_cache: Collection[str] = ()) -> float:
    """Setting a tensor to zero: a launch of its own before the kernel that adds to it."""
    rate = target.l2_bytes_per_us if tensor.name in in_cache else target.dram_bytes_per_us
    return tensor.bytes / rate + target.launch_us


def matmul_flops(args: list[Tensor], result: Tensor) -> float:
    """Of a batched matmul of row-major tensors."""
    return 2.0 * result.elements * args[0].shape[-1]


def _compute_us(
    call: LibraryCall,
    args: list[Tensor],
    result: Tensor,
    held_to: Fp32Precision,
    target: Target,
    constants: ModelConstants,
) -> float:
    is_half = all(t.dtype.is_half for t in args)
    dtype, rounds = args[0].dtype if is_half else F32, held_to.rounds_matmuls
    if call.convolution is not None:
        flops = call.convolution.flops(*(t.shape for t in args))
        rounds = held_to.rounds_convolutions
        if "c" not in "".join(call.convolution.axes[0]):  # of one channel: no tensor cores
            axes = zip(call.convolution.axes[0], args[0].element_strides, strict=True)
            is_last = any(step == 1 and "g" in parts for parts, step in axes)
            return flops / (target.vector_flops_per_us * _DEPTHWISE[is_last])
        return flops / library_rate(target, dtype, constants, rounds=rounds)
    if call.op != "matmul":
        return result.elements / target.vector_flops_per_us
    flops = matmul_flops(args, result)
    rate = library_rate(target, dtype, constants, rounds=rounds)
    if not is_half and not rounds:
        return flops / rate
    *batch, rows, columns = result.shape
    tiles = prod(batch) * -(-rows // _TILE) * -(-columns // _TILE)
    used = min(1.0, _MAX_SPLIT * tiles / target.sms)
    return flops / rate / used
