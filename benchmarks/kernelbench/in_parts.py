"""A model that is no program, through torch.compile on tensors without data: what regions take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._subclasses.fake_tensor import FakeTensorMode

from benchmarks.kernelbench.problem import Problem, load
from mirage_py.dynamo.compile.decompositions import decompositions
from mirage_py.dynamo.regions.regions import cut, left_alone
from mirage_py.dynamo.serve.graph_target import graph_target

Json = dict[str, Any]


def in_parts(problem: Problem, target: str) -> Json:
    """Operators of its graphs, how many are in regions of ours, and why the others are not."""
    counts: Counter[str] = Counter()
    left: Counter[str] = Counter()

    def compiled(module: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        del inputs
        found = cut(module.graph, graph_target(target), rest_fuses=True)
        alone = left_alone(found)
        inside = sum(len(region.nodes) for region in found.regions)
        counts["in_regions"] += inside
        counts["operators"] += inside + sum(count for _, count, _ in alone)
        left.update({f"{name}: {why.name}": count for name, count, why in alone})
        return module.forward

    def backend(module: torch.fx.GraphModule, inputs: Any) -> Any:
        return aot_autograd(fw_compiler=compiled, decompositions=decompositions())(module, inputs)

    with FakeTensorMode(allow_non_fake_inputs=True):
        model, inputs = load(problem)
        torch.compile(model, backend=backend, dynamic=False)(*inputs)
    return {
        "operators": counts["operators"],
        "in_regions": counts["in_regions"],
        "left": dict(left.most_common()),
    }
