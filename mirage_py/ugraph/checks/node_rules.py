"""Rules of single nodes: operands, attribute, indices, dimensions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from keyword import iskeyword
from math import isnan
from unicodedata import normalize

from mirage_py.errors import UnsupportedError, ValidationError
from mirage_py.ugraph.ir.dims import node_dims
from mirage_py.ugraph.ir.dtypes import BF16, F16, F32, F64, DType
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import ACCESSES, REDUCING, Access, Node
from mirage_py.ugraph.ir.program import Tensor
from mirage_py.ugraph.operators import EFFECT, Operator, operator

# What ``store_add`` can add to.
_ADDED_TYPES = (F64, F32, F16, BF16)


# File systems take 255 bytes; kernels add an ending, and messages repeat names.
MAX_NAME_BYTES = 200


def check_name(what: str, name: str, where: str) -> None:
    """Names go into file names and generated code: they must be identifiers.

    Python reads identifiers in the form NFKC, in which two different names may be one.
    """
    fits = name.isascii() or normalize("NFKC", name) == name
    if not (name.isidentifier() and fits) or iskeyword(name) or _is_long(name):
        raise ValidationError(
            f"{name[:MAX_NAME_BYTES]!r} cannot be the name of a {what}",
            where=where,
            repair=f"use letters, digits and underscores, at most {MAX_NAME_BYTES} of them, and no "
            "Python keyword",
        )


def check_title(name: str) -> None:
    """A program is named after a file or function: any one line of text that can be printed."""
    if not name.isprintable() or _is_long(name):
        raise ValidationError(
            f"{name[:MAX_NAME_BYTES]!r} cannot be the name of a program",
            where="program",
            why="the name stands in comments of generated code",
            repair=f"use at most {MAX_NAME_BYTES} characters that can be printed",
        )


def _is_long(name: str) -> bool:
    return len(name.encode(errors="replace")) > MAX_NAME_BYTES


def check_node(
    nodes: Sequence[Node],
    position: int,
    sizes: Mapping[str, int],
    readable: Mapping[str, Tensor],
    where: str,
) -> None:
    """ValidationError unless the node keeps the rules that need no section; stores write to
    ``readable`` too, so the caller passes the tensors that are legal for the node.
    """
    node = nodes[position]
    where = f"{where}, %{position} = {node.op}"
    try:
        row = operator(node.op)
    except UnsupportedError as error:
        raise ValidationError(error.what, where=where, repair=error.repair) from None
    _check_operands(node, row, position, where)
    _check_attribute(node, sizes, where)
    if node.op == "read":
        shape = tuple(sizes[d] for d in nodes[node.args[0]].dims)
        check_access(node.access.index, Tensor(f"%{node.args[0]}", shape, F32), sizes, where)
    elif isinstance(node.attr, Access):
        name = node.attr.tensor
        if name not in readable:
            verb = "written" if row.kind == EFFECT else "read"
            raise ValidationError(
                f"tensor '{name}' cannot be {verb} here",
                where=where,
                why="it does not exist, is an input, or no earlier kernel writes it",
                repair=f"use one of {', '.join(readable) or 'none'}",
            )
        _check_look_ups(node, readable, where)
        check_access(node.attr.index, readable[name], sizes, where, readable)
        if node.op == "store_add" and readable[name].dtype not in _ADDED_TYPES:
            raise ValidationError(
                f"it adds to '{name}', which holds {readable[name].dtype}",
                where=where,
                why="GPUs add atomically to floating-point numbers of 16 bits or more",
                repair=f"make it one of {', '.join(map(str, _ADDED_TYPES))}",
            )
    operands = [nodes[a].dims for a in node.args]
    _check_reduced(node, operands, where)
    expected = node_dims(node, operands, sizes)
    if node.dims != expected:
        raise ValidationError(
            f"its dimensions are [{', '.join(node.dims)}]",
            where=where,
            repair=f"by the rule of '{node.op}' they are [{', '.join(expected)}], in this order",
        )


def _check_look_ups(node: Node, readable: Mapping[str, Tensor], where: str) -> None:
    for name in node.access.tensors[1:]:
        tensor = readable.get(name)
        if node.op != "load" or tensor is None or tensor.dtype.is_float:
            raise ValidationError(
                f"'{name}' gives a position",
                where=where,
                repair="look up in loads only, at elements of a tensor of integers",
            )


def check_access(
    index: Sequence[IndexExpr],
    tensor: Tensor,
    sizes: Mapping[str, int],
    where: str,
    readable: Mapping[str, Tensor] | None = None,
) -> None:
    """ValidationError unless there is one index per axis and none can leave its axis; positions
    that are data come from ``readable`` tensors.
    """
    if len(index) != len(tensor.shape):
        raise ValidationError(
            f"{len(index)} indices into {tensor.name}, which has {len(tensor.shape)} axes",
            where=where,
        )
    for axis, (expr, extent) in enumerate(zip(index, tensor.shape, strict=True)):
        _check_expression(expr, sizes, where, readable or {})
        low, high = expr.bounds(sizes)
        if low < 0 or high >= extent:
            raise ValidationError(
                f"index '{expr}' runs from {low} to {high}, "
                f"outside axis {axis} of {tensor.name} (extent {extent})",
                where=where,
                repair="shift the index, or take it modulo the extent",
            )


def _check_operands(node: Node, row: Operator, position: int, where: str) -> None:
    count = len(node.args)
    if count != row.arity and not (row.arity < 0 and count >= 1):
        takes = "at least 1" if row.arity < 0 else str(row.arity)
        raise ValidationError(f"{count} operands", where=where, repair=f"'{node.op}' takes {takes}")
    for a in node.args:
        if not 0 <= a < position:
            raise ValidationError(
                f"operand %{a} does not come before it",
                where=where,
                repair="order the nodes so that operands come first",
            )


def _check_attribute(node: Node, sizes: Mapping[str, int], where: str) -> None:
    fault = _attribute_fault(node, sizes)
    if fault:
        raise ValidationError(
            f"its attribute is {node.attr!r}", where=where, repair=f"it must be {fault}"
        )
    if isinstance(node.attr, IndexExpr):
        _check_expression(node.attr, sizes, where)
    if isinstance(node.attr, Predicate):
        _check_predicate(node.attr, sizes, where)


def _attribute_fault(node: Node, sizes: Mapping[str, int]) -> str | None:
    """What the attribute must be, if it is not."""
    op, attr = node.op, node.attr
    if op in ACCESSES:
        return None if isinstance(attr, Access) else "an Access"
    if op == "const":
        return None if isinstance(attr, float) and not isnan(attr) else "a float other than NaN"
    if op == "size":
        return None if isinstance(attr, str) and attr in sizes else "the name of a dimension"
    if op == "index":
        return None if isinstance(attr, IndexExpr) else "an IndexExpr"
    if op == "mask":
        return None if isinstance(attr, Predicate) else "a Predicate"
    if op == "cast":
        return None if isinstance(attr, DType) else "a DType"
    if op in REDUCING:
        known = isinstance(attr, tuple) and attr and all(d in sizes for d in attr)
        wanted = "a tuple of distinct dimensions, at least one"
        return None if known and len(dict.fromkeys(node.reduced)) == len(node.reduced) else wanted
    if op == "accum_max":
        return None if attr in (None, "shift") else "None or 'shift'"
    if op == "accum_rescaled":
        whole = isinstance(attr, tuple) and all(isinstance(d, int) for d in attr)
        wanted = "a tuple of integers, one for each operand after the first"
        return None if whole and len(node.degrees) == len(node.args) - 1 > 0 else wanted
    return None if attr is None else "None"


def _check_reduced(node: Node, operands: Sequence[Iterable[str]], where: str) -> None:
    if node.op not in REDUCING:
        return
    for number, dims in enumerate(operands):
        absent = [d for d in node.reduced if d not in dims]
        if absent:
            raise ValidationError(
                f"operand %{node.args[number]} does not depend on {', '.join(absent)}",
                where=where,
                why="a reduction needs its dimensions in every operand",
                repair="multiply by the extent instead of summing copies; mul, then sum, instead "
                "of a matmul with a lone operand",
            )


_EXPRESSION_ARITY = {"dim": 0, "const": 0, "add": 2, "mul": 1, "floordiv": 1, "mod": 1}


def _check_expression(
    expr: IndexExpr,
    sizes: Mapping[str, int],
    where: str,
    readable: Mapping[str, Tensor] | None = None,
) -> None:
    fault = ""
    if expr.op == "data":
        tensor = (readable or {}).get(expr.name)
        if tensor is None:
            fault = f"an element of '{expr.name}', which is none here"
        else:
            check_access(expr.args, tensor, sizes, where, readable)
    elif _EXPRESSION_ARITY.get(expr.op) != len(expr.args):
        fault = f"'{expr.op}' with {len(expr.args)} parts"
    elif expr.op == "dim" and expr.name not in sizes:
        fault = f"dimension '{expr.name}', which the program does not have"
    elif expr.op in ("floordiv", "mod") and expr.value < 1:
        fault = f"a division by {expr.value}"
    if fault:
        raise ValidationError(
            f"an index expression has {fault}",
            where=where,
            repair="build it with mirage_py.ugraph.ir.index over the program's dimensions",
        )
    for part in expr.args:
        _check_expression(part, sizes, where, readable)


_PREDICATE_ARITY = {"and": 2, "or": 2, "not": 1}
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


def _check_predicate(predicate: Predicate, sizes: Mapping[str, int], where: str) -> None:
    compares = predicate.op in _COMPARISONS and len(predicate.exprs) == 2 and not predicate.args
    joins = _PREDICATE_ARITY.get(predicate.op) == len(predicate.args) and not predicate.exprs
    if not (compares or joins):
        raise ValidationError(
            f"an ill-formed condition '{predicate.op}'",
            where=where,
            repair="compare two index expressions, or join conditions with and, or, not",
        )
    for expr in predicate.exprs:
        _check_expression(expr, sizes, where)
    for part in predicate.args:
        _check_predicate(part, sizes, where)
