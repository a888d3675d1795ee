"""An optimised exported program as a module: parameters by name, the same arguments and results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import GraphModule
from torch.utils import _pytree as pytree


class OptimizedModule(torch.nn.Module):
    """Calls ``graph``, which has the placeholders of an exported program, with its parameters,
    buffers and constants, and the user's arguments.
    """

    def __init__(self, program: ExportedProgram, graph: GraphModule) -> None:
        super().__init__()
        self.graph_module = graph
        spec = program.call_spec
        assert spec.in_spec is not None
        assert spec.out_spec is not None
        self._in, self._out = spec.in_spec, spec.out_spec
        self._names: list[str | None] = []
        held = held_tensors(program)
        for entry in program.graph_signature.input_specs:
            tensor = held.get(getattr(entry.arg, "name", ""))
            name = None if tensor is None else str(entry.target).replace(".", "_")
            if name is not None and isinstance(tensor, torch.nn.Parameter):
                self.register_parameter(name, tensor)
            elif name is not None:
                self.register_buffer(name, tensor)
            self._names.append(name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The results of the program for its arguments."""
        return self.through(self.graph_module, args, kwargs)

    def through(
        self, graph: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """The results where ``graph`` runs what the module's graph does."""
        leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
        if spec != self._in:
            raise TypeError(f"the program takes arguments as {self._in}, not as {spec}")
        given = iter(leaves)
        values = [next(given) if n is None else getattr(self, n) for n in self._names]
        results = graph(*values)
        flat = list(results) if isinstance(results, (tuple, list)) else [results]
        return pytree.tree_unflatten(flat, self._out)


def held_tensors(program: ExportedProgram) -> Mapping[str, torch.Tensor]:
    """The parameters, buffers and constants of a program, by the names of their placeholders."""
    kinds = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
    found: dict[str, torch.Tensor] = {}
    for entry in program.graph_signature.input_specs:
        if entry.kind in kinds and entry.target is not None:
            tensor = program.state_dict.get(entry.target, program.constants.get(entry.target))
            if isinstance(tensor, torch.Tensor):
                found[entry.arg.name] = tensor
    return found
