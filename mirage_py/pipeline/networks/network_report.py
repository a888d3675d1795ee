"""The result of the graph level in lines."""

from __future__ import annotations

from collections.abc import Iterator

from mirage_py.networks.ir.graph import Graph
from mirage_py.pipeline.networks.network_evidence import NetworkEvidence
from mirage_py.search.networks.optimize_network import NetworkResult


def report_lines(result: NetworkResult, evidence: NetworkEvidence | None) -> Iterator[str]:
    """What was found, by which substitutions, and what was checked."""
    program, graph = result.program, result.graph
    yield (
        f"modelled {result.before_us:.1f} us -> {result.after_us:.1f} us ({result.speedup:.2f}x), "
        f"{len(program.nodes)} -> {_live(graph)} operators a call"
    )
    yield (
        f"saturation: {result.rounds} rounds, {result.nodes} e-nodes, bound {result.bound}; "
        f"extraction: {result.extraction}"
    )
    for step in result.steps:
        yield f"  {step}"
    if evidence is not None:
        yield f"verified: {evidence}"


def _live(graph: Graph) -> int:
    """Operators that are not computed once, of weights alone."""
    return sum(not known for known in graph.is_constant)
