"""A program as mathematics and as PyTorch."""

from __future__ import annotations

from mirage_py.errors import MirageError
from mirage_py.formatting.formulas import statements
from mirage_py.runtime.eager.eager_source import eager_source
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph


def mathematics(program: Program) -> str:
    """Sizes, tensors and one formula for each named value, in the notation of math specs."""
    whole = BlockGraph.whole(program.name, program.nodes, program.outputs, program.dim_names)
    lines = [", ".join(f"{d.name} = {d.size}" for d in program.dims)]
    lines += [str(t) for t in program.inputs]
    lines += [f"{o.tensor}  (output)" for o in program.outputs]
    return "\n".join([*lines, "", *(s.text for s in statements(whole, program))])


def pytorch(program: Program) -> str:
    """A PyTorch function that computes the same; a sentence where there is none."""
    try:
        return eager_source(program)
    except MirageError as error:
        return f"# not available in PyTorch: {error.what}"
