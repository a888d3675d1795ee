"""A program of many sizes: its dimensions along axes whose size changes, and that it is the same
program at other sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from mirage_py.errors import UnsupportedError
from mirage_py.shapes.policy import ShapePolicy
from mirage_py.shapes.predicate import SizePredicate
from mirage_py.ugraph.checks.run_time_sizes import program_at_sizes
from mirage_py.ugraph.ir.index import const
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.rewrite.dims import with_dims

Bounds = Mapping[str, tuple[int, int]]


def dims_along(
    program: Program, axes: Mapping[tuple[str, int], str]
) -> list[tuple[str, tuple[str, int]]]:
    """Each dimension of the program that runs along one of ``axes``, axes of inputs by name, with
    that axis; in the order of reads.

    Raises UnsupportedError where such an axis is read at a position that is no dimension.
    """
    found: dict[tuple[str, tuple[str, int]], None] = {}
    for node in program.nodes:
        if node.op != "load":
            continue
        for axis, expr in enumerate(node.access.index):
            place = (node.access.tensor, axis)
            if place not in axes:
                continue
            if not expr.is_dim:
                raise not_a_dimension(place, expr)
            found[expr.name, place] = None
    return list(found)


def not_a_dimension(place: tuple[str, int], expr: object) -> UnsupportedError:
    """The refusal of an axis whose size cannot be known at launch."""
    return UnsupportedError(
        f"axis {place[1]} of {place[0]} is read at {expr}",
        why="a size that is known at launch has to be a dimension of its own",
        repair='use shapes="static"',
    )


def require_same(
    program: Program,
    dims: Mapping[str, str],
    probes: Iterable[Mapping[str, int]],
    at: Callable[[Mapping[str, int]], Program | None],
) -> None:
    """UnsupportedError unless ``at`` gives this very program at each of the sizes ``probes``;
    ``dims`` are its dimensions with the names of their sizes. None is another program.
    """
    for probe in probes:
        found = at(probe)
        want = _at(program, {dim: probe[name] for dim, name in dims.items()})
        if found is None or not _is_same(found, want, probe):
            sizes = ", ".join(f"{name} = {size}" for name, size in probe.items())
            raise UnsupportedError(
                f"the function is another program at {sizes}",
                why="something in it depends on the size: a number, a shape, a branch in Python",
                repair='use shapes="static", or pass what depends on the size as an argument',
            )


def probes_of(bounds: Bounds, tuned: Mapping[str, int]) -> list[dict[str, int]]:
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


def bounds_and_tuned(
    sizes: Mapping[str, int], policy: ShapePolicy
) -> tuple[dict[str, tuple[int, int]], dict[str, int]]:
    """The bucket of each size, and the size in it that its kernel is tuned for."""
    bounds = {name: policy.bucket(size) for name, size in sizes.items()}
    return bounds, {name: policy.tuned(size) for name, size in sizes.items()}


def within_kernel(
    bounds: Bounds, dims: Mapping[str, str], kernel: SizePredicate | None
) -> dict[str, tuple[int, int]]:
    """The bounds of sizes that a kernel reaches too, which says for itself for which sizes of its
    dimensions it is right.
    """
    found = dict(bounds)
    for clause in kernel.clauses if kernel is not None else ():
        name = dims.get(clause.name)
        hi = getattr(clause, "hi", None)
        if name is not None and hi is not None:
            found[name] = found[name][0], min(found[name][1], hi)
    return found


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
