"""Parts that are alike but for names: one is searched, its plans are renamed for the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mirage_py.codegen.text.names import EmittedNames, renamed_plan
from mirage_py.pipeline.partition.part_choice import Chosen, Picked, torch_picked
from mirage_py.pipeline.selection.code_reports import CodeReports
from mirage_py.result import Evidence
from mirage_py.targets import Target
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import Access
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Dim, Program
from mirage_py.ugraph.ir.renaming import free_name
from mirage_py.ugraph.ir.ugraph import LibraryCall, UGraph
from mirage_py.ugraph.rewrite.split_dim import outer_dim


def alike(parts: Sequence[Program]) -> tuple[int, ...]:
    """For each part the first one that is the same program but for names, and for the order of
    dimensions and of tensors; perhaps itself.
    """
    first: dict[str, int] = {}
    return tuple(first.setdefault(_form(part).digest, n) for n, part in enumerate(parts))


@dataclass(frozen=True, slots=True)
class _Form:
    """Names in the order in which the nodes of a part use them, and the ``digest`` of the part
    without names.
    """

    tensors: tuple[str, ...]
    dims: tuple[str, ...]
    digest: str


def _form(part: Program) -> _Form:
    tensors: dict[str, None] = {}
    dims: dict[str, None] = {}
    for node in part.nodes:
        if isinstance(node.attr, Access):
            tensors.update(dict.fromkeys(t for t in node.attr.tensors if t))
        if isinstance(node.attr, Access | IndexExpr | Predicate):
            dims.update(dict.fromkeys(node.attr.dims()))
        dims.update(dict.fromkeys(node.dims))
    outputs = sorted(part.outputs, key=lambda o: (o.node, *map(str, o.index)))
    tensors.update(dict.fromkeys(o.tensor.name for o in outputs))
    tensors.update(dict.fromkeys(part.tensors))
    dims.update(dict.fromkeys(part.dim_names))
    names = EmittedNames(
        {name: f"t{n}" for n, name in enumerate(tensors)},
        {name: f"d{n}" for n, name in enumerate(dims)},
        {},
    )
    own = renamed_plan(Plan(UGraph(part, ()), ()), names).ugraph.program
    order = [names.dims[d] for d in dims]
    known = own.tensors
    made = {o.tensor.name: o for o in own.outputs}
    plain = replace(
        own,
        dims=tuple(Dim(d, own.sizes[d]) for d in order),
        inputs=tuple(known[n] for t in tensors if (n := names.tensors[t]) not in made),
        nodes=tuple(replace(n, dims=tuple(d for d in order if d in n.dims)) for n in own.nodes),
        outputs=tuple(made[names.tensors[o.tensor.name]] for o in outputs),
    )
    return _Form(tuple(tensors), tuple(dims), plain.digest)


def renamed(found: Chosen, old: Program, new: Program, target: Target) -> Chosen:
    """What was found for one part, for another that is alike."""
    picked = {b: _renamed(p, old, new) for b, p in found.picked.items()}
    timed = None if found.by_torch is None else found.by_torch.time_us
    # Its search is that of the first one.
    by_torch = torch_picked(new, target, timed)
    return replace(found, result=None, picked=picked, by_torch=by_torch)


def _renamed(picked: Picked, old: Program, new: Program) -> Picked:
    ugraph = picked.plan.ugraph
    before, after = _form(old), _form(new)
    tensors = dict(zip(before.tensors, after.tensors, strict=True))
    dims = dict(zip(before.dims, after.dims, strict=True))
    taken = {*new.tensors, *new.dim_names}
    for t in ugraph.intermediates:
        tensors[t.name] = free_name(t.name, taken)
    halves = {outer_dim(d): d for d in old.dim_names}
    for d in ugraph.program.dim_names:
        if d not in dims:
            inner = dims.get(halves.get(d, ""))
            dims[d] = free_name(outer_dim(inner) if inner else d, taken)
    kernels = {k.name: _of_part(k.name, old.name, new.name) for k in ugraph.kernels}
    plan = renamed_plan(picked.plan, EmittedNames(tensors, dims, kernels))
    called = tuple(
        replace(k, name=kernels[k.name]) if isinstance(k, LibraryCall) else k
        for k in plan.ugraph.kernels
    )
    made = {o.tensor.name: o for o in plan.ugraph.program.outputs}
    outputs = tuple(made[o.tensor.name] for o in new.outputs)
    program = replace(plan.ugraph.program, name=new.name, inputs=new.inputs, outputs=outputs)
    plan = replace(plan, ugraph=replace(plan.ugraph, program=program, kernels=called))
    evidence = picked.evidence and _about(picked.evidence, kernels)
    return replace(picked, plan=plan, evidence=evidence)


def _about(evidence: Evidence, kernels: Mapping[str, str]) -> Evidence:
    """The same evidence, which says of each kernel what it is called here. A proof is of the part
    that was searched.
    """

    def code() -> Iterator[Mapping[str, Any]]:
        for report in evidence.code:
            yield {**report, "kernel": kernels.get(report["kernel"], report["kernel"])}

    return replace(evidence, code=CodeReports(code), proof=None)


def _of_part(kernel: str, old: str, new: str) -> str:
    return new + kernel.removeprefix(old) if kernel.startswith(old) else kernel
