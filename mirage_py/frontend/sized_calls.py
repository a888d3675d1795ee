"""One kernel for calls of many sizes: the program of a bucket, and that it is the same at each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from mirage_py.frontend.dynamic_axes import DynamicAxis, call_at
from mirage_py.frontend.torch.guards.call_key import Call
from mirage_py.frontend.torch.sized_programs import (
    bounds_and_tuned,
    dims_along,
    not_a_dimension,
    probes_of,
    require_same,
    within_kernel,
)
from mirage_py.frontend.torch.trace import TracedCall
from mirage_py.shapes.dispatch import DispatchTable
from mirage_py.shapes.policy import ShapePolicy
from mirage_py.shapes.predicate import SizePredicate
from mirage_py.ugraph.ir.program import Program

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
        return SizePredicate.ranges(within_kernel(self.bounds, self.dims, kernel))


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
    bounds, tuned = bounds_and_tuned(sizes, policy)
    at_tuned = call_at(call, axes, tuned)
    traced = trace(at_tuned)
    dims = _dims(traced, axes)

    def at(probe: Mapping[str, int]) -> Program | None:
        other = trace(call_at(call, axes, probe))
        is_like = other.writes_like(traced) and other.reads_like(traced)
        return other.program if is_like else None

    require_same(traced.program, dims, probes_of(bounds, tuned), at)
    return SizedProgram(traced, at_tuned, dims, bounds)


def _dims(traced: TracedCall, axes: Sequence[DynamicAxis]) -> dict[str, str]:
    """The dimension of the program that runs along each of the axes, with the name of its size."""
    tensors: dict[int, list[str]] = {}
    for tensor, leaf in zip(traced.program.inputs, traced.arguments, strict=False):
        tensors.setdefault(leaf, []).append(tensor.name)
    names = {(tensor, a.axis): a.name for a in axes for tensor in tensors.get(a.leaf, ())}
    dims: dict[str, str] = {}
    for dim, place in dims_along(traced.program, names):
        if dims.setdefault(dim, names[place]) != names[place]:
            raise not_a_dimension(place, dim)
    return dims
