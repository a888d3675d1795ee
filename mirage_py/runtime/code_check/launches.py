"""The launch of an emitted kernel as the checker sees it: its parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mirage_py.codegen.cuda.writer.cuda_kernel import CudaKernel, TensorMap
from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.codegen.triton.module import TritonKernel
from mirage_py.runtime.code_check.events import Launch, Map, Tensor
from mirage_py.runtime.code_check.ptx.ptx import Entry
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.program import Tensor as ProgramTensor
from mirage_py.ugraph.ir.ugraph import BlockGraph


def launch_of(kernel: CudaKernel, entry: Entry, program: Program, block: BlockGraph) -> Launch:
    """The launch of the kernel that was emitted for ``block`` of a plan for ``program``."""
    names = entry.parameters
    by_name = {t.name: t for t in kernel.pointers}
    constants = kernel.options.constants
    tensors = {
        name: _tensor(tensor, block, tensor.name in constants)
        for name, tensor in zip(names, kernel.pointers, strict=False)
    }
    maps = {
        name: Map(what.tensor, what.shape, _copied(what), by_name[what.tensor].dtype.bytes)
        for name, what in zip(names[len(kernel.pointers) :], kernel.tensor_maps, strict=True)
    }
    return Launch(
        kernel.grid,
        kernel.threads,
        max(1, kernel.cluster),
        kernel.smem_bytes,
        tensors,
        maps,
        kernel.uses_pdl,
        _pads(Tiling(program, block)),
    )


def triton_launch_of(
    kernel: TritonKernel, entry: Entry, program: Program, block: BlockGraph, metadata: Any
) -> Launch:
    """``launch_of`` what Triton compiled, with the metadata of that. A tensor descriptor becomes a
    tensor map, then its shape and strides as parameters of their own.
    """
    # In a chain the kernel in front may write any tensor.
    inputs = {t.name for t in program.inputs if not kernel.order.is_chained}
    descriptors: list[Mapping[str, Sequence[int]]] = list(metadata.tensordesc_meta or ())
    tensors, maps, at = {}, {}, 0
    for tensor in kernel.pointers:
        name = entry.parameters[at]
        if tensor.name in kernel.text.tiles:
            box = tuple(reversed(descriptors.pop(0)["block_size"]))
            early = tensor.name in inputs
            shape = tuple(reversed(tensor.shape))
            maps[name] = Map(tensor.name, shape, box, tensor.dtype.bytes, early)
            at += 1 + 2 * len(tensor.shape)
        else:
            tensors[name] = _tensor(tensor, block, tensor.name in inputs)
            at += 1
    return Launch(
        kernel.text.grid,
        32 * metadata.num_warps,
        1,
        metadata.shared,
        tensors,
        maps,
        kernel.order.uses_pdl,
        _pads(Tiling(program, block)),
        by_triton=True,
    )


def _copied(what: TensorMap) -> tuple[int, ...]:
    """The elements of a copy along each axis; pixels of windows along that of the fastest places,
    where the first of them is in any case.
    """
    steps = what.steps or (1,) * len(what.box)
    box = tuple(-(-n // step) for n, step in zip(what.box, steps, strict=True))
    return (*box, *(1 for _ in what.shape[len(box) :]))


def _tensor(tensor: ProgramTensor, block: BlockGraph, early: bool = False) -> Tensor:
    outputs = {node.access.tensor for _, node in block.stores()}
    return Tensor(
        tensor.name,
        _elements(tensor) * tensor.dtype.bytes,
        tensor.dtype.bytes,
        tensor.name in outputs,
        tensor.name in block.added_tensors,
        early,
    )


def _pads(tiling: Tiling) -> bool:
    """Whether tiles have places past the end of a dimension: what lies there may never be written,
    and nobody uses it.
    """
    block = tiling.block
    for node, section in zip(block.nodes, block.section_of, strict=True):
        if any(tiling.has_tail(dim, section) for dim in node.dims):
            return True
    return False


def _elements(tensor: ProgramTensor) -> int:
    """Elements from the first to the last in memory, gaps of strides among them."""
    if tensor.strides is None:
        return int(np.prod(tensor.shape, dtype=np.int64))
    return 1 + sum(
        (int(n) - 1) * int(s) for n, s in zip(tensor.shape, tensor.element_strides, strict=True)
    )
