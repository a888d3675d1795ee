"""A model without a GPU: imported, saturated, extracted, verified, emitted; gain by the model."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from typing import Any

import torch
from torch.fx import GraphModule

from benchmarks.graphs.models import model_at
from mirage_py.dynamo.networks.optimized_module import held_tensors
from mirage_py.dynamo.networks.rewriting import LIMITS
from mirage_py.frontend.networks.aten_emit import emitted_network
from mirage_py.frontend.networks.aten_import import imported_network
from mirage_py.networks.operators.opaque import OPAQUE
from mirage_py.pipeline.networks.network_evidence import check_parts
from mirage_py.search.networks.optimize_network import optimize_network
from mirage_py.targets import target

Json = dict[str, Any]


def dry_row(name: str, batch: int, *, effort: str, budget_s: float, target_name: str) -> Json:
    """What the graph level makes of a model whose tensors have no data.

    ``budget_s`` bounds the checks, in seconds; the bounds of the search are counts.
    """
    begin = time.process_time()
    program = exported(name, batch)
    module = program.graph_module
    constants = dict(held_tensors(program))
    network = imported_network(module, constants)
    imported_s = time.process_time()
    result = optimize_network(network.graph, target(target_name), limits=LIMITS[effort])
    searched_s = time.process_time()
    evidence = check_parts(
        result.parts, should_stop=lambda: time.process_time() - searched_s > budget_s
    )
    emitted = emitted_network(network, result.graph, module, constants)
    kinds = Counter(node.operator for node in network.graph.nodes)
    after = zip(result.graph.nodes, result.graph.is_constant, strict=True)
    return {
        "model": name,
        "batch": batch,
        "operators": len(network.graph.nodes),
        "opaque": kinds[OPAQUE.name],
        "operators_after": sum(not known for _, known in after),
        "calls_after": sum(n.op == "call_function" for n in emitted.graph.nodes),
        "before_us": round(result.before_us, 2),
        "after_us": round(result.after_us, 2),
        "speedup": round(result.speedup, 3),
        "steps": [{"rule": s.rule, "times": s.times, "proof": s.proof} for s in result.steps],
        "e_nodes": result.nodes,
        "rounds": result.rounds,
        "bound": result.bound,
        "extraction": result.extraction,
        "verified": {
            "equal": evidence.equal,
            "parts": evidence.parts,
            "tested": evidence.tested,
            "ran": evidence.ran,
            "float_error": evidence.float_error,
            "skipped": list(evidence.skipped),
            "fault": evidence.fault,
        },
        "cpu_s": {
            "export": round(imported_s - begin, 1),
            "search": round(searched_s - imported_s, 1),
            "checks": round(time.process_time() - searched_s, 1),
        },
    }


def emitted_model(name: str, batch: int) -> tuple[GraphModule, dict[str, torch.Tensor]]:
    """A model as the graph level emits it, by modelled costs, and its weights."""
    # On the device "meta" convolutions do not keep channels last.
    program = exported(name, batch, "cpu")
    module = program.graph_module
    constants = {n: t.detach() for n, t in held_tensors(program).items()}
    network = imported_network(module, constants)
    result = optimize_network(network.graph, target("h200"), limits=LIMITS["auto"])
    return emitted_network(network, result.graph, module, constants), constants


def exported(name: str, batch: int, device: str = "meta") -> torch.export.ExportedProgram:
    """A model as a functional exported program."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch about itself
        model, inputs = model_at(name, batch, device)
        return torch.export.export(model, inputs, strict=False).run_decompositions({})
