"""Which emitted kernels a memory checker looks at: the best plan of each kind of each example.

``python -m benchmarks.sanitize_plans DIR [NAME ...] [--backend cuda]`` searches where egglog is and
writes one JSON file for each example. Reading them needs neither egglog nor lark. Of CUDA plans,
those in clusters are a kind of their own, and each kind comes with the copy engine, with a producer
warp, with overlapped products and with those of single warps too, where that makes another text.

Every plan keeps its tiles and gets two small sizes, because a checker is a hundred times slower
than the kernel: ``whole``, where every tile is full and the loads are as wide as in the real
kernel, and ``tails``, where no dimension is a multiple of anything.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.workloads import EXAMPLES
from mirage_py.codegen.cuda.overlap import ON, OVERLAP
from mirage_py.codegen.cuda.roles import PRODUCER, PRODUCER_WARPS
from mirage_py.codegen.cuda.warpgroup_plan import PRODUCTS, WARPS
from mirage_py.codegen.descriptors import COPIES, DESCRIPTORS
from mirage_py.errors import ScheduleError
from mirage_py.runtime.emission import emit_kernels
from mirage_py.ugraph.json_form import from_json, to_json
from mirage_py.ugraph.plan import Plan
from mirage_py.ugraph.ugraph import BlockGraph, Kernel
from mirage_py.ugraph.validate import validate_ugraph
from mirage_py.verify.shrink import fixed_dims, shrink_ugraph

_TARGET = "h200"
VARIANTS = ("whole", "tails")
# Tiles of a gridded dimension, in a cluster, and of a looped one: a software pipeline has to fill
# and drain. What is as wide as a whole row is not pipelined so deep.
_BLOCKS, _CLUSTER, _ITERATIONS, _WIDE_ITERATIONS = 2, 4, 5, 3
_WIDE = 512


# Launch options by a word for what they switch: the engine fetches tiles, with a producer warp,
# with products one iteration apart; threads copy; products are those of single warps.
_SWITCHES = {
    "engine": ((COPIES, DESCRIPTORS), (PRODUCER, "")),
    "producer": ((COPIES, DESCRIPTORS), (PRODUCER, PRODUCER_WARPS)),
    "overlap": ((COPIES, DESCRIPTORS), (PRODUCER, PRODUCER_WARPS), (OVERLAP, ON)),
    "plain copies": ((COPIES, ""), (PRODUCER, "")),
    "mma": ((PRODUCTS, WARPS),),
}


@dataclass(frozen=True, slots=True)
class Checked:
    """A plan at a small size; ``plan.ugraph.program`` is what it computes."""

    example: str
    kind: str
    variant: str
    plan: Plan

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


def search_example(path: Path, backend: str = "triton") -> Iterator[Checked]:
    """The best plan of each kind of an example, at both sizes; a large example part by part.

    ``auto`` is the best of each back end; those of CUDA say so in their kind, and what is switched
    on in them.
    """
    from mirage_py.frontend.spec import parse_file
    from mirage_py.pipeline import partition_of, rank_plans
    from mirage_py.targets import target as target_named

    program = parse_file(path)
    cut = partition_of(program)
    for part in cut.parts if cut is not None else (program,):
        ranking = rank_plans(part, target_named(_TARGET), backend=backend)
        best: dict[str, Plan] = {}
        for instance in ranking.instances:
            is_cuda = instance.plan.backend == "cuda"
            best.setdefault(f"{instance.kind} cuda" if is_cuda else instance.kind, instance.plan)
        name = path.stem if cut is None else part.name
        for kind, plan in best.items():
            for variant in VARIANTS:
                small = at_size(plan, variant)
                yield Checked(name, kind, variant, small)
                for word, other in with_other_texts(small):
                    yield Checked(name, f"{kind} {word}", variant, other)


def with_other_texts(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """A CUDA plan with launch options that make another text of it, each under a word for it; what
    the emitter refuses is left out.
    """
    if plan.backend != "cuda":
        return
    texts: list[str] = []
    for word, flags in {"": (), **_SWITCHES}.items():
        options = plan.options
        for flag, value in flags:
            options = tuple(o.with_flag(flag, value) for o in options)
        other = replace(plan, options=options)
        with contextlib.suppress(ScheduleError):
            texts.append(_text(other))
            if word and texts[-1] not in texts[:-1]:
                yield word, other


def _text(plan: Plan) -> str:
    return "".join(k.source for k in emit_kernels(plan))


def write(found: Sequence[Checked], path: Path) -> None:
    """One JSON file."""
    rows = [
        {"example": c.example, "kind": c.kind, "variant": c.variant, "plan": to_json(c.plan)}
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
            yield Checked(row["example"], row["kind"], row["variant"], plan)


def examples() -> tuple[Path, ...]:
    """Every example there is."""
    return (*sorted(EXAMPLES.glob("*.math")), *sorted(EXAMPLES.glob("large/*.math")))


def main(folder: Path, names: Sequence[str], backend: str = "triton") -> None:
    """Search all examples, or those of these names."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in examples():
        if names and path.stem not in names:
            continue
        started = time.perf_counter()
        found = tuple(search_example(path, backend))
        write(found, folder / f"{path.stem}.json")
        kinds = ", ".join(dict.fromkeys(c.kind for c in found))
        print(f"{path.stem:26s} {time.perf_counter() - started:5.1f} s  {kinds}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--backend", choices=("triton", "cuda", "auto"), default="triton")
    asked = parser.parse_args()
    main(asked.folder, asked.names, asked.backend)
