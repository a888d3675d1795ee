"""Library calls of PyTorch: a program as one, and the program that one computes."""

from __future__ import annotations

from mirage_py.ugraph.ir.node import STORES, Access
from mirage_py.ugraph.ir.program import Output, Program
from mirage_py.ugraph.ir.ugraph import ATEN, BlockGraph, LibraryCall, UGraph


def torch_call(program: Program, by: str = ATEN) -> LibraryCall:
    """A program as one call; ``by`` is one of ``TORCH``."""
    body = BlockGraph.whole(program.name, program.nodes, program.outputs, program.dim_names)
    return LibraryCall(program.name, by, body.read_tensors, body.written_tensors[0], body=body)


def called_program(call: LibraryCall, ugraph: UGraph) -> Program:
    """The program that a call of a µGraph computes: its inputs and outputs are its arguments and
    results, in their order.
    """
    assert call.body is not None
    nodes = call.body.nodes
    stores = [n for n in nodes if n.op in STORES]
    outputs = tuple(
        Output(ugraph.tensors[n.access.tensor], n.args[0], n.access.index) for n in stores
    )
    used = {d for n in nodes for d in n.dims} | {d for o in outputs for d in o.dims}
    used |= {str(n.attr) for n in nodes if n.op == "size"}
    used |= {d for n in nodes if isinstance(n.attr, Access) for d in n.access.dims()}
    reduced = {d for n in nodes if n.op in ("sum", "max", "matmul") for d in n.reduced}
    dims = tuple(d for d in ugraph.program.dims if d.name in used | reduced)
    return Program(
        call.name,
        dims,
        tuple(ugraph.tensors[name] for name in call.args),
        tuple(n for n in nodes if n.op not in STORES),
        outputs,
        ugraph.program.fp32_precision,
    )
