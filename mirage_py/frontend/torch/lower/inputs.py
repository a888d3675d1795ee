"""Inputs of a program: the tensors that can be inputs, and their declarations."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from mirage_py.errors import UnsupportedError
from mirage_py.frontend.torch.lower.lowering import Lowering, program_dtype
from mirage_py.frontend.torch.lower.naming import dimension_hints, distinct, identifier
from mirage_py.reasons import Code
from mirage_py.ugraph.building import views
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.building.named_array import flat_index
from mirage_py.ugraph.building.views import NamedArray

# Numbers of a tensor that is written down in the function, as means of three channels are.
_MOST_WRITTEN_DOWN = 16
# The functions of torch that make such tensors, as torch.export names them.
_FRESH = ("tensor", "new_tensor")


def check_input(tensor: torch.Tensor, name: str, where: str) -> None:
    """A program's input is a plain tensor of real numbers, integers or truth values."""

    def refused(what: str, why: str, repair: str, code: Code = Code.OTHER) -> UnsupportedError:
        what = f"input '{name}' {what}"
        return UnsupportedError(what, where=where, why=why, repair=repair, code=code)

    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        raise refused(
            "is not a dense tensor",
            "kernels address memory by strides",
            f"pass {name}.to_dense() or dequantize it",
        )
    if 0 in tensor.shape:
        raise refused(
            f"has shape {list(tensor.shape)}",
            "an empty tensor needs no kernel",
            "give every axis at least one element",
        )
    if tensor.is_complex():
        raise refused(
            "is complex",
            "complex numbers are not supported",
            "pass torch.view_as_real of it, and compute on the two parts",
        )
    if program_dtype(tensor.dtype) is None:
        raise refused(f"is of {tensor.dtype}", *_other_type(tensor.dtype))
    if tensor.requires_grad and torch.is_grad_enabled():
        raise refused(
            "requires grad",
            "a program computes forward only",
            f"trace under torch.no_grad(), or pass {name}.detach()",
            Code.REQUIRES_GRAD,
        )


def _other_type(kind: torch.dtype) -> tuple[str, str]:
    """Why an element type is not supported, and what to do."""
    if kind is torch.float64:
        return "kernels accumulate in float32", "convert it to float32"
    if kind.is_floating_point:
        why = "of floats of a byte kernels read float8_e4m3fn and float8_e5m2"
        return why, "convert it outside the function, as in x.to(torch.float16) * scale"
    return (
        "of integers kernels read int8, int16, int32, int64 and uint8",
        "convert it to one of them, or to float32",
    )


def declare_inputs(
    lowering: Lowering,
    wanted: Mapping[torch.fx.Node, tuple[str, torch.Tensor]],
    arrays: dict[torch.fx.Node, object],
) -> dict[torch.fx.Node, str]:
    """Declare an input for each wanted placeholder: gives their names, and arrays to ``arrays``."""
    names = distinct([identifier(name, "input") for name, _ in wanted.values()])
    named = dict(zip(wanted, names, strict=True))
    for node, (_, tensor) in wanted.items():
        strides = None if tensor.is_contiguous() else tensor.stride()
        kind = program_dtype(tensor.dtype)
        assert kind is not None
        lowering.builder.input(named[node], tensor.shape, kind, strides)
        hints = dimension_hints(node, tensor.dim(), names)
        arrays[node] = views.from_input(lowering.builder, named[node], hints)
    return named


def literal(lowering: Lowering, node: torch.fx.Node, held: torch.Tensor) -> NamedArray:
    """A tensor written down in the function: one number is a constant of the program, and a few
    that are made in each call are choices by position.
    """
    if held.numel() == 1 or _is_made_in_call(node):
        return written_down(lowering, held)
    lowering.node = next(iter(node.users), node)
    raise lowering.refuse(
        f"a constant tensor of shape {list(held.shape)} is not an argument",
        why="it was not found in the closure, the globals or the attributes of the function",
        repair="pass it as an argument",
    )


def computed_literal(lowering: Lowering, node: torch.fx.Node) -> torch.Tensor | None:
    """What torch makes of a few numbers that the function has written down; None of others."""
    known = lowering.literals
    if node in known:
        return known[node]
    value, target = node.meta.get("val"), node.target
    if not isinstance(value, torch.Tensor) or not isinstance(target, torch._ops.OpOverload):  # noqa: SLF001
        return None
    extents = [extent for extent in value.shape if type(extent) is int]
    is_small = len(extents) == value.dim() and 0 < math.prod(extents) <= _MOST_WRITTEN_DOWN
    # Memory that is filled later holds anything.
    is_drawn = torch.Tag.nondeterministic_seeded in target.tags or "empty" in str(target)
    if not is_small or is_drawn:
        return None
    if any(computed_literal(lowering, n) is None for n in node.all_input_nodes):
        return None
    args, kwargs = torch.fx.map_arg((node.args, dict(node.kwargs)), known.__getitem__)
    try:
        with torch.no_grad():
            found = target(*args, **kwargs)
    except (RuntimeError, NotImplementedError):  # on a device that is not there
        return None
    if not isinstance(found, torch.Tensor):
        return None
    known[node] = found
    return found


def written_down(lowering: Lowering, numbers: torch.Tensor) -> NamedArray:
    """One number is a constant of the program, a few are choices by position."""
    if numbers.numel() == 1:
        return lowering.full(numbers.shape, numbers.item())
    return _chosen(lowering, numbers)


def is_table(node: torch.fx.Node, held: torch.Tensor) -> bool:
    """Whether a function has written down more numbers than are chosen one by one."""
    return held.numel() > _MOST_WRITTEN_DOWN and _is_made_in_call(node)


def _is_made_in_call(node: torch.fx.Node) -> bool:
    """Whether each call makes it of numbers: a tensor that is held anywhere may change later."""
    return all(_makes(user) for user in node.users)


def _makes(user: torch.fx.Node) -> bool:
    """Whether it is a function that makes a tensor of numbers, or an index that is a list."""
    maker = str(user.meta.get("torch_fn", ("", ""))[1]).rpartition(".")[2]
    # torch writes the copy as a clone in graphs that it takes apart.
    copies = torch.ops.aten.lift_fresh_copy.default, torch.ops.aten.clone.default
    return maker in _FRESH or (maker == "__getitem__" and user.target in copies)


def _chosen(lowering: Lowering, held: torch.Tensor) -> NamedArray:
    """Of each element its number, chosen by its position."""
    flat = [x.item() for x in held.reshape(-1)]
    axis = (lowering.builder.fresh_dim("i", len(flat)),)
    place = NamedArray(lowering.builder.index(flat_index(lowering.builder, axis)), (axis,))
    found = lowering.array(flat[-1])
    for number, value in reversed(list(enumerate(flat[:-1]))):
        found = lowering.apply("where", lowering.apply("le", place, number), value, found)
    return views.reshape(lowering.builder, found, tuple(held.shape))


def drop_unread(builder: ProgramBuilder, where: str) -> None:
    """Arguments that only gave their shape or type are no inputs of the program."""
    todo = [o.node for o in builder.outputs]
    seen: dict[int, None] = {}
    while todo:
        node = todo.pop()
        if node not in seen:
            seen[node] = None
            todo.extend(builder.nodes[node].args)
    loads = [builder.nodes[n] for n in seen if builder.nodes[n].op == "load"]
    read = [t for n in loads for t in n.access.tensors]
    for name in [name for name in builder.inputs if name not in read]:
        del builder.inputs[name]
    if not builder.inputs:
        raise UnsupportedError(
            "the results do not depend on the values of any input",
            where=where,
            why="a constant needs no kernel",
            repair="compute it once outside",
        )
