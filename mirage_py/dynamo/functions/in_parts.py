"""A function that is no program, served by the fastest of what there is.

torch.compile captures its graphs, and runs everything else as it stands: breaks, side effects,
writes to arguments, results that are arguments. Each graph is cut into regions; with regions and
Inductor, by Inductor alone, or in eager PyTorch it serves as is the fastest on the GPU. Without
times (effort none, or no GPU) regions of ours serve where there are any, and eager otherwise.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch.fx import GraphModule

from mirage_py.dynamo.backend import has_gpu_tensors
from mirage_py.dynamo.compile.compiler import GraphCompiler
from mirage_py.dynamo.compile.eager_graphs import compiled_with_eager
from mirage_py.dynamo.compile.inductor_graphs import compiled_by_inductor
from mirage_py.dynamo.functions.dispatch_cost import dispatch_us
from mirage_py.dynamo.functions.graph_race import after, times_of
from mirage_py.dynamo.functions.suppressed_errors import suppressed_errors
from mirage_py.dynamo.regions.regions import left_alone
from mirage_py.dynamo.serve.fallback import inductor_settings, left_to_torch
from mirage_py.dynamo.serve.graph_target import graph_target
from mirage_py.dynamo.serve.options import BackendOptions
from mirage_py.dynamo.serve.service import RegionServer
from mirage_py.errors import LostGpuError
from mirage_py.reasons import Code, Reason, Served, Server, reason
from mirage_py.runtime.eager.compiled import EAGER, CompiledFunction

log = logging.getLogger("mirage_py.dynamo")

Compiled = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class GraphServed:
    """What serves a graph of the function: of ``operators`` so many are ``in_regions`` of ours."""

    by: Server
    operators: int = 0
    in_regions: int = 0
    words: str = ""


class InParts:
    """A function, called as it is; ``why_no_program`` is what the front end says of it.

    ``server`` replaces what finds kernels for regions; ``dynamic`` is torch.compile's. What serves
    is decided by the first call. It compiles, and later ones where what the function reads from
    elsewhere has changed.
    """

    def __init__(
        self,
        function: Compiled,
        options: BackendOptions,
        why_no_program: Reason,
        *,
        server: RegionServer | None = None,
        dynamic: bool | None = False,
    ) -> None:
        self.lines: list[str] = []
        self._function = function
        self._options = options
        self._why = why_no_program
        self._server = server
        self._graphs: list[GraphServed] = []
        self._compiled = CompiledFunction(function, backend=self._graph, dynamic=dynamic)
        self._call: Compiled = self._first
        self._is_decided = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, or what it was compiled to."""
        return self._call(*args, **kwargs)

    @property
    def served(self) -> Served:
        """What serves the function, and why it is no kernel of ours alone."""
        if not self._is_decided:
            return Served(Server.EAGER, reason(Code.AT_FIRST_CALL, self._why))
        by = [g.by for g in self._graphs]
        if Server.IN_PARTS in by:
            inside = sum(g.in_regions for g in self._graphs if g.by is Server.IN_PARTS)
            operators = sum(g.operators for g in self._graphs)
            return Served(Server.IN_PARTS, reason(Code.IN_PARTS, inside, operators, self._why))
        compiled = Server.TORCH_COMPILE in by
        return Served(Server.TORCH_COMPILE if compiled else Server.EAGER, self._why)

    @property
    def settled(self) -> Compiled:
        """What it calls, decided by the first call."""
        return self._call

    # -- calls -----------------------------------------------------------------------------------

    def _first(self, *args: Any, **kwargs: Any) -> Any:
        """Compile what can be compiled, and run it once."""
        from torch._dynamo.utils import counters

        if self._is_timed:
            dispatch_us()  # not inside of a compilation
        breaks = sum(counters["graph_break"].values())
        # What is wrong with a call the function itself says best, with an error of its own.
        with suppressed_errors():
            result = self._compiled(*args, **kwargs)
        self._is_decided = True
        if all(g.by is Server.EAGER for g in self._graphs):
            self._call = self._function
        elif sum(counters["graph_break"].values()) > breaks:
            self._call = self._in_pieces
        else:
            self._call = self._in_one_piece
        return result

    def _in_one_piece(self, *args: Any, **kwargs: Any) -> Any:
        """Nothing of the function runs before all of it is compiled, so it can be begun again."""
        from torch._dynamo.exc import TorchDynamoException

        try:
            return self._compiled(*args, **kwargs)
        except TorchDynamoException:
            return self._function(*args, **kwargs)

    def _in_pieces(self, *args: Any, **kwargs: Any) -> Any:
        """What came before a piece that torch cannot compile must not run again."""
        with suppressed_errors():
            return self._compiled(*args, **kwargs)

    # -- graphs ----------------------------------------------------------------------------------

    @property
    def _is_timed(self) -> bool:
        return self._options.rest == "inductor" and self._options.effort != "none"

    def _graph(self, module: GraphModule, inputs: Sequence[Any]) -> Compiled:
        """The backend of torch.compile."""
        compiler = GraphCompiler(
            self._options, graph_target(self._options.target), self._server, shares_budget=True
        )
        try:
            call, served = self._fastest(compiler, module, inputs)
        except LostGpuError:
            raise
        # The function works without us, so it goes on working.
        except Exception as error:  # noqa: BLE001
            words = f"not compiled: {type(error).__name__}: {error}"
            call, served = module.forward, GraphServed(Server.EAGER, words=words)
        self._graphs.append(served)
        self.lines += [*compiler.lines, *([served.words] if served.words else [])]
        return call

    def _fastest(
        self, compiler: GraphCompiler, module: GraphModule, inputs: Sequence[Any]
    ) -> tuple[Compiled, GraphServed]:
        eager = module.forward
        if self._options.rest == "eager":
            call = compiled_with_eager(compiler, module, inputs)
            served = _counted(compiler, Server.EAGER)
            return (call if served.by is Server.IN_PARTS else eager), served
        if not has_gpu_tensors(module, inputs):
            return eager, GraphServed(Server.EAGER)
        call = compiled_by_inductor(compiler, module, inputs)
        served = _counted(compiler, Server.TORCH_COMPILE)
        if not self._is_timed:
            if served.by is Server.IN_PARTS:
                return call, served
            return eager, replace(served, by=Server.EAGER)
        return self._raced({served.by: call}, served, module, inputs)

    def _raced(
        self,
        compiled: dict[str, Compiled],
        served: GraphServed,
        module: GraphModule,
        inputs: Sequence[Any],
    ) -> tuple[Compiled, GraphServed]:
        """The fastest of what was compiled, also as torch.compile does by default, and eager."""
        if self._options.effort == "full":
            default = inductor_settings(replace(self._options, effort="quick"))
            compiled["compile"] = left_to_torch(module, inputs, default)
        guards = dispatch_us()
        candidates = {name: after(guards, call) for name, call in compiled.items()}
        try:
            times = times_of({**candidates, EAGER: module.forward}, module, inputs)
        except LostGpuError:
            raise
        # What was compiled works, whatever went wrong in finding out whether eager is faster.
        except Exception as error:  # noqa: BLE001
            log.info("a graph is not compared with eager: %s", error)
            return compiled[served.by], served
        best = min(times, key=times.__getitem__)
        words = ", ".join(f"{name} {us:.1f} us" for name, us in times.items())
        if best == served.by:
            return compiled[best], replace(served, words=words)
        by = Server.EAGER if best == EAGER else Server.TORCH_COMPILE
        call = module.forward if best == EAGER else compiled[best]
        return call, GraphServed(by, served.operators, 0, words)


def _counted(compiler: GraphCompiler, otherwise: Server) -> GraphServed:
    """What the compiler made of a graph: regions, or ``otherwise`` where none of them serves."""
    operators = inside = 0
    for plan in compiler.plans:
        operators += sum(len(region.nodes) for region in plan.cut.regions)
        operators += sum(count for _, count, _ in left_alone(plan.cut))
        served = [(r, times) for r, times, e in plan.rows if e.served.kernel is not None]
        inside += sum(len(region.nodes) * times for region, times in served)
    inside += compiler.selections
    if not inside or not compiler.is_used:
        return GraphServed(otherwise, operators)
    return GraphServed(Server.IN_PARTS, operators, inside)
