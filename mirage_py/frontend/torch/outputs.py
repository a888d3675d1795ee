"""Outputs of a program: the values that can be results, and their declarations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from mirage_py.frontend.torch.capture.capture import RESULT_STRIDES, Capture
from mirage_py.frontend.torch.handlers import HANDLERS
from mirage_py.frontend.torch.held_integers import check_result
from mirage_py.frontend.torch.lower.complex_arrays import ComplexArray
from mirage_py.frontend.torch.lower.lowering import Lowering, program_dtype
from mirage_py.frontend.torch.lower.naming import distinct
from mirage_py.frontend.torch.lower.result_layouts import ResultLayout
from mirage_py.ugraph.building import views


def declare_outputs(
    lowering: Lowering,
    captured: Capture,
    arrays: Mapping[torch.fx.Node, Any],
    *,
    as_in_memory: bool,
    written: Mapping[torch.fx.Node, str] | None = None,
) -> tuple[dict[torch.fx.Node, int], tuple[ResultLayout, ...]]:
    """Declare an output for each tensor returned, and each that is ``written``, named after what it
    is written to: the numbers of the outputs, and their layouts.

    ``as_in_memory``: with its axes in the order in which torch's result has them in memory. Then
    there is a layout for each output.
    """
    layouts: list[ResultLayout] = []
    returned = list(dict.fromkeys(r for r in captured.results if isinstance(r, torch.fx.Node)))
    others = {node: name for node, name in (written or {}).items() if node not in returned}
    if not returned and not others:
        raise lowering.refuse(
            "the function returns no tensor that it computes",
            why="a kernel is made for its results",
            repair="return the tensors that you want computed",
        )
    devices = list(dict.fromkeys(n.meta["val"].device for n in captured.arguments))
    stem = "out" if "out" not in lowering.builder.inputs else "result"
    names = [stem] if len(returned) == 1 else [f"{stem}{n}" for n in range(len(returned))]
    names = _distinct_from([*names, *others.values()], lowering.builder.inputs)
    nodes = [*returned, *others]
    for node, name in zip(nodes, names, strict=True):
        lowering.node = node
        if node in returned:
            _refuse_input(lowering, node, arrays)
        check_result(lowering, node)
        array = arrays[node]
        if isinstance(array, ComplexArray):
            raise lowering.refuse(
                "a result of complex numbers is not supported",
                why="kernels write real ones",
                repair="return torch.view_as_real of it",
            )
        if as_in_memory:
            value = node.meta["val"]
            strides = node.meta.get(RESULT_STRIDES, value.stride())
            layouts.append(ResultLayout.of(value.shape, strides))
            array = views.transpose(lowering.builder, array, layouts[-1].order)
        _declare_output(lowering, node, name, array, devices)
    lowering.node = None
    return {node: number for number, node in enumerate(nodes)}, tuple(layouts)


def _distinct_from(names: Sequence[str], taken: Mapping[str, object]) -> list[str]:
    """The names, changed where an input is called so."""
    return distinct([*taken, *names])[len(taken) :]


def _refuse_input(
    lowering: Lowering, node: torch.fx.Node, arrays: Mapping[torch.fx.Node, Any]
) -> None:
    """UnsupportedError, with the input's name in the program, where a result is one, or a view."""
    aliased = _aliased_placeholder(node)
    if aliased is None:
        return
    read = lowering.builder.nodes[arrays[aliased].node]
    raise lowering.refuse(
        f"a result is the tensor '{read.access.tensor if read.access else aliased.name}' itself, "
        "or a view of it",
        why="a kernel writes its results to memory of their own",
        repair="return the view outside the function, or return .clone() of it",
    )


def _declare_output(
    lowering: Lowering,
    node: torch.fx.Node,
    name: str,
    array: views.NamedArray,
    devices: Sequence[torch.device],
) -> None:
    builder = lowering.builder
    device = node.meta["val"].device
    if device not in devices:
        raise lowering.refuse(
            f"a result is on {device}",
            why=f"the inputs are on {', '.join(map(str, devices))}",
            repair="move the result outside the function",
        )
    torch_kind = lowering.result_dtype(node)
    kind = program_dtype(torch_kind)
    if kind is None:
        raise lowering.refuse(
            f"a result is of {torch_kind}",
            why="kernels write float16, bfloat16, float32, integers of up to 64 bits and bool",
            repair="return one of these types, and convert the result outside the function",
        )
    # The store rounds to its type: a cast to the same type just before says nothing.
    inner = array.node
    while builder.nodes[inner].op == "cast" and builder.nodes[inner].attr == kind:
        (inner,) = builder.nodes[inner].args
    views.output(builder, name, views.NamedArray(inner, array.axes), kind)


def _aliased_placeholder(node: torch.fx.Node) -> torch.fx.Node | None:
    """The input whose memory a value may share, through views alone."""
    while node.op != "placeholder":
        row = HANDLERS.get(str(node.target))
        is_item = row is None and "getitem" in str(node.target)
        if not (is_item or (row is not None and row.aliases)) or not node.args:
            return None
        source = node.args[0]
        # Of many tensors at once, as in broadcast_tensors, each is a view of its own.
        if is_item and isinstance(source, torch.fx.Node) and _aliases_each(source):
            source = source.args[0][node.args[1]]  # type: ignore[index]
        if not isinstance(source, torch.fx.Node):
            return None
        node = source
    return node


def _aliases_each(node: torch.fx.Node) -> bool:
    """Whether a value is a list of views, of the tensors of a list in their order."""
    row = HANDLERS.get(str(node.target))
    return row is not None and row.aliases and isinstance(node.args[0], list | tuple)
