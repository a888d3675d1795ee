"""An ATen graph as an operator graph of networks.

What is no operator of networks stays as an opaque node, with all tensors that it reads as operands,
so a graph is imported whole or not at all: UnsupportedError says why. Calls without operands
(``full``, ``arange``) are inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from mirage_py.errors import InputError, UnsupportedError
from mirage_py.frontend.networks.aten_rows import HANDLERS, dtype_name
from mirage_py.networks.ir.builder import GraphBuilder
from mirage_py.networks.ir.graph import Graph, Value
from mirage_py.networks.operators import TensorType
from mirage_py.networks.operators.opaque import encoded
from mirage_py.ugraph.ir.dtypes import dtype


@dataclass(frozen=True)
class ImportedNetwork:
    """``sources`` are the nodes of the graph's inputs, ``opaque`` those of opaque operators by key,
    each with the nodes of its operands; ``outputs`` the node of each output, None for what the
    graph returns as it is.
    """

    graph: Graph
    sources: tuple[Node, ...]
    opaque: Mapping[str, Node]
    outputs: tuple[Node, ...]


def imported_network(
    module: GraphModule, constants: Mapping[str, Any] | None = None
) -> ImportedNetwork:
    """The graph of an ATen module. ``constants`` names the inputs that are weights and do not
    change; tensors that the module itself holds are such.

    Raises UnsupportedError for sizes that are not known, for random numbers and for writes.
    """
    found = _Import(module, constants or {})
    for node in module.graph.nodes:
        found.add(node)
    return found.result()


class _Import:
    def __init__(self, module: GraphModule, constants: Mapping[str, Any]) -> None:
        self._module, self._constants = module, constants
        self._builder = GraphBuilder()
        self._values: dict[Node, Any] = {}
        self._sources: list[Node] = []
        self._opaque: dict[str, Node] = {}
        self._outputs: list[Node] = []

    def add(self, node: Node) -> None:
        if node.op == "output":
            self._outputs = [n for n in pytree.tree_leaves(node.args) if isinstance(n, Node)]
        elif not node.users:
            pass
        elif node.op in ("placeholder", "get_attr"):
            self._leaf(node, constant=node.op == "get_attr" or node.name in self._constants)
        elif node.op == "call_function":
            self._call(node)
        else:
            raise _refused(f"'{node.op}' is not of ATen")

    def result(self) -> ImportedNetwork:
        values = [self._values[n] for n in self._outputs]
        if not values or not all(isinstance(v, Value) for v in values):
            raise _refused("it returns something other than tensors")
        graph = self._builder.build(*values)
        return ImportedNetwork(graph, tuple(self._sources), self._opaque, tuple(self._outputs))

    def _leaf(self, node: Node, *, constant: bool) -> None:
        known = _type_of(_value_of(node, self._module))
        name = f"i{len(self._sources)}"
        self._sources.append(node)
        self._values[node] = self._builder.input(name, known.shape, known.dtype, constant=constant)

    def _call(self, node: Node) -> None:
        name = str(node.target)
        if name == "<built-in function getitem>":
            whole, place = node.args
            assert isinstance(whole, Node)
            self._values[node] = self._values[whole][place]
            return
        _check(node)
        handler = HANDLERS.get(name)
        if handler is not None:
            try:
                found = handler(
                    self._builder, *self._mapped(node.args), **self._mapped(node.kwargs)
                )
                self._checked(node, found)
            # It is left as it is: arguments of which the handler knows nothing, or no shape.
            except (InputError, UnsupportedError, TypeError, KeyError):
                pass
            else:
                self._values[node] = found
                return
        self._left(node)

    def _checked(self, node: Node, found: Any) -> None:
        results = found if isinstance(found, tuple) else (found,)
        types = _types(node)
        for value, known in zip(results, types, strict=True):
            if known is not None and (value is None or self._builder.type_of(value) != known):
                raise _refused("another type comes out")

    def _left(self, node: Node) -> None:
        operands = [self._values[n] for n in node.all_input_nodes]
        if not operands:
            self._leaf(node, constant=False)
            return
        if not all(isinstance(v, Value) for v in operands):
            raise _refused(f"{node.target} reads several results at once")
        types = _types(node)
        shape = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: n.name and "%")
        key = f"{node.target} {shape!r} {node.name if _is_unsure(node) else ''}"
        self._opaque.setdefault(key, node)
        given = {"key": key, "types": encoded([t for t in types if t is not None])}
        results = iter(self._builder.apply_all("opaque", *operands, **given))
        found = tuple(None if t is None else next(results) for t in types)
        self._values[node] = found if _has_several(node) else found[0]

    def _mapped(self, arguments: Any) -> Any:
        return torch.fx.node.map_arg(arguments, lambda n: self._values[n])


def _check(node: Node) -> None:
    target: Any = node.target
    schema = getattr(target, "_schema", None)
    if schema is None:
        raise _refused(f"{target} is not of ATen")
    if schema.is_mutable:
        raise _refused(f"{target} writes to a tensor")
    if torch.Tag.nondeterministic_seeded in target.tags and _drops(node, schema):
        raise _refused(f"{target} draws random numbers")


def _drops(node: Node, schema: Any) -> bool:
    """Whether an operator that may draw random numbers does: attention without dropout does not."""
    for place, argument in enumerate(schema.arguments):
        if argument.name == "dropout_p":
            given = node.args[place] if place < len(node.args) else argument.default_value
            return bool(node.kwargs.get("dropout_p", given) != 0)
    return True


def _is_unsure(node: Node) -> bool:
    """Whether two equal calls may differ: no operator of ATen, which might do anything."""
    return getattr(node.target, "namespace", "") != "aten"


def _has_several(node: Node) -> bool:
    return isinstance(node.meta.get("val"), (tuple, list))


def _types(node: Node) -> list[TensorType | None]:
    """The types of the results; None of those that nothing reads."""
    value = node.meta.get("val")
    if not _has_several(node):
        return [_type_of(value)]
    read = {user.args[1] for user in node.users if user.users}
    return [_type_of(v) if n in read else None for n, v in enumerate(value)]  # type: ignore[arg-type]


def _value_of(node: Node, module: GraphModule) -> Any:
    if node.op == "get_attr" and node.meta.get("val") is None:
        value: Any = module
        for part in str(node.target).split("."):
            value = getattr(value, part)
        return value
    return node.meta.get("val")


def _type_of(value: Any) -> TensorType:
    if not isinstance(value, torch.Tensor):
        raise _refused(f"a value is a {type(value).__name__}")
    if not all(isinstance(n, int) for n in value.shape):
        raise _refused("sizes change from call to call")
    if value.numel() == 0:
        raise _refused("a tensor is empty")
    return TensorType(tuple(value.shape), dtype(dtype_name(value.dtype)))


def _refused(why: str) -> UnsupportedError:
    return UnsupportedError("a graph that the graph level does not take", why=why)
