"""A region's program for many sizes: traced where its kernel is tuned, the same at others.

As for calls of a decorated function (``mirage_py/frontend/torch/sized_programs.py``): a size is a
dimension of the program, and a bucket of sizes has one kernel. Two things are a region's own. Torch
may have two symbols for what operators make one size, as the keys and the values of a cache: the
program tells, since one dimension runs along both. And a dimension that is in no result, as the
tokens of a cache that one query reads, only says how often a loop runs: few buckets will do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch.fx import GraphModule

from mirage_py.dynamo.regions.region_program import RegionProgram, region_program
from mirage_py.dynamo.regions.symbolic_sizes import Sizes, SymbolicSizes
from mirage_py.errors import UnsupportedError
from mirage_py.frontend.torch.sized_programs import (
    bounds_and_tuned,
    dims_along,
    not_a_dimension,
    probes_of,
    require_same,
    within_kernel,
)
from mirage_py.shapes.policy import BUCKETED, ShapePolicy
from mirage_py.shapes.predicate import Equal, SizePredicate
from mirage_py.ugraph.ir.program import Program

# Ends of buckets where nobody gives them: of rows, and of what is summed over alone. A search each,
# in the middle of a model's calls: fewer than those of a decorated function.
ROW_EDGES = (16, 64, 512, 4096, 32768, 262144)
LOOP_EDGES = (512, 4096, 32768, 262144)

Bounds = dict[str, tuple[int, int]]


@dataclass(frozen=True)
class SizedRegion:
    """``region`` at the sizes it is tuned for. ``dims`` has the size of each of its open
    dimensions, in names of ``symbolic``; ``same`` the first of the names that are one size.
    """

    module: GraphModule
    symbolic: SymbolicSizes
    region: RegionProgram
    policy: ShapePolicy
    dims: Mapping[str, str]
    same: Mapping[str, str]
    bounds: Bounds
    tuned: Sizes

    def validity(self, kernel: SizePredicate | None) -> SizePredicate:
        """The sizes for which a kernel of the region is right, that says for itself for which
        dimensions it is.
        """
        return self._within(self.bounds, kernel)

    def reaches(self, sizes: Mapping[str, int], kernel: SizePredicate | None) -> SizePredicate:
        """The sizes of the bucket of ``sizes`` for which a kernel of the region is right, which is
        tuned for others. Raises UnsupportedError where that is another program.
        """
        bounds, tuned = _buckets(sizes, self.policy, self.loops)
        _require_same(self, bounds, tuned)
        return self._within(bounds, kernel)

    @property
    def loops(self) -> set[str]:
        """The names whose dimensions are in no result."""
        outputs = self.region.program.outputs
        kept = {d for o in outputs for e in o.index for d in e.dims()}
        summed = set(self.dims.values()) - {text for d, text in self.dims.items() if d in kept}
        return {name for name, one in self.same.items() if one in summed}

    def at(self, sizes: Sizes) -> RegionProgram:
        """The region with its results laid out as torch expects them at these sizes."""
        strides = self.symbolic.result_strides(sizes)
        results = tuple(
            replace(r, strides=s) for r, s in zip(self.region.results, strides, strict=True)
        )
        return replace(self.region, results=results)

    def _within(self, bounds: Bounds, kernel: SizePredicate | None) -> SizePredicate:
        names = {d: text for d, text in self.dims.items() if text in bounds}
        found = within_kernel(bounds, names, kernel)
        largest = {n: hi for n, (_, hi) in found.items()}
        sizes = tuple(largest[self.same[n]] for n in self.symbolic.names)
        for clause in kernel.clauses if kernel is not None else ():
            text = self.dims.get(clause.name)
            if text is None or text in bounds:
                continue
            (most,) = self.symbolic.evaluated([text], sizes)
            if most > getattr(clause, "hi", most):
                raise UnsupportedError(
                    f"the kernel is right for {clause}", why=f"that size is {text}, up to {most}"
                )
        first = {n: found[n] for n in found if self.same[n] == n}
        equal = [Equal(n, one) for n, one in self.same.items() if n != one]
        return SizePredicate((*SizePredicate.ranges(first).clauses, *equal))


def sized_region(
    module: GraphModule, symbolic: SymbolicSizes, sizes: Mapping[str, int], policy: ShapePolicy
) -> SizedRegion:
    """The program for the bucket of ``sizes``.

    Raises UnsupportedError where it is another one at other sizes, or where a size is no dimension.
    """
    found = _traced(module, symbolic, sizes, policy, set())
    if found.loops and policy.kind == BUCKETED and not policy.edges:
        found = _traced(module, symbolic, sizes, policy, found.loops)
    _require_same(found, found.bounds, dict(zip(symbolic.names, found.tuned, strict=True)))
    return found


def _traced(
    module: GraphModule,
    symbolic: SymbolicSizes,
    sizes: Mapping[str, int],
    policy: ShapePolicy,
    loops: set[str],
) -> SizedRegion:
    bounds, tuned = _buckets(sizes, policy, loops)
    at = tuple(tuned[n] for n in symbolic.names)
    region = region_program(module, symbolic.layouts(at))
    dims, same = _dims(region, symbolic)
    region = replace(region, dims=tuple(dims))
    return SizedRegion(module, symbolic, region, policy, dims, same, bounds, at)


def _policy(policy: ShapePolicy, is_loop: bool) -> ShapePolicy:
    if policy.kind != BUCKETED or policy.edges:
        return policy
    return replace(policy, edges=LOOP_EDGES if is_loop else ROW_EDGES)


def _buckets(
    sizes: Mapping[str, int], policy: ShapePolicy, loops: set[str]
) -> tuple[Bounds, dict[str, int]]:
    bounds: Bounds = {}
    tuned: dict[str, int] = {}
    for name, size in sizes.items():
        bucket, at = bounds_and_tuned({name: size}, _policy(policy, name in loops))
        bounds |= bucket
        tuned |= at
    return bounds, tuned


def _dims(region: RegionProgram, symbolic: SymbolicSizes) -> tuple[dict[str, str], dict[str, str]]:
    """The size of each dimension that is open, and of names that are one size the first one."""
    tensors = {n: t.name for t, n in zip(region.program.inputs, region.inputs, strict=True)}
    axes = {(tensors[n], axis): text for (n, axis), text in symbolic.axes().items() if n in tensors}
    dims: dict[str, str] = {}
    same = {name: name for name in symbolic.names}
    for dim, place in dims_along(region.program, axes):
        one, other = dims.setdefault(dim, axes[place]), axes[place]
        if one == other:
            continue
        if one not in same or other not in same:
            raise not_a_dimension(place, f"{dim}, which is {one} too")
        first, gone = same[one], same[other]
        same = {n: first if s == gone else s for n, s in same.items()}
    return {d: same.get(text, text) for d, text in dims.items()}, same


def _require_same(sized: SizedRegion, bounds: Bounds, tuned: Mapping[str, int]) -> None:
    symbolic, same = sized.symbolic, sized.same
    first = {n: b for n, b in bounds.items() if same[n] == n}
    probes: list[dict[str, int]] = []
    texts = list(dict.fromkeys(sized.dims.values()))
    for probe in (*probes_of(first, {n: tuned[n] for n in first}), {n: tuned[n] for n in first}):
        sizes = tuple(probe[same[n]] for n in symbolic.names)
        derived = symbolic.evaluated(texts, sizes)
        probes.append({**dict(zip(texts, derived, strict=True)), **probe})

    def at(probe: Mapping[str, int]) -> Program | None:
        sizes = tuple(probe[same[n]] for n in symbolic.names)
        layouts = symbolic.layouts(sizes)
        found = region_program(sized.module, layouts)
        alike = found.inputs == sized.region.inputs and _arranged_alike(sized, found, sizes)
        return found.program if alike else None

    require_same(sized.region.program, sized.dims, probes, at)


def _arranged_alike(sized: SizedRegion, found: RegionProgram, sizes: Sizes) -> bool:
    """Whether results lie as torch's expressions say, and are written in the same order."""
    expected = zip(
        sized.region.results,
        sized.symbolic.result_strides(sizes),
        sized.symbolic.result_shapes(sizes),
        strict=True,
    )
    for result, (tuned, strides, shape) in zip(found.results, expected, strict=True):
        if (result.order, result.is_copy) != (tuned.order, tuned.is_copy):
            return False
        steps = zip(result.strides, strides, shape, strict=True)
        if any(have != want and n > 1 for have, want, n in steps):
            return False
    return True
