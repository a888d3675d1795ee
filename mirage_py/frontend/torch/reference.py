"""A traced function as its program: from the program's inputs to its outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from mirage_py.frontend.torch.trace import TracedCall
from mirage_py.frontend.torch.writes import put_back
from mirage_py.runtime.eager.writing import WritingFunction


def reference_of(
    traced: TracedCall, leaves: Sequence[Any], call: Callable[[Sequence[Any]], Any]
) -> Callable[..., Any]:
    """The function, which ``call`` calls with leaves of its arguments. Of the example's tensors
    only those are kept that the program does not read; what would be written to is copied.

    Tensors that the function takes from elsewhere are its own whatever inputs it is given, so what
    is compared with the program is ``traced``, an attribute of the result.
    """
    by_graph = None if traced.graph.draws else traced.by_graph
    read = dict.fromkeys(traced.arguments)
    own = dict.fromkeys(p for p in traced.places if isinstance(p, int))
    others = [
        None if n in read else leaf.clone() if n in own else leaf for n, leaf in enumerate(leaves)
    ]

    def filled(inputs: Sequence[torch.Tensor]) -> list[Any]:
        # Arguments that only give their shape or type are no inputs: they follow to the same GPU.
        device = inputs[0].device
        values = [v.to(device) if isinstance(v, torch.Tensor) else v for v in others]
        for place, tensor in zip(traced.arguments, inputs, strict=False):
            values[place] = tensor
        return values

    def outputs(form: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> Any:
        found = traced.outputs_of(lambda: form(*inputs), filled(inputs))
        return found[0] if len(found) == 1 else found

    def itself(*inputs: torch.Tensor) -> Any:
        return call(filled(inputs))

    def pure(*inputs: torch.Tensor) -> Any:
        return outputs(itself, inputs)

    if not traced.writes:
        pure.traced = by_graph  # type: ignore[attr-defined]
        return pure
    # Positions that count up from call to call would leave the tensor.
    whole = [p for p in own if not leaves[p].is_floating_point()]

    def timed(*inputs: torch.Tensor) -> Any:
        if not whole:
            return itself(*inputs)
        with put_back(whole, filled(inputs)):
            return itself(*inputs)

    def finish(inputs: Sequence[torch.Tensor], found: Any) -> object:
        values = filled(inputs)
        with put_back(whole, values):
            return traced.pack(found if isinstance(found, tuple) else (found,), values)

    return WritingFunction(timed, outputs, finish, traced.words, by_graph)
