"""Weights of 8 and 4 bits beside bf16: each plan checked against float32 and timed."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.quantised.programs import (
    COLUMNS,
    GROUP,
    MX_GROUP,
    NAMES,
    OUTPUTS,
    TILES,
    Tiles,
    family,
    plan,
    program,
)
from benchmarks.quantised.timing import time_us
from benchmarks.report.provenance import commit
from mirage_py.errors import MirageError
from mirage_py.pipeline.pipeline import optimize
from mirage_py.runtime.base.emission import emit_kernels
from mirage_py.runtime.compile.compile_pool import CompilePool
from mirage_py.runtime.launch.launch import PlanRunner
from mirage_py.ugraph.ir.plan import Plan

_COLD_BYTES = 300 << 20
_WORKERS = 8
_SIZES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_E2M1 = (*_SIZES, *(-size for size in _SIZES))

# The plans of a program at a count of rows, by their tiles.
_Plans = Mapping[Tiles | str, Plan]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quantised", description=__doc__)
    parser.add_argument("--dry", action="store_true", help="emit every plan, without a GPU")
    parser.add_argument("--rows", type=int, nargs="+", default=[16, 8, 4, 1])
    parser.add_argument("--programs", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--tuned", type=float, default=0, help="seconds for a search of each")
    parser.add_argument("--peer", action="store_true", help="time torch.compile beside them")
    parser.add_argument("-o", "--output", type=Path, help="a JSON file for the table")
    args = parser.parse_args()
    cases = [(name, rows) for rows in args.rows for name in args.programs]
    plans: dict[tuple[str, int], dict[Tiles | str, Plan]] = {c: _plans(*c) for c in cases}
    if args.dry:
        for (name, rows), of_tiles in plans.items():
            counts = [f"{t}: {len(emit_kernels(p))} kernel" for t, p in of_tiles.items()]
            print(rows, name, *counts, sep="; ")
        return
    with CompilePool(_WORKERS) as pool:
        major, minor = torch.cuda.get_device_capability()
        pool.compile([p for found in plans.values() for p in found.values()], 10 * major + minor)
    for name, rows in cases if args.tuned else ():
        chosen = optimize(program(name, rows), budget=args.tuned).plan
        if chosen is not None:
            plans[name, rows][f"search of {args.tuned:g} s: {chosen.options[0]}"] = chosen
    table = []
    for (name, rows), of_tiles in plans.items():
        for row in _measured(name, rows, of_tiles, args.peer):
            table.append({"program": name, "rows": rows, **row})
            print(*table[-1].values(), sep="; ", flush=True)
    if args.output:
        device = torch.cuda.get_device_name()
        document = {"schema": 1, "commit": commit(), "device": device, "rows": table}
        args.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _plans(name: str, rows: int) -> dict[Tiles | str, Plan]:
    ugraph = family(name, rows)
    return {t: plan(ugraph, t) for t in TILES[name]}


def _measured(name: str, rows: int, of_tiles: _Plans, has_peer: bool) -> Iterator[dict[str, Any]]:
    """Of each plan its microseconds and its error against float32; then those of torch.compile."""
    x = torch.randn(rows, COLUMNS, device="cuda").bfloat16()
    weights = _weights(name)
    scale = _scale(name)
    wanted = _eager(name, x.float(), weights[0], scale.float())
    named = {"X": x, "S": scale}
    for tiles, planned in of_tiles.items():
        row: dict[str, Any] = {"tiles": str(tiles)}
        try:
            runner = PlanRunner(planned)

            def call(w: torch.Tensor, runner: PlanRunner = runner) -> torch.Tensor:
                inputs = runner.plan.ugraph.program.inputs
                found = runner(*(w if t.name == "W" else named[t.name] for t in inputs))
                assert isinstance(found, torch.Tensor)
                return found

            row["error"] = float((call(weights[0]).float() - wanted).norm() / wanted.norm())
            row["us"] = time_us(call, weights)
        except MirageError as refused:
            row["refused"] = str(refused).splitlines()[0]
        yield row
    if has_peer:
        torch.compiler.reset()
        compiled = torch.compile(_eager)
        peer = time_us(lambda w: compiled(name, x, w, scale), weights)
        yield {"tiles": "torch.compile", "us": peer}


def _scale(name: str) -> torch.Tensor:
    if name == "mxfp4":  # exponents, of 32 weights each
        shape = (OUTPUTS, COLUMNS // MX_GROUP)
        return torch.randint(117, 127, shape, device="cuda", dtype=torch.uint8)
    shape = (OUTPUTS, COLUMNS // GROUP) if name.endswith("groups") else (OUTPUTS,)
    return (torch.rand(shape, device="cuda") * 0.02).bfloat16()


def _weights(name: str) -> list[torch.Tensor]:
    """Copies that do not fit the L2 together."""
    drawn: Callable[[], torch.Tensor]
    if name == "bf16":
        drawn = lambda: torch.randn(OUTPUTS, COLUMNS, device="cuda").bfloat16()  # noqa: E731
    else:
        packed = name.startswith("int4") or name == "mxfp4"
        low, high, kind = (0, 256, torch.uint8) if packed else (-128, 128, torch.int8)
        shape = (OUTPUTS, COLUMNS // (2 if packed else 1))
        drawn = lambda: torch.randint(low, high, shape, device="cuda", dtype=kind)  # noqa: E731
    if name == "fp8":
        drawn = lambda: torch.randn(OUTPUTS, COLUMNS, device="cuda").to(torch.float8_e4m3fn)  # noqa: E731
    first = drawn()
    return [first, *(drawn() for _ in range(_COLD_BYTES // first.nbytes))]


def _eager(name: str, x: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """The program in PyTorch."""
    if name == "bf16":
        return x @ w.to(x.dtype).t()
    if name == "mxfp4":
        table = torch.tensor(_E2M1, dtype=x.dtype, device=x.device)
        found = table[torch.stack((w & 15, w >> 4), -1).flatten(-2).int()]
        powers = torch.exp2(s.to(x.dtype) - 127)
        return x @ (found.view(OUTPUTS, -1, MX_GROUP) * powers[..., None]).view(OUTPUTS, -1).t()
    if name.startswith("int4"):
        w = (torch.stack((w & 15, w >> 4), -1).flatten(-2)).to(torch.int8) - 8
    if name.endswith("groups"):
        scaled = w.view(OUTPUTS, -1, GROUP).to(x.dtype) * s[..., None]
        return x @ scaled.view(OUTPUTS, COLUMNS).t()
    return (x @ w.to(x.dtype).t()) * s


if __name__ == "__main__":
    main()
