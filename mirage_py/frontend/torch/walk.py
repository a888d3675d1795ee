"""The walk over an ATen graph: the handler of each operator builds its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from mirage_py.errors import InputError, UnsupportedError
from mirage_py.frontend.torch.capture.recurrences import RECURRENT
from mirage_py.frontend.torch.handlers import HANDLERS
from mirage_py.frontend.torch.handlers.contractions import sums
from mirage_py.frontend.torch.held_integers import check_held, note_literal
from mirage_py.frontend.torch.lower import selections
from mirage_py.frontend.torch.lower.complex_arrays import holds_complex, on_complex
from mirage_py.frontend.torch.lower.inputs import computed_literal, written_down
from mirage_py.frontend.torch.lower.lowering import Lowering
from mirage_py.frontend.torch.lower.refusals import base_name, refusal
from mirage_py.reasons import Code
from mirage_py.ugraph.building.views import NamedArray

# Arguments of ATen operators that say where and how a tensor lies, which a program leaves open.
_LAYOUT = ("device", "layout", "pin_memory", "memory_format", "non_blocking")


def lower(
    lowering: Lowering,
    graph: torch.fx.Graph,
    arrays: dict[torch.fx.Node, Any],
    wanted: Sequence[torch.fx.Node] | None = None,
) -> None:
    """Build the nodes of every operator, or of those that ``wanted`` ones need; ``arrays`` holds
    the inputs and gets the rest.
    """
    needed = dict.fromkeys(graph.nodes) if wanted is None else _needed(wanted)
    computed = [n for n in graph.nodes if n.op not in ("placeholder", "output") and n in needed]
    # A graph with a layer that is too long is as it was traced: nothing else is what is wrong.
    too_long = next((n for n in computed if base_name(str(n.target)) in RECURRENT), None)
    if too_long is not None:
        raise _unknown(lowering, too_long)

    def held(node: torch.fx.Node) -> Any:
        found = arrays[node]
        is_array = isinstance(found, NamedArray)
        return lowering.in_groups.get(found, found) if is_array else found

    for node in computed:
        lowering.node = node
        if selections.is_size(node):
            arrays[node] = selections.size_of(lowering, node)
            continue
        args = torch.fx.map_arg(node.args, held)
        kwargs = {
            key: torch.fx.map_arg(value, held)
            for key, value in node.kwargs.items()
            if key not in _LAYOUT
        }
        arrays[node] = _lowered(lowering, node, args, kwargs)
        if any(user.op == "output" for user in node.users):
            selections.check_result(lowering, node)
    lowering.node = None


def _needed(wanted: Sequence[torch.fx.Node]) -> dict[torch.fx.Node, None]:
    found: dict[torch.fx.Node, None] = {}
    todo = list(wanted)
    while todo:
        node = todo.pop()
        if node not in found:
            found[node] = None
            todo += node.all_input_nodes
    return found


def _unknown(lowering: Lowering, node: torch.fx.Node) -> UnsupportedError:
    lowering.node = node
    reason = refusal(str(node.target))
    what = f"torch operator {node.target} is not supported"
    return lowering.refuse(what, why=reason.why, repair=reason.repair)


def _lowered(lowering: Lowering, node: torch.fx.Node, args: Any, kwargs: dict[str, Any]) -> Any:
    operator = str(node.target)
    if operator == "<built-in function getitem>":
        return _part(lowering, node, args[0], args[1])
    row = HANDLERS.get(operator)
    if row is None and (value := computed_literal(lowering, node)) is not None:
        note_literal(lowering, node, value)
        return written_down(lowering, value)
    if row is None:
        raise _unknown(lowering, node)
    _check_extents(lowering, node)
    if selections.is_about(node):
        selected = selections.lowered_selection(
            lowering, node, row.handler, row.family, args, kwargs
        )
        check_held(lowering, selected, args)
        return selected
    if row.family in ("contractions", "convolutions"):
        _check_kinds(lowering, node)
    try:
        if holds_complex(args, kwargs):
            made = on_complex(lowering, operator, row.family, row.handler, args, kwargs)
        else:
            made = row.handler(lowering, *args, **kwargs)
    except InputError as error:
        raise lowering.refuse(
            f"torch operator {operator}: {error.what}", why=error.why, repair=error.repair
        ) from error
    if isinstance(made, NamedArray):
        lowering.check_byte_floats(made)
    check_held(lowering, made, args)
    return made


def _part(lowering: Lowering, node: torch.fx.Node, whole: Sequence[Any], number: int) -> Any:
    if whole[number] is None and node.users:
        raise lowering.refuse(
            "the position of a maximum or minimum is not supported",
            why="programs compute values",
            repair="use amax or amin, and leave the position to torch",
        )
    return whole[number]


def _check_kinds(lowering: Lowering, node: torch.fx.Node) -> None:
    """Tensors without data multiply whatever their types are; others do not."""
    read = node.all_input_nodes
    if str(node.target) == "aten.einsum.default" and not sums(str(node.args[0])):
        return  # a product element by element, of any types
    if str(node.target) == "aten._scaled_mm.default":
        read = read[:2]  # scales and a bias are of other types
    kinds = [n.meta["val"].dtype for n in read]
    if len(dict.fromkeys(kinds)) > 1:
        raise lowering.refuse(
            f"torch operator {node.target} of {' and '.join(map(str, dict.fromkeys(kinds)))}",
            why="torch multiplies matrices of one type",
            repair="convert one of them with .to()",
            code=Code.TORCH_RAISES,
        )


def _check_extents(lowering: Lowering, node: torch.fx.Node) -> None:
    value = node.meta.get("val")
    extents: list[Any] = list(value.shape) if isinstance(value, torch.Tensor) else []
    # What depends on values has no extent here.
    if any(isinstance(e, int) and e == 0 for e in extents):
        raise lowering.refuse(
            f"torch operator {node.target} makes a tensor of shape {extents}",
            why="an empty tensor needs no kernel",
            repair="give every axis at least one element",
        )
