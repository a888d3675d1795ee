"""The validator: rules of the IR for programs and whole tensors.

A graph that breaks one raises ValidationError with the rule, the place and what would be right.
Rules of single nodes are in ``node_rules``, those of sections, loops, accumulators and stores in
``block_rules``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mirage_py.errors import UnsupportedError, ValidationError
from mirage_py.reasons import Code
from mirage_py.ugraph.checks.block_rules import check_block
from mirage_py.ugraph.checks.coverage import coverage_fault
from mirage_py.ugraph.checks.node_rules import check_access, check_name, check_node, check_title
from mirage_py.ugraph.interpret.library import library_shape
from mirage_py.ugraph.ir.index import IndexExpr
from mirage_py.ugraph.ir.program import Output, Program, Tensor
from mirage_py.ugraph.ir.ugraph import TORCH, BlockGraph, LibraryCall, UGraph
from mirage_py.ugraph.operators import EFFECT, STATE, operator


def validate_program(program: Program) -> None:
    """Raise ValidationError unless the program keeps every rule."""
    check_title(program.name)
    for d in program.dims:
        check_name("dimension", d.name, program.name)
        if d.size < 1:
            raise ValidationError(
                f"dimension '{d.name}' has size {d.size}",
                where=program.name,
                repair="give it at least one element",
            )
    _check_distinct("dimension", program.dim_names, program.name)
    if not program.outputs:
        raise ValidationError("the program has no output", where=program.name)
    _check_tensors([*program.inputs, *(o.tensor for o in program.outputs)], program.name)
    readable = {t.name: t for t in program.inputs}
    for position in range(len(program.nodes)):
        check_node(program.nodes, position, program.sizes, readable, f"program {program.name}")
        op = program.nodes[position].op
        if operator(op).kind in (STATE, EFFECT):
            raise ValidationError(
                f"'{op}' in a program",
                where=f"{program.name}, %{position}",
                why="accumulators and stores belong to block graphs",
                code=Code.BLOCK_OPERATOR,
                repair="use sum or max; results are the program's outputs",
            )
    for result in program.outputs:
        _check_output(program, result)


def validate_ugraph(ugraph: UGraph) -> None:
    """Raise ValidationError unless program and µGraph keep every rule.

    Open tiles are allowed: a family is a µGraph too.
    """
    program = ugraph.program
    validate_program(program)
    inputs = {t.name: t for t in program.inputs}
    _check_tensors(
        [*program.inputs, *(o.tensor for o in program.outputs), *ugraph.intermediates], program.name
    )
    _check_distinct("kernel", [k.name for k in ugraph.kernels], program.name)
    writable = {name: t for name, t in ugraph.tensors.items() if name not in inputs}
    stores: dict[str, list[tuple[IndexExpr, ...]]] = {name: [] for name in writable}
    ways: dict[str, dict[str, None]] = {name: {} for name in writable}
    calls: dict[str, LibraryCall] = {}
    for kernel in ugraph.kernels:
        check_name("kernel", kernel.name, program.name)
        readable = inputs | {n: t for n, t in writable.items() if stores[n] or n in calls}
        if isinstance(kernel, BlockGraph):
            check_block(kernel, program.sizes, readable, writable)
            for _, store in kernel.stores():
                stores[store.access.tensor].append(store.access.index)
                ways[store.access.tensor][f"{store.op} in {kernel.name}"] = None
        else:
            for name in kernel.written_tensors:
                if name in calls:
                    _fail_coverage(f"two library calls write '{name}'", program.name)
                calls[name] = kernel
            if kernel.body is not None:
                _check_torch(kernel, kernel.body, program, readable, writable)
            else:
                _check_library(kernel, readable, writable)
    for name, tensor in writable.items():
        _check_added(name, tuple(ways[name]), program.name)
        if name not in calls:
            _check_coverage(stores[name], tensor, program, f"{program.name}, tensor {name}")
        elif stores[name]:
            _fail_coverage(f"a library call and a store write '{name}'", program.name)


def _check_added(name: str, ways: tuple[str, ...], where: str) -> None:
    """One kernel makes all additions to a tensor, and nothing else writes it."""
    if len(ways) > 1 and any(way.startswith("store_add") for way in ways):
        raise ValidationError(
            f"'{name}' is written by {', '.join(ways)}",
            where=where,
            why="a tensor that is added to is zeroed right before its kernel",
            repair="let all stores to it be store_add, in one kernel",
        )


def _check_output(program: Program, result: Output) -> None:
    where = f"{program.name}, output {result.tensor.name}"
    if not 0 <= result.node < len(program.nodes):
        raise ValidationError(f"there is no node %{result.node}", where=where)
    check_access(result.index, result.tensor, program.sizes, where)
    named = [d for e in result.index for d in e.dims()]
    lost = [d for d in program.nodes[result.node].dims if d not in named]
    if lost:
        raise ValidationError(
            f"the indices do not say where {', '.join(lost)} goes",
            where=where,
            repair="add the dimension to the indices, or reduce over it",
        )
    _check_coverage([result.index], result.tensor, program, where)


def _check_tensors(tensors: Sequence[Tensor], where: str) -> None:
    _check_distinct("tensor", [t.name for t in tensors], where)
    for tensor in tensors:
        check_name("tensor", tensor.name, where)
        if any(extent < 1 for extent in tensor.shape):
            raise ValidationError(
                f"tensor '{tensor.name}' has shape {list(tensor.shape)}",
                where=where,
                repair="give every axis at least one element",
            )
        if tensor.strides is not None and len(tensor.strides) != len(tensor.shape):
            raise ValidationError(
                f"tensor '{tensor.name}' has {len(tensor.shape)} axes and "
                f"{len(tensor.strides)} strides",
                where=where,
                repair="give one stride per axis, or none for row-major",
            )


def _check_torch(
    call: LibraryCall,
    body: BlockGraph,
    program: Program,
    readable: Mapping[str, Tensor],
    writable: Mapping[str, Tensor],
) -> None:
    """A call of PyTorch: a block graph of operators of programs, which writes each result once."""
    where = f"library call {call.name}"
    written = [n.access.tensor for _, n in body.stores()]
    ops = [n.op for n in body.nodes if operator(n.op).kind == STATE or n.op == "store_add"]
    if call.op not in TORCH:
        raise ValidationError(f"'{call.op}' does not take a block graph", where=where)
    if body.grid or len(body.sections) != 1 or body.sections[0].loop or ops:
        raise ValidationError(
            "its block graph is no part of a program",
            where=where,
            why="PyTorch computes whole tensors",
            repair="leave out grid, loops and accumulators",
        )
    named = call.args == body.read_tensors and call.result == next(iter(written), "")
    if not named or len(dict.fromkeys(written)) < len(written) or body.name != call.name:
        raise ValidationError(
            f"{call.op}({', '.join(call.args)}) -> {call.result} is not what its block graph says",
            where=where,
        )
    check_block(body, program.sizes, readable, writable)
    for _, store in body.stores():
        tensor = writable[store.access.tensor]
        _check_coverage([store.access.index], tensor, program, where)


def _check_library(
    call: LibraryCall, readable: Mapping[str, Tensor], writable: Mapping[str, Tensor]
) -> None:
    where = f"library call {call.name}"
    for name in call.args:
        if name not in readable:
            raise ValidationError(
                f"tensor '{name}' is read before it is written, or does not exist",
                where=where,
                repair="order the kernels so that writers come first",
            )
    if call.result not in writable:
        raise ValidationError(
            f"'{call.result}' is neither an output nor an intermediate", where=where
        )
    try:
        shape = library_shape(call, [readable[name].shape for name in call.args])
    except UnsupportedError as error:
        raise ValidationError(error.what, where=where, why=error.why, repair=error.repair) from None
    if shape != writable[call.result].shape:
        raise ValidationError(
            f"the result has shape {list(shape)}, "
            f"'{call.result}' has {list(writable[call.result].shape)}",
            where=where,
        )


def _check_coverage(
    stores: Sequence[tuple[IndexExpr, ...]], tensor: Tensor, program: Program, where: str
) -> None:
    fault = coverage_fault(stores, tensor.shape, program.sizes)
    if fault:
        _fail_coverage(fault, where)


def _fail_coverage(fault: str, where: str) -> None:
    raise ValidationError(
        fault,
        where=where,
        why="each element must be written exactly once",
        repair="let the indices of all stores together run over every element once",
    )


def _check_distinct(what: str, names: Iterable[str], where: str) -> None:
    seen: dict[str, None] = {}
    for name in names:
        if name in seen:
            raise ValidationError(f"two {what}s are called '{name}'", where=where)
        seen[name] = None
