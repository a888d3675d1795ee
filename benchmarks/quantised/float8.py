"""Float8 products of 4096 rows beside ``torch._scaled_mm``: the first plan of the ranking, and
tiles given by hand, each checked against float32 and timed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from benchmarks.quantised.timing import time_us
from benchmarks.report.provenance import commit
from mirage_py.errors import MirageError
from mirage_py.frontend.spec import parse
from mirage_py.pipeline.pipeline import normalise, optimize
from mirage_py.runtime.base.emission import emit_kernels
from mirage_py.runtime.launch.launch import PlanRunner
from mirage_py.search.enumerate.search import search
from mirage_py.search.rank.instantiate import rank
from mirage_py.targets import H200
from mirage_py.ugraph.ir.launch_choices import Arch, BlockOrder, OverlapMode, StoreMode
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph

# M, N, K: rows, outputs, inputs.
SHAPES = ((4096, 4096, 4096), (4096, 7168, 2048), (4096, 2048, 7168))
_BLOCK = 128
# Copies of the weights that calls take in turns, as layers would.
_COPIES = 8
_OF_BLOCKS = """M = {m}, G = {g}, N = {n}, R = 128
X[M, G * R], W[N, G * R] : f8e4m3, A[{axes}], S[N // 128, G] : f32
index r < R
Y[m, n] : bf16 = sum[g, r](X[m, g * 128 + r] * W[n, g * 128 + r] * A[{place}] * S[n // 128, g])
"""
_BARE = "M = {m}, K = {k}, N = {n}\nX[M, K], W[N, K] : f8e4m3"
SPECS = {
    # One scale for 128 inputs of a row and for 128 x 128 weights, those of rows side by side in
    # memory for all rows (DeepGEMM, torch) or for all inputs of a row.
    "blocks": _OF_BLOCKS.format(axes="G, M", place="g, m", m="{m}", n="{n}", g="{g}"),
    "blocks_of_rows": _OF_BLOCKS.format(axes="M, G", place="m, g", m="{m}", n="{n}", g="{g}"),
    "channels": f"{_BARE}, A[M], S[N] : f32\n"
    "Y[m, n] : bf16 = sum[k](X[m, k] * W[n, k]) * A[m] * S[n]",
    "none": f"{_BARE}\nY[m, n] : bf16 = sum[k](X[m, k] * W[n, k])",
}


@dataclass(frozen=True, slots=True)
class Given:
    """Tiles by hand: rows and outputs of a block, stages, and whether sums stay under way."""

    rows: int
    outputs: int
    stages: int
    overlap: OverlapMode | None = None


_SCALED = (Given(256, 128, 4), Given(128, 128, 6))
_WHOLE = (Given(128, 256, 4, OverlapMode.ON), Given(256, 128, 4, OverlapMode.ON))
GIVEN = {"blocks": _SCALED, "blocks_of_rows": _SCALED[:1], "channels": _WHOLE, "none": _WHOLE}


@dataclass(frozen=True, slots=True)
class Row:
    """A measurement; ``error`` is relative, of the whole result against float32."""

    shape: tuple[int, int, int]
    scales: str
    who: str
    us: float
    tflops: float
    error: float


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quantised.float8", description=__doc__
    )
    parser.add_argument("--dry", action="store_true", help="emit every plan, without a GPU")
    parser.add_argument("-o", "--out", type=Path, help="a JSON file for the table")
    parser.add_argument("--commit", default="")
    parser.add_argument("--tuned", type=float, default=0, help="seconds for a search of each")
    parser.add_argument("--scales", nargs="+", choices=SPECS, default=list(SPECS))
    parser.add_argument("--shapes", type=int, default=len(SHAPES), help="of them the first so many")
    args = parser.parse_args()
    rows: list[Row] = []
    for shape in SHAPES[: args.shapes]:
        for scales in args.scales:
            if args.dry:
                print(shape, scales, *(len(emit_kernels(p)) for _, p in plans(scales, shape)))
                continue
            for row in _measured(scales, shape, args.tuned):
                rows.append(row)
                print(*asdict(row).values(), sep="; ", flush=True)
    if args.out is not None:
        found = {"commit": commit(args.commit), "gpu": torch.cuda.get_device_name()}
        args.out.write_text(json.dumps({**found, "rows": [asdict(r) for r in rows]}, indent=1))


# -- plans -----------------------------------------------------------------------------------------


def tuned(scales: str, shape: tuple[int, int, int], seconds: float) -> Plan | None:
    """What the public interface serves after so many seconds; None where that is torch."""
    return optimize(_program(scales, shape), budget=seconds).plan


def _program(scales: str, shape: tuple[int, int, int]) -> Program:
    m, n, k = shape
    return parse(SPECS[scales].format(m=m, n=n, k=k, g=k // _BLOCK), name=scales)


def plans(scales: str, shape: tuple[int, int, int]) -> Iterator[tuple[str, Plan]]:
    """The best plan of the ranking, and the family with one loop over K with each tiles given."""
    families = [f.ugraph for f in search(normalise(_program(scales, shape))).families]
    best = rank(families, H200, 2, backend="cuda")[0].plan
    yield "first of the ranking", replace(best, options=tuple(map(_for_hopper, best.options)))
    family = next(f for f in families if _is_meant(f, "blocks" in scales))
    for given in GIVEN[scales]:
        yield (
            f"given {given.rows} x {given.outputs}, {given.stages} stages{_how(given)}",
            _plan(family, given),
        )


def _how(given: Given) -> str:
    return ", overlap" if given.overlap else ""


def _for_hopper(options: LaunchConfig) -> LaunchConfig:
    return replace(options, arch=Arch.SM_90A)


def _is_meant(family: UGraph, has_blocks: bool) -> bool:
    (block, *others) = family.kernels
    if others or not isinstance(block, BlockGraph) or any("part" in a.dim for a in block.grid):
        return False
    matmuls = [n for n in block.nodes if n.op == "matmul"]
    loops = [s.loop for s in block.sections if s.loop is not None]
    loop, reduced = ("g", ("r",)) if has_blocks else ("k", ("k",))
    are_loads = all(block.nodes[a].op == "load" for n in matmuls for a in n.args)
    return loops == [loop] and [n.reduced for n in matmuls] == [reduced] and are_loads


def _plan(family: UGraph, given: Given) -> Plan:
    (block,) = family.kernels
    assert isinstance(block, BlockGraph)
    tiles = {"m": given.rows, "n": given.outputs}
    tiled = replace(
        block,
        grid=tuple(replace(a, tile=tiles[a.dim]) for a in block.grid),
        sections=tuple(
            s if s.loop is None else replace(s, tile=1 if s.loop == "g" else _BLOCK)
            for s in block.sections
        ),
    )
    options = LaunchConfig(
        num_warps=8,
        num_stages=(given.stages,),
        producer_warps=True,
        persistent_blocks=H200.sms,
        stores=StoreMode.LANES,
        block_order=BlockOrder.GROUPED,
        overlap=given.overlap,
        arch=Arch.SM_90A,
    )
    return Plan(replace(family, kernels=(tiled,)), (options,), "cuda")


# -- measurements ----------------------------------------------------------------------------------


def _measured(scales: str, shape: tuple[int, int, int], seconds: float) -> Iterator[Row]:
    m, n, k = shape
    torch.manual_seed(0)
    x = torch.randn(m, k, device="cuda").to(torch.float8_e4m3fn)
    weights = [torch.randn(n, k, device="cuda").to(torch.float8_e4m3fn) for _ in range(_COPIES)]
    a, s = _scales(scales, shape)
    left, right = x.float(), weights[0].float()
    if scales.startswith("blocks"):
        left = left * (a.t() if scales == "blocks" else a).repeat_interleave(_BLOCK, 1)
        right = right * s.repeat_interleave(_BLOCK, 0).repeat_interleave(_BLOCK, 1)
    wanted = left @ right.t()
    if scales == "channels":
        wanted = wanted * a[:, None] * s

    def row(who: str, call: Callable[[torch.Tensor], torch.Tensor]) -> Row:
        error = float((call(weights[0]).float() - wanted).norm() / wanted.norm())
        us = time_us(call, weights)
        return Row(shape, scales, who, round(us, 2), round(2e-6 * m * n * k / us, 1), error)

    found = list(plans(scales, shape))
    if seconds and (chosen := tuned(scales, shape, seconds)) is not None:
        found.append((f"search of {seconds:g} s: {chosen.options[0]}", chosen))
    for who, plan in found:
        names = [t.name for t in plan.ugraph.program.inputs]
        try:
            runner = PlanRunner(plan)

            def call(
                w: torch.Tensor, runner: PlanRunner = runner, names: list[str] = names
            ) -> torch.Tensor:
                named = {"X": x, "W": w, "A": a, "S": s}
                found = runner(*(named[name] for name in names))
                assert isinstance(found, torch.Tensor)
                return found

            yield row(who, call)
        except MirageError as refused:
            print(shape, scales, who, refused, sep="; ", flush=True)
    for who, peer in _peers(scales, x, a, s).items():
        try:
            yield row(who, peer)
        except (RuntimeError, ValueError) as refused:  # where torch or the library lacks it
            print(shape, scales, who, str(refused).splitlines()[0], sep="; ", flush=True)


def _scales(scales: str, shape: tuple[int, int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    m, n, k = shape
    of_rows = {"blocks": (k // _BLOCK, m), "blocks_of_rows": (m, k // _BLOCK), "channels": (m,)}
    of_weights = (n,) if scales == "channels" else (n // _BLOCK, k // _BLOCK)
    drawn = (torch.rand(of_rows.get(scales, (1,)), device="cuda"),)
    return drawn[0] + 0.5, torch.rand(of_weights, device="cuda") + 0.5


def _peers(
    scales: str, x: torch.Tensor, a: torch.Tensor, s: torch.Tensor
) -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    """``torch._scaled_mm`` with the same scales; without, also with sums in fewer bits."""
    factors = {
        "blocks": (a.t(), _aligned(s).t()),
        "channels": (a[:, None], s[None, :]),
        "none": (torch.ones((), device="cuda"), torch.ones((), device="cuda")),
    }
    if scales not in factors:
        return {}

    def way(fast: bool) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda w: torch._scaled_mm(  # noqa: SLF001
            x, w.t(), *factors[scales], out_dtype=torch.bfloat16, use_fast_accum=fast
        )

    found = {"torch._scaled_mm": way(False)}
    return found if scales == "blocks" else {**found, "torch._scaled_mm, fast sums": way(True)}


def _aligned(scales: torch.Tensor) -> torch.Tensor:
    """Rows that begin at multiples of 16 bytes, as cuBLAS reads scales of blocks."""
    rows, columns = scales.shape
    wide = torch.zeros(rows, -(-columns // 4) * 4, device=scales.device)
    wide[:, :columns] = scales
    return wide[:, :columns]


if __name__ == "__main__":
    main()
