"""An exported graph without writes, its operators decomposed unless they stay whole.

``ExportedProgram.run_decompositions`` gives the same graph. It traces twice, and first registers
rules for each of several hundred composite operators: 250 ms, of which one trace takes 10.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.fx import Graph, GraphModule, Interpreter
from torch.fx import traceback as fx_traceback
from torch.fx.experimental.proxy_tensor import decompose, make_fx


class Decompositions(dict[OpOverload, Callable[..., Any]]):
    """Torch's own, of operators that do not stay whole, and those of views of views such as mT."""

    def __init__(self, keep: Callable[[str], bool]) -> None:
        table: Mapping[Any, Callable[..., Any]] = torch.export.default_decompositions()
        super().__init__({op: rule for op, rule in table.items() if not keep(str(op))})
        self._keep = keep

    def __contains__(self, op: object) -> bool:
        return super().__contains__(op) or (
            isinstance(op, OpOverload)
            and any(argument.alias_info for argument in op._schema.arguments)  # noqa: SLF001
            and not self._keep(str(op))
            and op._can_decompose()  # noqa: SLF001
        )

    def __missing__(self, op: OpOverload) -> Callable[..., Any]:
        return op.decompose


def functional_graph(
    module: GraphModule, decompositions: Decompositions
) -> tuple[Graph, tuple[int, ...]]:
    """The graph, with as many placeholders as before, and the numbers of those that are written to:
    what is in them afterwards comes first among the results.
    """
    given = [node.meta["val"] for node in module.graph.find_nodes(op="placeholder")]
    written: list[int] = []

    def run(*given: torch.Tensor) -> tuple[Any, ...]:
        # Before autograd composite operators are whole; dropout is where this is an export.
        mode = FunctionalTensorMode(pre_dispatch=True, export=True)
        with decompose(decompositions), mode:
            inputs = [FunctionalTensor.to_functional(x) for x in given]
            with fx_traceback.preserve_node_meta():
                results = Interpreter(module).run(*inputs)
        after = [_plain(x) for x in inputs]
        written[:] = [n for n, x in enumerate(given) if after[n] is not x]
        return (*(after[n] for n in written), *map(_plain, results))

    with given[0].fake_mode:
        graph: Graph = make_fx(run, pre_dispatch=True)(*given).graph
    graph.eliminate_dead_code()
    return graph, tuple(written)


def _plain(value: Any) -> Any:
    return value.from_functional() if isinstance(value, FunctionalTensor) else value
