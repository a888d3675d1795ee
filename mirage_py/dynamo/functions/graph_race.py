"""A graph of dynamo's as it was compiled against the same graph in eager PyTorch.

Both are called on the user's inputs, call after call, as a user makes them: what the host takes
counts. The compiled one pays for its guards, too. What the graph writes to is put back.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses import FakeTensorMode
from torch.fx import GraphModule
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from mirage_py.dynamo.whole_graph.benchmark import device_and_clock, timed, why_not_benchmarked
from mirage_py.dynamo.whole_graph.real_inputs import (
    NotBenchmarkedError,
    RandomStates,
    real_inputs,
)
from mirage_py.dynamo.whole_graph.timer import CompiledGraph

Compiled = Callable[..., Any]


def times_of(
    candidates: Mapping[str, Compiled], module: GraphModule, inputs: Sequence[Any]
) -> dict[str, float]:
    """Microseconds a call of each function of the inputs; infinite where one does not run.

    Raises NotBenchmarkedError where ``module`` cannot be called a few times more than the user
    does, torch's OutOfMemoryError, and LostGpuError.
    """
    if any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs):
        # Of a graph of training only the forward half could be called.
        raise NotBenchmarkedError("an input requires grad")
    unfit = why_not_benchmarked(module)
    if unfit:
        raise NotBenchmarkedError(unfit)
    given = real_inputs(inputs)
    device, clock = device_and_clock(given)
    random = RandomStates(device)
    with _disable_current_modes():
        written = [given[n] for n in written_places(module, given)]
        random.restore()
        current = torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
        graphs = {name: _graph(call, given) for name, call in candidates.items()}
        with current:
            return timed(graphs, written, device, clock)


def after(us: float, call: Compiled) -> Compiled:
    """``call`` after the host was busy for so many microseconds."""

    def later(*given: Any) -> Any:
        end = time.perf_counter() + us * 1e-6
        while time.perf_counter() < end:
            pass
        return call(*given)

    return later


def written_places(module: GraphModule, given: Sequence[Any]) -> list[int]:
    """The numbers of the inputs that a graph writes to, found out on tensors without data.

    Raises NotBenchmarkedError where it writes to what cannot be put back: a parameter, or the shape
    of an input.
    """
    if [*module.parameters(), *module.buffers()]:
        raise NotBenchmarkedError("the graph holds tensors, and may write to them")
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fakes = [mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in given]
        before = [_form(x) for x in fakes]
        try:
            module(*fakes)
        except Exception as error:
            raise NotBenchmarkedError(f"it is not known what it writes to: {error}") from error
    written = []
    for number, (x, fake, (version, form)) in enumerate(zip(given, fakes, before, strict=True)):
        if not isinstance(fake, torch.Tensor):
            continue
        now, form_now = _form(fake)
        if form_now != form:
            raise NotBenchmarkedError("it changes the shape or the memory of an input")
        if now != version and isinstance(x, torch.nn.Parameter):
            raise NotBenchmarkedError("it writes to parameters")
        if now != version:
            written.append(number)
    return written


def _form(x: Any) -> tuple[int, Any]:
    if not isinstance(x, torch.Tensor):
        return 0, None
    return x._version, (x.shape, x.stride(), x.storage_offset())  # noqa: SLF001


def _graph(call: Compiled, given: Sequence[Any]) -> CompiledGraph:
    return CompiledGraph(lambda: pytree.tree_leaves(call(*given)) and None, is_captured=False)
