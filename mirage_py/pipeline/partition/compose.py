"""The plans of the parts in sequence: one plan for the whole program.

A part's plan may be over a program that splits a dimension (d_part, and a smaller d). The whole
program cannot be split alike, as another part may split it otherwise or not at all. So what a part
has of its own is renamed apart and added to the whole program's dimensions: kernels use it, no node
of the program does. Nothing says any more that d_part * d is the whole program's d; so such a
composite cannot be tested at other sizes than its own. It is verified part by part: each plan
against the program of its part. That the parts in sequence are the program is by construction, and
on a GPU the numerical check compares the composite with the whole program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mirage_py.errors import InputError
from mirage_py.pipeline.partition.partition import Partition
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import REDUCING, Access, Attr, Node
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Dim, Tensor
from mirage_py.ugraph.ir.renaming import free_name
from mirage_py.ugraph.ir.ugraph import BlockGraph, Kernel, LibraryCall, Section, UGraph
from mirage_py.ugraph.rewrite.split_dim import outer_dim


def compose(partition: Partition, plans: Sequence[Plan]) -> Plan:
    """One plan of ``partition.program`` from a plan for each part, in order.

    Tensors between parts become intermediates, unless they are outputs of the program. Raises
    InputError where plans and parts do not belong together.
    """
    program = partition.program
    _check(partition, plans)
    taken = {*program.dim_names, *program.tensors, *(t.name for t in partition.cuts)}
    dims = list(program.dims)
    kernels: list[tuple[Kernel, _Renaming]] = []
    own: list[Tensor] = []
    for plan in plans:
        ugraph = plan.ugraph
        renaming = _Renaming(
            _placed_dims(dims, ugraph.program.dims, taken),
            {t.name: free_name(t.name, taken) for t in ugraph.intermediates},
        )
        own += [replace(t, name=renaming.tensors[t.name]) for t in ugraph.intermediates]
        kernels += [(k, renaming) for k in ugraph.kernels]
    whole = replace(program, dims=tuple(dims))
    order = whole.dim_names
    called: set[str] = set()
    between = [t for t in partition.cuts if t.name not in program.tensors]
    ugraph = UGraph(
        whole,
        tuple(_called(r.kernel(k, order), free_name(k.name, called)) for k, r in kernels),
        (*between, *own),
    )
    validate_ugraph(ugraph)
    return Plan(ugraph, tuple(o for plan in plans for o in plan.options), plans[0].backend)


def own_dims(partition: Partition, plan: Plan) -> tuple[str, ...]:
    """The dimensions of a composite that only kernels use; with none it can be tested whole."""
    return tuple(d for d in plan.ugraph.program.dim_names if d not in partition.program.sizes)


def _check(partition: Partition, plans: Sequence[Plan]) -> None:
    if len(plans) != len(partition.parts):
        raise InputError(f"{len(plans)} plans for {len(partition.parts)} parts")
    for part, plan in zip(partition.parts, plans, strict=True):
        mine = plan.ugraph.program
        outputs = [o.tensor for o in part.outputs]
        if mine.inputs != part.inputs or [o.tensor for o in mine.outputs] != outputs:
            raise InputError(
                f"the plan is for '{mine.name}'",
                where=part.name,
                why="its inputs or outputs are others than those of the part",
                repair="pass the plans in the order of the parts",
            )
        if plan.backend != plans[0].backend:
            raise InputError(f"back ends {plans[0].backend} and {plan.backend} in one plan")


def _called(kernel: Kernel, name: str) -> Kernel:
    body = getattr(kernel, "body", None)
    kernel = replace(kernel, name=name)
    return replace(kernel, body=replace(body, name=name)) if body else kernel


def _placed_dims(dims: list[Dim], mine: Sequence[Dim], taken: set[str]) -> dict[str, str]:
    """New names for a part's dimensions. Those that the whole program lacks, or has in another
    size, are added to ``dims`` after their neighbours.
    """
    sizes = {d.name: d.size for d in dims}
    new = {d.name: d.name for d in mine if sizes.get(d.name) == d.size}
    halves = {outer_dim(d.name): d.name for d in mine}
    # Inner halves of split dimensions first: outer ones are called after them.
    for d in sorted(mine, key=lambda d: d.name in halves):
        if d.name not in new:
            inner = new.get(halves.get(d.name, ""))
            new[d.name] = free_name(outer_dim(inner) if inner else d.name, taken)
    place = 0
    for d in mine:
        if new[d.name] in sizes:
            place = max(place, [x.name for x in dims].index(d.name) + 1)
        else:
            dims.insert(place, Dim(new[d.name], d.size))
            place += 1
    return new


@dataclass(frozen=True, slots=True)
class _Renaming:
    """The names of a part in the whole: of its dimensions, and of its own intermediates."""

    dims: Mapping[str, str]
    tensors: Mapping[str, str]

    def kernel(self, kernel: Kernel, order: Sequence[str]) -> Kernel:
        if isinstance(kernel, LibraryCall):
            args = tuple(map(self._tensor, kernel.args))
            body = kernel.body and self._block(kernel.body, order)
            return replace(kernel, args=args, result=self._tensor(kernel.result), body=body)
        return self._block(kernel, order)

    def _block(self, block: BlockGraph, order: Sequence[str]) -> BlockGraph:
        return replace(
            block,
            grid=tuple(replace(a, dim=self.dims[a.dim]) for a in block.grid),
            nodes=tuple(self._node(n, order) for n in block.nodes),
            sections=tuple(
                Section(s.nodes, None if s.loop is None else self.dims[s.loop], s.tile)
                for s in block.sections
            ),
        )

    def _node(self, node: Node, order: Sequence[str]) -> Node:
        dims = [self.dims[d] for d in node.dims]
        return replace(node, attr=self._attr(node), dims=tuple(d for d in order if d in dims))

    def _attr(self, node: Node) -> Attr:
        attr = node.attr
        exprs: dict[str, IndexExpr] = {old: ix.dim(new) for old, new in self.dims.items()}
        if isinstance(attr, Access):
            index = tuple(e.substitute(exprs) for e in attr.index)
            return Access(self._tensor(attr.tensor), index)
        if isinstance(attr, (IndexExpr, Predicate)):
            return attr.substitute(exprs)
        if node.op == "size":
            return self.dims[str(attr)]
        if node.op in REDUCING:
            return tuple(self.dims[d] for d in node.reduced)
        return attr

    def _tensor(self, name: str) -> str:
        return self.tensors.get(name, name)
