"""The kernels for a memory checker: the best plan of each kind of each example.

``python -m benchmarks.checks.sanitize_plans DIR [NAME ...] [--backend cuda] [--size H=32]``
searches where egglog is and writes one JSON file for each example. Reading them needs neither
egglog nor lark. Of CUDA plans, those in clusters are a kind of their own, as are loops over
products with two warp groups that compute, and each kind comes with other paths of its tiles and
products too, where that makes another text (``kernel_forms.py``); of details such as the form of
stores or of maxima each example has a few plans. At the end it says which forms are covered by how
many plans.

Every plan keeps its tiles and gets two small sizes, because a checker is a hundred times slower
than the kernel: ``whole``, where every tile is full and the loads are as wide as in the real
kernel, and ``tails``, where no dimension is a multiple of anything.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.checks.kernel_forms import DETAILS, forms_of, text_of, with_other_texts
from benchmarks.workloads.workloads import EXAMPLES
from mirage_py.errors import ScheduleError
from mirage_py.search.extract.family import ONE_KERNEL
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph, Kernel
from mirage_py.ugraph.text.json_form import from_json, to_json
from mirage_py.verify.sizes.shrink import fixed_dims, shrink_ugraph

_TARGET = "h200"
VARIANTS = ("whole", "tails")
# Tiles of a gridded dimension, in a cluster, and of a looped one: a software pipeline has to fill
# and drain. What is as wide as a whole row is not pipelined so deep.
_BLOCKS, _CLUSTER, _ITERATIONS, _WIDE_ITERATIONS = 2, 4, 5, 3
_WIDE = 512

# Plans of an example and a size that have the same detail, as so many kinds have it.
_EACH = 2
_TWO_GROUPS = 8


@dataclass(frozen=True, slots=True)
class Checked:
    """A plan at a small size; ``plan.ugraph.program`` is what it computes."""

    example: str
    kind: str
    variant: str
    plan: Plan
    forms: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Names it in a report."""
        return f"{self.example}/{self.kind.replace(' ', '_')}/{self.variant}"


def at_size(plan: Plan, variant: str) -> Plan:
    """``plan`` with its tiles, over few of them."""
    ugraph = plan.ugraph
    program = ugraph.program
    fixed = fixed_dims(program, ugraph.kernels)
    tiles = _tiles(ugraph.kernels)
    shared = {d for k in ugraph.kernels if isinstance(k, BlockGraph) for d in k.cluster_dims}
    extents = {}
    for dim, size in program.sizes.items():
        if dim in fixed:
            continue
        tile, count = tiles.get(dim, (1, size))
        if dim in shared:
            # Not every number of blocks can be a cluster: the last one has half a tile.
            extents[dim] = min(size, count * tile) - _tail(variant, tile // 2)
            continue
        # Of dimensions that a block sees all of the odd extent is padded to what it was.
        most = size - _tail(variant, min(3, size // 4))
        extents[dim] = min(most, count * tile + _tail(variant, tile // 2 + 1))
    small = shrink_ugraph(ugraph, extents)
    kernels = tuple(
        _with_tiles(new, old) for new, old in zip(small.kernels, ugraph.kernels, strict=True)
    )
    shrunk = replace(small, kernels=kernels)
    validate_ugraph(shrunk)
    return replace(plan, ugraph=shrunk)


def _tail(variant: str, extent: int) -> int:
    return extent if variant == "tails" else 0


def _tiles(kernels: Sequence[Kernel]) -> dict[str, tuple[int, int]]:
    """For each dimension that is cut: its largest tile, and how many of them to keep."""
    found: dict[str, tuple[int, int]] = {}
    for block in kernels:
        if not isinstance(block, BlockGraph):
            continue
        cut = [(a.dim, a.tile or 1, _CLUSTER if a.cluster else _BLOCKS) for a in block.grid]
        cut += [
            (s.loop, s.tile or 1, _WIDE_ITERATIONS if (s.tile or 1) >= _WIDE else _ITERATIONS)
            for s in block.sections
            if s.loop is not None
        ]
        for dim, tile, count in cut:
            known = found.get(dim, (1, 1))
            found[dim] = (max(tile, known[0]), max(count, known[1]))
    return found


def _with_tiles(new: Kernel, old: Kernel) -> Kernel:
    if not isinstance(new, BlockGraph) or not isinstance(old, BlockGraph):
        return new
    sections = zip(new.sections, old.sections, strict=True)
    return replace(new, grid=old.grid, sections=tuple(replace(s, tile=o.tile) for s, o in sections))


def search_example(
    path: Path, backend: str = "triton", sizes: Mapping[str, int] | None = None
) -> Iterator[Checked]:
    """The best plan of each kind of an example, at both sizes; a large example part by part.
    ``sizes`` are other ones than the example's, for the search.

    ``auto`` is the best of each back end; those of CUDA say so in their kind, and what is switched
    on in them. No two have the same text.
    """
    from mirage_py.frontend.spec import parse_file
    from mirage_py.pipeline.pipeline import Request, partition_of, rank_plans
    from mirage_py.targets import target as target_named

    program = parse_file(path, sizes)
    name = _name(path, sizes or {})
    cut = partition_of(program)
    for part in cut.parts if cut is not None else (program,):
        ranking = rank_plans(part, target_named(_TARGET), Request(_TARGET, backend))
        two_groups: dict[str, Plan] = {}
        best: dict[str, Plan] = {}
        for instance in ranking.instances:
            plan, kind = instance.plan, instance.kind
            is_cuda = plan.backend == "cuda"
            best.setdefault(f"{kind} cuda" if is_cuda else kind, plan)
            if is_cuda and _has_two_groups(plan):
                two_groups.setdefault("two groups cuda", plan)
                if kind == ONE_KERNEL:
                    two_groups.setdefault("two groups alone cuda", plan)
        # These have most details, so they come first.
        yield from other_texts(name if cut is None else part.name, two_groups | best)


def _has_two_groups(plan: Plan) -> bool:
    """Whether a loop over products has two warp groups that compute, or more."""
    rows = zip(plan.ugraph.kernels, plan.options, strict=True)
    return any(
        isinstance(kernel, BlockGraph)
        and kernel.has_loops
        and options.num_warps >= _TWO_GROUPS
        and any(node.op == "matmul" for node in kernel.nodes)
        for kernel, options in rows
    )


def other_texts(name: str, plans: Mapping[str, Plan]) -> Iterator[Checked]:
    """The plans of an example, by their kinds, at both sizes and with what makes other texts.

    What the emitter refuses at a small size is left out, as sums by a producer that cannot fetch
    rows of odd length.
    """
    seen: set[str] = set()
    details: Counter[tuple[str, str]] = Counter()
    for kind, plan in plans.items():
        for variant in VARIANTS:
            small = at_size(plan, variant)
            for word, other in (("", small), *with_other_texts(small)):
                with contextlib.suppress(ScheduleError):
                    text = text_of(other)
                    if text in seen or details[word, variant] == _EACH:
                        continue
                    seen.add(text)
                    details[word, variant] += word in DETAILS
                    yield Checked(name, f"{kind} {word}".strip(), variant, other, forms_of(other))


def write(found: Sequence[Checked], path: Path) -> None:
    """One JSON file."""
    rows = [
        {"example": c.example, "kind": c.kind, "variant": c.variant}
        | {"forms": c.forms, "plan": to_json(c.plan)}
        for c in found
    ]
    path.write_text(json.dumps(rows), encoding="utf-8")


def read(folder: Path) -> Iterator[Checked]:
    """All plans of a folder, by file name."""
    for path in sorted(folder.glob("*.json")):
        for row in json.loads(path.read_text(encoding="utf-8")):
            plan = from_json(row["plan"])
            if not isinstance(plan, Plan):
                raise TypeError(f"{path} holds something else")
            yield Checked(row["example"], row["kind"], row["variant"], plan, tuple(row["forms"]))


def examples() -> tuple[Path, ...]:
    """Every example there is."""
    folders = ("*.math", "large/*.math", "models/*.math")
    return tuple(path for folder in folders for path in sorted(EXAMPLES.glob(folder)))


def _name(path: Path, sizes: Mapping[str, int]) -> str:
    return path.stem + "".join(f"-{dim}{size}" for dim, size in sizes.items())


def main(folder: Path, names: Sequence[str], backend: str, sizes: Mapping[str, int]) -> None:
    """Search all examples, or those of these names."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in examples():
        if names and path.stem not in names:
            continue
        started = time.perf_counter()
        found = tuple(search_example(path, backend, sizes))
        write(found, folder / f"{_name(path, sizes)}.json")
        kinds = ", ".join(dict.fromkeys(c.kind for c in found))
        print(f"{path.stem:26s} {time.perf_counter() - started:5.1f} s  {kinds}", flush=True)
    print("\n".join(covered(tuple(read(folder)))))


def covered(plans: Sequence[Checked]) -> Iterator[str]:
    """For each form a line: how many plans have it, and which one is the first of each example."""
    for form in dict.fromkeys(form for checked in plans for form in checked.forms):
        names = [c.name for c in plans if form in c.forms]
        first = {name.partition("/")[0]: name for name in reversed(names)}
        yield f"{form:42s} {len(names):4d} plans  {', '.join(sorted(first.values()))}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--backend", choices=("triton", "cuda", "auto"), default="triton")
    parser.add_argument(
        "--size", action="append", default=[], metavar="NAME=N", help="searched with, as in H=32"
    )
    asked = parser.parse_args()
    pairs = (text.split("=") for text in asked.size)
    main(asked.folder, asked.names, asked.backend, {dim: int(size) for dim, size in pairs})
