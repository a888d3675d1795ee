"""Evaluation of µGraphs as on a device: kernel by kernel, and each kernel tile by tile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from mirage_py.errors import ValidationError
from mirage_py.ugraph.interpret.block import BlockRun
from mirage_py.ugraph.interpret.buffers import Buffer
from mirage_py.ugraph.interpret.library import call_library
from mirage_py.ugraph.interpret.meaning import Meaning
from mirage_py.ugraph.interpret.program import check_inputs
from mirage_py.ugraph.ir.ugraph import LibraryCall, UGraph

A = TypeVar("A")


def evaluate_ugraph(ugraph: UGraph, inputs: Mapping[str, A], meaning: Meaning[A]) -> dict[str, A]:
    """The outputs by name, each in the layout of its tensor.

    Costs a Python call per node, iteration and block: meant for reduced sizes. Raises InputError
    for inputs that do not fit, ValidationError where an element is read that was never written,
    is written twice with different values, or a value is used where it does not live.
    """
    check_inputs(ugraph.program, inputs, meaning)
    tensors: dict[str, A] = {t.name: inputs[t.name] for t in ugraph.program.inputs}
    outputs = [o.tensor for o in ugraph.program.outputs]
    buffers = {t.name: meaning.buffer(t.shape) for t in (*outputs, *ugraph.intermediates)}
    for kernel in ugraph.in_blocks.kernels:
        if isinstance(kernel, LibraryCall):
            for name in kernel.args:
                _take(name, tensors, buffers, f"library call {kernel.name}")
            result = call_library(kernel, tensors, meaning)
            buffers[kernel.result].write((slice(None),) * len(meaning.shape(result)), result)
            continue
        for _, load in kernel.loads():
            for name in load.access.tensors:
                _take(name, tensors, buffers, f"kernel {kernel.name}")
        BlockRun(kernel, ugraph.program.sizes, tensors, buffers, meaning).run()
    for tensor in outputs:
        _take(tensor.name, tensors, buffers, f"output of {ugraph.program.name}")
    return {t.name: tensors[t.name] for t in outputs}


def _take(name: str, tensors: dict[str, A], buffers: Mapping[str, Buffer[A]], where: str) -> None:
    """Make a tensor readable that kernels have written, if they wrote all of it."""
    if name in tensors:
        return
    missing = buffers[name].missing()
    if missing:
        raise ValidationError(
            f"{missing} elements of '{name}' are not written before it is read",
            where=where,
            repair="let the stores of earlier kernels cover the whole tensor",
        )
    tensors[name] = buffers[name].read()
