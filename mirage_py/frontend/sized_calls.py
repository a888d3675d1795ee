"""One kernel for calls of many sizes: the program of a bucket, and that it is the same at each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from mirage_py.errors import UnsupportedError
from mirage_py.frontend.dynamic_axes import DynamicAxis, call_at
from mirage_py.frontend.torch.guards.call_key import Call
from mirage_py.frontend.torch.trace import TracedCall
from mirage_py.shapes.dispatch import DispatchTable
from mirage_py.shapes.policy import ShapePolicy
from mirage_py.shapes.predicate import SizePredicate
from mirage_py.ugraph.checks.run_time_sizes import program_at_sizes
from mirage_py.ugraph.ir.index import const
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.rewrite.dims import with_dims

E = TypeVar("E")

Trace = Callable[[Call], TracedCall]


@dataclass(slots=True)
class SizedGroup(Generic[E]):
    """Calls that differ in the sizes of ``axes`` alone, and what serves them."""

    signature: str
    axes: tuple[DynamicAxis, ...]
    table: DispatchTable[E] = field(default_factory=DispatchTable)

    def __str__(self) -> str:
        rows = "\n".join(f"  {line}" for line in str(self.table).splitlines())
        return f"({self.signature})\n{rows}"


@dataclass(frozen=True, slots=True)
class SizedProgram:
    """The program that was traced at the sizes a kernel is tuned for.

    ``dims`` has, for each dimension whose size may be another, the name of that size. It is the
    same program at all of ``bounds``, the smallest and the largest size of each name.
    """

    traced: TracedCall
    call: Call
    dims: Mapping[str, str]
    bounds: Mapping[str, tuple[int, int]]

    def validity(self, kernel: SizePredicate | None) -> SizePredicate:
        """The sizes, by name, for which a kernel of the program is right, that says for itself for
        which dimensions it is.
        """
        bounds = dict(self.bounds)
        for clause in kernel.clauses if kernel is not None else ():
            name = self.dims.get(clause.name)
            hi = getattr(clause, "hi", None)
            if name is not None and hi is not None:
                bounds[name] = bounds[name][0], min(bounds[name][1], hi)
        return SizePredicate.ranges(bounds)


def sized_program(
    call: Call,
    axes: Sequence[DynamicAxis],
    sizes: Mapping[str, int],
    policy: ShapePolicy,
    trace: Trace,
) -> SizedProgram:
    """Trace a call at the sizes to tune for, and again at others of its bucket, to see that the
    program is the same there.

    Raises UnsupportedError where it is not, or where a size is no dimension of the program.
    """
    bounds = {name: policy.bucket(size) for name, size in sizes.items()}
    tuned = {name: policy.tuned(size) for name, size in sizes.items()}
    at_tuned = call_at(call, axes, tuned)
    traced = trace(at_tuned)
    dims = _dims(traced, axes)
    for probe in _probes(bounds, tuned):
        other = trace(call_at(call, axes, probe))
        found = other.program
        want = _at(traced.program, {dim: probe[name] for dim, name in dims.items()})
        if not (_is_same(found, want, probe) and other.writes_like(traced)):
            at = ", ".join(f"{name} = {size}" for name, size in probe.items())
            raise UnsupportedError(
                f"the function is another program at {at}",
                why="something in it depends on the size: a number, a shape, a branch in Python",
                repair='use shapes="static", or pass what depends on the size as an argument',
            )
    return SizedProgram(traced, at_tuned, dims, bounds)


def _at(program: Program, sizes: Mapping[str, int]) -> Program:
    """The program at other sizes; what has one point is no dimension, as in a trace."""
    points = {dim: const(0) for dim, size in sizes.items() if size == 1}
    found = program_at_sizes(program, sizes)
    return with_dims(found, points, {}) if points else found


def _is_same(program: Program, other: Program, sizes: Mapping[str, int]) -> bool:
    """Whether both are one program. Of one row it may be spelt in another way: a matmul is a sum of
    products there.
    """
    if program.digest == other.digest:
        return True
    if 1 not in sizes.values():
        return False
    # Here and not above: most functions have no need of it.
    from mirage_py.verify.field_test.programs import compare_programs

    return compare_programs(program, other).equal


def _dims(traced: TracedCall, axes: Sequence[DynamicAxis]) -> dict[str, str]:
    """The dimension of the program that runs along each of the axes, with the name of its size."""
    program = traced.program
    names = {(a.leaf, a.axis): a.name for a in axes}
    tensors = {
        tensor.name: leaf for tensor, leaf in zip(program.inputs, traced.arguments, strict=False)
    }
    dims: dict[str, str] = {}
    for node in program.nodes:
        if node.op != "load" or node.access.tensor not in tensors:
            continue
        leaf = tensors[node.access.tensor]
        for axis, expr in enumerate(node.access.index):
            name = names.get((leaf, axis))
            if name is None:
                continue
            if not expr.is_dim or dims.setdefault(expr.name, name) != name:
                raise UnsupportedError(
                    f"axis {axis} of {node.access.tensor} is read at {expr}",
                    why="a size that is known at launch has to be a dimension of its own",
                    repair='use shapes="static"',
                )
    return dims


def _probes(
    bounds: Mapping[str, tuple[int, int]], tuned: Mapping[str, int]
) -> list[dict[str, int]]:
    """The smallest sizes, and others that nothing divides, where they are not the tuned ones."""
    smallest = {name: lo for name, (lo, _) in bounds.items()}
    odd = {
        name: min(hi, max(lo, 2 * (tuned[name] // 3) + 1 - 2 * n))
        for n, (name, (lo, hi)) in enumerate(bounds.items())
    }
    larger = {
        name: min(hi, 2 * tuned[name] + 1 + 2 * n)
        for n, (name, (_, hi)) in enumerate(bounds.items())
    }
    return [p for p in (smallest, odd, larger) if p != dict(tuned)]
