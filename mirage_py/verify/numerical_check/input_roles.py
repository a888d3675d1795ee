"""Roles of inputs: data, weights, gains, arguments of roots, terms added to logits."""

from __future__ import annotations

from math import prod

from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.rewrite.degrees import shiftable_exps

# Of a negative number they have no value; and what hands a sign on to its result.
_ROOTS = ("sqrt", "rsqrt")
_KEEP_SIGNS = ("add", "div", "sum", "cast")


def data_inputs(program: Program) -> list[Tensor]:
    """The inputs with rows of their own that are no second operand of a matmul; where there are
    none, the first matrix, or all.
    """
    floats = [t for t in program.inputs if t.dtype.is_float]
    matrices = [t for t in floats if len(t.shape) > 1]
    weights = contracted_terms(program)
    return [t for t in matrices if t.name not in weights] or matrices[:1] or floats


def under_roots(program: Program) -> set[str]:
    """The inputs under a root, directly or through sums: a region of a model may begin after the
    squares of a norm.
    """
    todo = [a for node in program.nodes if node.op in _ROOTS for a in node.args]
    found: set[str] = set()
    while todo:
        node = program.nodes[todo.pop()]
        if node.op == "load":
            found.add(node.access.tensor)
        # A product may be a square.
        is_scaled = node.op == "mul" and any(program.nodes[a].op == "const" for a in node.args)
        if node.op in _KEEP_SIGNS or is_scaled:
            todo.extend(node.args)
    return found


def contracted_terms(program: Program) -> dict[str, int]:
    """For inputs that are second operands of matmuls, the number of terms that these sum.

    A matmul of one row is a sum of products, of which the matrix is the operand with more
    dimensions.
    """
    terms: dict[str, int] = {}
    for node in program.nodes:
        matrix = node.args[1] if node.op == "matmul" else _matrix_of_row(program, node)
        if matrix is not None:
            count = prod(program.sizes[d] for d in node.reduced)
            for tensor in inputs_below(program, matrix):
                terms[tensor] = max(terms.get(tensor, 1), count)
    return terms


def inputs_below(program: Program, position: int) -> list[str]:
    """The input that a node is, seen through casts and products with scalars."""
    node = program.nodes[position]
    if node.op == "load":
        return [node.access.tensor]
    if node.op in ("cast", "mul", "div", "neg"):
        wide = [a for a in node.args if program.nodes[a].dims]
        return inputs_below(program, wide[0]) if len(wide) == 1 else []
    return []


def additive_masks(program: Program) -> list[str]:
    """The inputs that are added to logits along a dimension that the exponentials are summed over:
    they may be masks, or biases.
    """
    groups, _ = shiftable_exps(program.nodes, [o.node for o in program.outputs])
    found: dict[str, None] = {}
    for group in groups:
        for exp in group.nodes:
            for node in _terms(program, program.nodes[exp].args[0]):
                if node.op == "load" and any(d in node.dims for d in group.reduced):
                    found[node.access.tensor] = None
    floats = {t.name for t in program.inputs if t.dtype.is_float}
    return [name for name in found if name in floats]


def subtractions(program: Program) -> list[tuple[str, str]]:
    """The pairs of inputs that are subtracted from each other as they are."""
    found: dict[tuple[str, str], None] = {}
    for node in program.nodes:
        if node.op == "sub":
            one, other = (inputs_below(program, a) for a in node.args)
            if one and other and one != other:
                found[one[0], other[0]] = None
    return list(found)


def _terms(program: Program, position: int) -> list[Node]:
    """What a sum adds, if it is one: all terms, seen through casts and what is subtracted."""
    node = program.nodes[position]
    if node.op == "add":
        terms = [_uncast(program, a) for a in node.args]
        return [x for a in terms for x in [program.nodes[a], *_terms(program, a)]]
    if node.op in ("sub", "cast"):
        return _terms(program, node.args[0])
    return []


def _uncast(program: Program, position: int) -> int:
    node = program.nodes[position]
    return _uncast(program, node.args[0]) if node.op == "cast" else position


def _matrix_of_row(program: Program, node: Node) -> int | None:
    product = program.nodes[node.args[0]] if node.op == "sum" else node
    if node.op != "sum" or product.op != "mul":
        return None
    one, other = product.args
    more, less = sorted((one, other), key=lambda n: -len(program.nodes[n].dims))
    both = set(node.reduced) <= set(program.nodes[less].dims)
    wider = len(program.nodes[more].dims) > len(program.nodes[less].dims)
    return more if both and wider else None
