"""The operator of torch that calls a region: what Inductor and the dispatcher see of one.

``mirage_py::region(tensors, sizes, kinds, key)``: the region with the content ``key`` on its
inputs, which are dealt out in the order of ``kinds`` (``t`` a tensor, ``n`` a size, ``w`` a tensor
that it writes to). The key is the content and no number, so that code that Inductor keeps on disk
calls the same region in another process.

A region that writes to inputs has an operator that says so, ``mirage_py::region_writes_2_1`` for
two such inputs, which come first, and one result of its own: Inductor takes mutable operators whose
results are no lists.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.fx import Node

from mirage_py.dynamo.serve.direct_calls import call_directly
from mirage_py.dynamo.serve.region_call import RegionCall
from mirage_py.dynamo.serve.service import Value

# All that are held, the newest last: two models with equal layers have a region each.
_CALLS: dict[str, tuple[weakref.ref[RegionCall], ...]] = {}
_SCHEMA = "region(Tensor[] tensors, SymInt[] sizes, str kinds, str key) -> Tensor[]"


@functools.cache
def region_operator() -> torch._ops.OpOverload:
    """The operator; registered at the first call."""
    library: Any = _library()
    library.define(_SCHEMA, tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides))
    library.impl("region", lambda *given: list(call_region(*given)), "CompositeExplicitAutograd")
    torch.library.register_fake("mirage_py::region", _describe, lib=library)
    call_directly("region", "call_region")
    operator: torch._ops.OpOverload = torch.ops.mirage_py.region.default
    return operator


@functools.cache
def writing_operator(written: int, results: int) -> torch._ops.OpOverload:
    """The operator for regions that write to so many inputs, and have so many other results;
    registered at the first call.
    """
    library: Any = _library()
    name = f"region_writes_{written}_{results}"
    tensors = ", ".join(f"Tensor(a{n}!) written{n}" for n in range(written))
    rest = _SCHEMA.split("(", 1)[1].split(")", 1)[0]
    returned = "Tensor" if results == 1 else f"({', '.join(['Tensor'] * results)})"

    def call(*given: Any) -> Any:
        return call_writing_region(written, *given)

    def describe(*given: Any) -> Any:
        key, inputs = _dealt_to_write(written, given)
        return _as_returned(_known(key).described(*inputs))

    library.define(
        f"{name}({tensors}, {rest}) -> {returned}",
        tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides),
    )
    library.impl(name, call, "CompositeExplicitAutograd")
    torch.library.register_fake(f"mirage_py::{name}", describe, lib=library)
    call_directly(name, "call_writing_region", str(written))
    operator: torch._ops.OpOverload = getattr(torch.ops.mirage_py, name).default
    return operator


def calls_region(node: Node) -> bool:
    """Whether a node of a graph is the call of a region."""
    return str(node.target).startswith("mirage_py.region")


def _as_returned(results: Sequence[torch.Tensor]) -> Any:
    return results[0] if len(results) == 1 else (tuple(results) or None)


@functools.cache
def _library() -> Any:
    # torch does not type it. What it registers is gone when it is.
    kind: Any = torch.library.Library
    return kind("mirage_py", "FRAGMENT")


def register(call: RegionCall) -> None:
    """Make a region known to the operator for as long as somebody holds it."""
    living = (r for r in _CALLS.get(call.key, ()) if r() is not None)
    _CALLS[call.key] = (*living, weakref.ref(call))


def living_calls() -> list[RegionCall]:
    """All regions that somebody holds."""
    return [call for refs in _CALLS.values() for r in refs if (call := r()) is not None]


def call_region(
    tensors: Sequence[torch.Tensor], sizes: Sequence[int], kinds: str, key: str
) -> Sequence[torch.Tensor]:
    """The region ``key`` on its inputs."""
    return _known(key)(*(_dealt(tensors, sizes, kinds) if sizes else tensors))


def call_writing_region(written: int, *given: Any) -> Any:
    """A region that writes to its first ``written`` inputs."""
    key, inputs = _dealt_to_write(written, given)
    return _as_returned(_known(key)(*inputs))


def _known(key: str) -> RegionCall:
    calls = _CALLS[key]
    newest = calls[-1]()
    return newest or next(call for r in reversed(calls) if (call := r()) is not None)


def _describe(
    tensors: Sequence[torch.Tensor], sizes: Sequence[int], kinds: str, key: str
) -> list[torch.Tensor]:
    """On tensors without data: the region's own operators say what comes out."""
    return list(_known(key).described(*_dealt(tensors, sizes, kinds)))


def _dealt_to_write(written: int, given: Sequence[Any]) -> tuple[str, list[Value]]:
    tensors, sizes, kinds, key = given[written:]
    return key, _dealt(tensors, sizes, kinds, given[:written])


def _dealt(
    tensors: Sequence[torch.Tensor],
    sizes: Sequence[int],
    kinds: str,
    written: Sequence[torch.Tensor] = (),
) -> list[Value]:
    waiting: dict[str, Iterator[Value]] = {
        "t": iter(tensors), "n": iter(sizes), "w": iter(written),
    }  # fmt: skip
    return [next(waiting[kind]) for kind in kinds]
