"""The operator of torch for the first k elements of long rows: what Inductor sees of it.

``mirage_py::first_k(x, count, largest)``, in the place of ``aten.topk`` in graphs for inference.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

import torch
from torch.fx import GraphModule

from mirage_py.runtime.selection.first_k import first_k, takes

log = logging.getLogger("mirage_py.runtime")
_SCHEMA = "first_k(Tensor x, int count, bool largest) -> (Tensor, Tensor)"


@functools.cache
def first_k_operator() -> torch._ops.OpOverload:
    """The operator; registered at the first call."""
    library: Any = _library()
    library.define(_SCHEMA, tags=(torch.Tag.pt2_compliant_tag,))
    library.impl("first_k", selected, "CUDA")
    torch.library.register_fake("mirage_py::first_k", _describe, lib=library)
    operator: torch._ops.OpOverload = torch.ops.mirage_py.first_k.default
    return operator


def selected(x: torch.Tensor, count: int, largest: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The first elements and their places by our kernels, or by ``torch.topk`` where these do not
    compile or run.
    """
    try:
        return first_k(x, count, largest=largest)
    except Exception:
        # Another Triton or another GPU may refuse them: that costs time, not the call.
        log.warning("topk: kernels for long rows do not run here; torch.topk does", exc_info=True)
        values, places = torch.topk(x, count, -1, largest)
        return values, places


def put_selections(module: GraphModule) -> int:
    """Each topk of long rows on a GPU becomes a call of the operator; how many there are."""
    found = 0
    for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.topk.default):
        given: Any = node.args
        x, count, *how = given
        dim, largest = (*how, *(-1, True)[len(how) :])[:2]
        value = x.meta.get("val")
        if node.kwargs or not isinstance(value, torch.Tensor) or value.device.type != "cuda":
            continue
        if not takes(value, count, dim):
            continue
        node.target = first_k_operator()
        node.args = (x, count, largest)
        found += 1
    if found:
        module.recompile()
    return found


def _describe(x: torch.Tensor, count: int, largest: bool) -> tuple[torch.Tensor, torch.Tensor]:
    del largest
    shape = (*x.shape[:-1], count)
    return x.new_empty(shape), x.new_empty(shape, dtype=torch.int64)


@functools.cache
def _library() -> Any:
    # torch does not type it. What it registers is gone when it is.
    kind: Any = torch.library.Library
    return kind("mirage_py", "FRAGMENT")
