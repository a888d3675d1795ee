"""Operators of a decode step that are left to Inductor, counted without a GPU and without weights.

``python -m benchmarks.whole_models.left_over [--only NAMES] [--batches 1,16] [--tokens 1,4] [-o
FILE]``: every model at its published sizes in bfloat16 is cut into regions for an H200, with one
period of its layers and with two; the difference is what a layer has. A region counts where the
front end makes a program of it; what the search finds for it is not asked. Operators that hang
together are one kernel of Inductor's at least.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click
import torch
from torch.fx import Node

from benchmarks.report.provenance import commit
from benchmarks.whole_models.step import step_function
from benchmarks.whole_models.zoo import WHOLE_MODELS, WholeModel, built
from mirage_py.dynamo.compile.compiler import GraphCompiler, Plan
from mirage_py.dynamo.compile.decompositions import decompositions
from mirage_py.dynamo.regions.nodes import base_name
from mirage_py.dynamo.regions.region_program import RegionProgram
from mirage_py.dynamo.serve.options import backend_options
from mirage_py.dynamo.serve.service import Kernel, Service
from mirage_py.reasons import Code, Reason
from mirage_py.targets import target

_MISTRAL_7B = {
    "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 32000, "sliding_window": 4096,
    "rms_norm_eps": 1e-5, "max_position_embeddings": 32768,
}  # fmt: skip


def _mistral(sizes: Mapping[str, Any], layers: int) -> Any:
    from transformers import MistralConfig

    return MistralConfig(**sizes, num_hidden_layers=layers)


def _mistral_model(config: Any) -> torch.nn.Module:
    from transformers import MistralForCausalLM

    return MistralForCausalLM(config)


_MISTRAL = WholeModel("mistral", "Mistral-7B", (1,), 2, 1024, _MISTRAL_7B, _mistral, _mistral_model)
MODELS = {
    **{n: WHOLE_MODELS[n] for n in ("llama1b", "qwen2", "qwen3", "gemma2", "gemma3", "olmo2")},
    "phi4": WHOLE_MODELS["phi4"],
    "mistral": _MISTRAL,
}
# Layers after which the kinds of layers repeat.
_PERIODS = {"gemma2": 2, "gemma3": 6}
_CONTEXT = 256
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")


@dataclass(frozen=True, slots=True)
class Counts:
    """Of a graph, or of a layer: regions, operators outside of them, products of a library among
    these, and groups of the others that hang together; ``names`` are those of the others.
    """

    regions: float
    operators: float
    products: float
    groups: float
    names: Mapping[str, float]


class _PlannedError(Exception):
    """The graph is cut: nothing is to be run."""


def planned(model: WholeModel, layers: int, batch: int, tokens: int, *, is_full: bool) -> Plan:
    """The cut of a step of so many tokens; ``is_full``: windows have been filled before."""
    from torch._dynamo.backends.common import aot_autograd
    from transformers import StaticCache

    found: list[Plan] = []
    options = backend_options(None, {"target": "h200", "effort": "full", "on_cpu": "reference"})

    def served(region: RegionProgram, own: Kernel) -> Service:
        del region
        return Service(own, Reason(Code.REFERENCE))

    def compiler(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        del inputs
        found.append(GraphCompiler(options, target("h200"), served).plan("inference", graph))
        raise _PlannedError

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        return aot_autograd(
            fw_compiler=compiler,
            decompositions=decompositions(),
            keep_inference_input_mutations=True,
        )(graph, inputs)

    module, config = built(model, layers, "meta", tiny=False)
    # Numbers are whatever lies in memory: nothing reads them.
    module = module.to_empty(device="cpu")
    cache: Any = StaticCache(config=config, max_cache_len=_CONTEXT)
    heads = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    cache.early_initialization(
        batch, config.num_key_value_heads, heads, torch.bfloat16, torch.device("cpu")
    )
    for layer in cache.layers:
        if layer.is_sliding:
            layer.cumulative_length_int = 2 * _CONTEXT if is_full else _CONTEXT // 2
    ids = torch.zeros((batch, tokens), dtype=torch.int64)
    torch.compiler.reset()
    with torch.no_grad():
        try:
            step = torch.compile(
                step_function(module), backend=backend, fullgraph=True, dynamic=False
            )
            step(ids, cache)
        except Exception:
            if not found:
                raise
    torch.compiler.reset()
    (plan,) = found
    return plan


def counts_of(plan: Plan) -> Counts:
    """What is in regions that have a program, and what is outside."""
    served = [r for r, _, entry in plan.rows if entry.served.kernel is not None]
    keys = {r.nodes: times for r, times, _ in plan.rows}
    regions = sum(keys[r.nodes] for r in served)
    outputs = {g.outputs for g in plan.served}
    inside = {n for r in plan.cut.regions if r.outputs in outputs for n in r.nodes}
    left = [n for n in plan.cut.order if n not in inside]
    products = [n for n in left if base_name(n) in _PRODUCTS]
    others = [n for n in left if base_name(n) not in (*_PRODUCTS, "getitem")]
    names: dict[str, float] = {}
    for node in others:
        names[base_name(node)] = names.get(base_name(node), 0) + 1
    return Counts(regions, len(left), len(products), _groups(others, plan.cut.order), names)


def _groups(nodes: Iterable[Node], order: Iterable[Node]) -> int:
    """How many groups of these nodes have nothing to do with each other, through views."""
    wanted = dict.fromkeys(nodes)
    elements = dict.fromkeys(order)
    group = {n: n for n in wanted}

    def root(node: Node) -> Node:
        while group[node] is not node:
            node = group[node]
        return node

    def sources(node: Node) -> list[Node]:
        operands = node.all_input_nodes
        return [s for n in operands for s in ([n] if n in elements else sources(n))]

    for node in wanted:
        for source in sources(node):
            if source in wanted:
                group[root(source)] = root(node)
    return sum(root(n) is n for n in wanted)


def of_a_layer(model: WholeModel, batch: int, tokens: int, *, is_full: bool) -> Counts:
    """What a layer has."""
    period = _PERIODS.get(model.name, 1)
    one, two = (
        counts_of(planned(model, n, batch, tokens, is_full=is_full)) for n in (period, 2 * period)
    )
    names = {
        name: (two.names.get(name, 0) - one.names.get(name, 0)) / period
        for name in sorted({*one.names, *two.names})
    }
    return Counts(
        regions=(two.regions - one.regions) / period,
        operators=(two.operators - one.operators) / period,
        products=(two.products - one.products) / period,
        groups=(two.groups - one.groups) / period,
        names={name: n for name, n in names.items() if n},
    )


def row_line(name: str, batch: int, tokens: int, counts: Counts) -> str:
    """A row of the table."""
    left = " ".join(f"{n:g} {name}" for name, n in counts.names.items())
    return (
        f"{name:14s} batch {batch:3d}, {tokens:3d} tokens: {counts.regions:5.2f} regions, "
        f"{counts.products:5.2f} products of a library, {counts.groups:5.2f} groups of "
        f"{left or 'nothing'}"
    )


@click.command()
@click.option("--only", default=",".join(MODELS), help="Models, with commas.")
@click.option("--batches", default="1", help="Sequences of a step, with commas.")
@click.option("--tokens", default="1", help="Tokens of a step, with commas.")
@click.option("--full", is_flag=True, help="Windows are full.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write a JSON file.")
def main(only: str, batches: str, tokens: str, full: bool, output: Path | None) -> None:
    """Count what a layer of each model leaves to Inductor."""
    rows: list[dict[str, Any]] = []
    for name in only.split(","):
        # A window shorter than the cache, where one is to be full.
        sizes = {**MODELS[name].sizes}
        if full and "sliding_window" in sizes:
            sizes["sliding_window"] = _CONTEXT // 2
        model = replace(MODELS[name], sizes=sizes)
        asked = [(int(b), int(t)) for b in batches.split(",") for t in tokens.split(",")]
        for batch, count in asked:
            found = of_a_layer(model, batch, count, is_full=full)
            click.echo(row_line(name, batch, count, found))
            row = {"model": name, "batch": batch, "tokens": count, "full": full}
            rows.append({**row, **asdict(found)})
    if output is not None:
        document = {"commit": commit(""), "what": "a layer of a decode step", "rows": rows}
        output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
