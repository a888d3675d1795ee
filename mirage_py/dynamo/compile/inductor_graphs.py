"""A graph of dynamo's compiled by Inductor, with calls of regions in it.

torch's ``compile_fx`` does everything but two things. AOTAutograd decomposes only what the front
end lacks (``decompositions.py``), and Inductor's passes over joint graphs are put off. So each
graph, forward or backward, arrives with composite operators; it is cut, decomposed by Inductor's
own table, gone over by those passes, and compiled. Inputs that lie still, writes to them, CUDA
graphs and what a mode sets are torch's business, as always.

If nothing is served, torch gets the graph of dynamo's as if this backend had not been there. So it
does where a whole graph with regions loses against that (``benchmark.py``).
"""

from __future__ import annotations

import contextlib
import functools
import logging
import operator
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch
from torch.fx import GraphModule

from mirage_py.dynamo.compile.compiler import GraphCompiler
from mirage_py.dynamo.compile.decomposed import decomposed_graph, settled
from mirage_py.dynamo.compile.decompositions import decompositions
from mirage_py.dynamo.compile.write_order import settings_that_keep_order
from mirage_py.dynamo.regions.compared_values import keep_compared
from mirage_py.dynamo.serve.fallback import eager_fallback, inductor_settings, left_to_torch
from mirage_py.dynamo.whole_graph.benchmark import WholeGraphBenchmark
from mirage_py.errors import LostGpuError, MirageWarning
from mirage_py.runtime.selection.operator import put_selections

log = logging.getLogger("mirage_py.dynamo")


class _LeftToTorchError(Exception):
    """There is nothing to do for us: no region of a model's graphs is served, or torch is faster
    without any.
    """


def compiled_by_inductor(
    compiler: GraphCompiler, module: GraphModule, inputs: Sequence[Any]
) -> Callable[..., Any]:
    """``module`` as a callable: regions by what serves them, all else by Inductor.

    Where that is not possible, the graph is left to torch as it is, with a MirageWarning. Raises
    LostGpuError where a candidate broke the GPU context, so that torch could not run it either.
    """
    from torch._dynamo.exc import RestartAnalysis

    settings = inductor_settings(compiler.options)
    if _has_nested_regions(module):
        log.info("a graph with torch.compiler.nested_compile_region is left to Inductor")
        return left_to_torch(module, inputs, settings)
    benchmark = WholeGraphBenchmark(compiler.options, compiler.target.name)
    attempt = _Attempt(compiler, settings, benchmark)
    try:
        ours = attempt.compiled(module, inputs)
        if compiler.options.chain == "on":
            ours = compiler.chained(ours) or ours
        plain = functools.partial(left_to_torch, module, inputs, settings)
        is_raced = compiler.options.chain == "race"
        other = compiler.chained if is_raced else None
        chosen = benchmark.winner(ours, plain, module, inputs, other)
    except _LeftToTorchError:
        pass
    # Dynamo's own way to begin again.
    except RestartAnalysis:
        raise
    except LostGpuError as error:
        # Said here: dynamo puts random states back, which fails, and shows that error alone.
        warnings.warn(str(error), MirageWarning, stacklevel=2)
        raise
    # The model works without us, so it goes on working.
    except Exception as error:  # noqa: BLE001
        warnings.warn(
            f"a graph is left to Inductor: {type(error).__name__}: {error}",
            MirageWarning,
            stacklevel=2,
        )
    else:
        compiler.is_used = ours in (chosen, getattr(chosen, "__wrapped__", None))
        return chosen
    finally:
        attempt.may_begin_again = False
    compiler.is_used = False
    return left_to_torch(module, inputs, settings)


class _Attempt:
    """The graphs of one module, compiled with regions."""

    def __init__(
        self, compiler: GraphCompiler, settings: dict[str, Any], benchmark: WholeGraphBenchmark
    ) -> None:
        self._compiler = compiler
        self._settings = settings
        self._benchmark = benchmark
        self.may_begin_again = True

    def compiled(self, module: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        from torch._functorch import config as functorch_config
        from torch._inductor import config
        from torch._inductor.compile_fx import compile_fx

        own: dict[str, Any] = {
            # On graphs that are cut: to the passes, too, a region is one operator.
            "use_joint_graph_passes": False,
            "custom_partitioner_fn": _partitioner(self, config.custom_partitioner_fn),
        }
        self._before = {k: operator.attrgetter(k)(config) for k in (*own, *self._settings)}
        # The cache knows a graph of dynamo's, and not that somebody cuts it.
        with functorch_config.patch(enable_autograd_cache=False):
            compiled: Any = compile_fx(
                module,
                list(inputs),
                inner_compile=self._inner,
                config_patches={**self._settings, **own},
                decompositions=cast("Any", decompositions()),
            )
        result: Callable[..., Any] = compiled
        return result

    def check_served(self, graphs: Sequence[tuple[str, GraphModule]]) -> None:
        """Raise _LeftToTorchError where no region of the graphs is served; the log says why."""
        with self._as_before():
            plans = []
            for name, module in graphs:
                plans.append((name, self._compiler.plan(name, module)))
                if plans[-1][1].served:
                    return
            for name, plan in plans:
                self._compiler.report(name, plan)
        raise _LeftToTorchError

    def _inner(self, module: GraphModule, inputs: Sequence[Any], **asked: Any) -> Any:
        """In the place of Inductor's ``compile_fx_inner``."""
        try:
            return self._compiled_graph(module, inputs, asked)
        except Exception as error:
            if self.may_begin_again:
                raise
            # A backward graph at its first call. Its forward graph has been run already.
            log.warning(
                "Inductor does not take a backward graph, which falls back to eager: %s", error
            )
            return eager_fallback(module)

    def _compiled_graph(
        self, module: GraphModule, inputs: Sequence[Any], asked: dict[str, Any]
    ) -> Any:
        from torch._dispatch.python import enable_python_dispatcher
        from torch._guards import detect_fake_mode
        from torch._inductor import config
        from torch._inductor.compile_fx import _recursive_joint_graph_passes, compile_fx_inner
        from torch._inductor.decomposition import select_decomp_table
        from torch._inductor.virtualized import V

        name = _name_of(asked)
        if name == "inference" and self._benchmark.is_lost(module, inputs):
            raise _LeftToTorchError
        with self._as_before():
            fused = self._compiler.fused(name, settled(module, inputs))
        if name == "inference":
            self._compiler.selections += put_selections(fused)
            if fused is module and not self._compiler.selections:
                raise _LeftToTorchError
        with config.patch({**self._before, **self._settings}):
            device = next((x.device for x in inputs if isinstance(x, torch.Tensor)), None)
            # As compile_fx has it, which a backward graph at its first call is not inside of.
            with V.set_fake_mode(detect_fake_mode(inputs)), enable_python_dispatcher():
                whole = decomposed_graph(fused, inputs)
                graph = _recursive_joint_graph_passes(whole, input_device=device)
            graph.graph.output_node().meta.update(module.graph.output_node().meta)
            if "get_decomp_fn" in asked:  # since torch 2.12
                asked = {**asked, "get_decomp_fn": select_decomp_table}
            begin = time.perf_counter()
            order = config.patch(settings_that_keep_order(graph.graph))
            with order, self._benchmark.compiling():
                compiled: Any = compile_fx_inner(graph, inputs, **asked)
            log.info("the rest by Inductor: %.1f s", time.perf_counter() - begin)
        # Inductor's code knows a region by its key alone: this keeps the region.
        compiled.regions = self._compiler.held()
        return compiled

    @contextlib.contextmanager
    def _as_before(self) -> Iterator[None]:
        """Inductor's settings as the user has them, for whatever is compiled to be measured."""
        from torch._inductor import config

        with config.patch(self._before):
            yield


def _has_nested_regions(module: GraphModule) -> bool:
    """Whether parts of the graph are compiled once for many places: torch traces them once, too."""
    kind = getattr(torch.ops.higher_order, "invoke_subgraph", None)
    return kind is not None and any(n.target is kind for n in module.graph.nodes)


def _name_of(asked: dict[str, Any]) -> str:
    if asked.get("is_backward"):
        return "backward"
    return "inference" if asked.get("is_inference") else "forward"


def _partitioner(attempt: _Attempt, users: Any) -> Any:
    """torch's partition of a joint graph, or the user's; both parts are looked at right after."""
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._inductor.custom_graph_pass import CustomPartitionerFn

    class Partitioner(CustomPartitionerFn):
        def __call__(
            self, gm: GraphModule, joint_inputs: Sequence[object], **kwargs: Any
        ) -> tuple[GraphModule, GraphModule]:
            keep_compared(gm)
            split: Any = users or min_cut_rematerialization_partition
            forward, backward = split(gm, joint_inputs, **kwargs)
            attempt.check_served([("forward", forward), ("backward", backward)])
            return forward, backward

        def uuid(self) -> None:
            """No key: what is compiled under this partition is kept nowhere."""
            return

    return Partitioner()
