"""Weights of 8 and 4 bits beside bf16: each plan checked against float32 and timed."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch

from benchmarks.quantised.programs import COLUMNS, GROUP, NAMES, OUTPUTS, TILES, family, plan
from benchmarks.quantised.timing import time_us
from mirage_py.errors import MirageError
from mirage_py.runtime.base.emission import emit_kernels
from mirage_py.runtime.launch.launch import PlanRunner

_COLD_BYTES = 300 << 20


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quantised", description=__doc__)
    parser.add_argument("--dry", action="store_true", help="emit every plan, without a GPU")
    parser.add_argument("--rows", type=int, nargs="+", default=[16, 4, 1])
    args = parser.parse_args()
    for rows in args.rows:
        for name in NAMES:
            print(rows, name, *(_dry(name, rows) if args.dry else _measured(name, rows)), sep="; ")


def _dry(name: str, rows: int) -> list[str]:
    ugraph = family(name, rows)
    return [f"{t}: {len(emit_kernels(plan(ugraph, t)))} kernel" for t in TILES[name]]


def _measured(name: str, rows: int) -> list[str]:
    """The fastest first: microseconds, tiles, relative error; then torch.compile."""
    ugraph = family(name, rows)
    x = torch.randn(rows, COLUMNS, device="cuda").bfloat16()
    weights = _weights(name)
    grouped = name.endswith("groups")
    shape = (OUTPUTS, COLUMNS // GROUP) if grouped else (OUTPUTS,)
    scale = (torch.rand(shape, device="cuda") * 0.02).bfloat16()
    wanted = _eager(name, x.float(), weights[0], scale.float())
    named = {"X": x, "S": scale}
    rows_of = []
    for tiles in TILES[name]:
        try:
            runner = PlanRunner(plan(ugraph, tiles))

            def call(w: torch.Tensor, runner: PlanRunner = runner) -> torch.Tensor:
                inputs = (w if t.name == "W" else named[t.name] for t in ugraph.program.inputs)
                found = runner(*inputs)
                assert isinstance(found, torch.Tensor)
                return found

            error = float((call(weights[0]).float() - wanted).norm() / wanted.norm())
            rows_of.append((time_us(call, weights), f"{tiles}, off by {error:.1e}"))
        except MirageError as refused:
            rows_of.append((float("inf"), f"{tiles}: {refused}"))
    compiled = torch.compile(_eager)
    peer = time_us(lambda w: compiled(name, x, w, scale), weights)
    found = [f"{us:.1f} us {what}" for us, what in sorted(rows_of)]
    return [*found, f"torch.compile {peer:.1f} us"]


def _weights(name: str) -> list[torch.Tensor]:
    """Copies that do not fit the L2 together."""
    drawn: Callable[[], torch.Tensor]
    if name == "bf16":
        drawn = lambda: torch.randn(OUTPUTS, COLUMNS, device="cuda").bfloat16()  # noqa: E731
    else:
        packed = name.startswith("int4")
        low, high, kind = (0, 256, torch.uint8) if packed else (-128, 128, torch.int8)
        shape = (OUTPUTS, COLUMNS // (2 if packed else 1))
        drawn = lambda: torch.randint(low, high, shape, device="cuda", dtype=kind)  # noqa: E731
    first = drawn()
    return [first, *(drawn() for _ in range(_COLD_BYTES // first.nbytes))]


def _eager(name: str, x: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """The program in PyTorch."""
    if name == "bf16":
        return x @ w.to(x.dtype).t()
    if name.startswith("int4"):
        w = (torch.stack((w & 15, w >> 4), -1).flatten(-2)).to(torch.int8) - 8
    if name.endswith("groups"):
        scaled = w.view(OUTPUTS, -1, GROUP).to(x.dtype) * s[..., None]
        return x @ scaled.view(OUTPUTS, COLUMNS).t()
    return (x @ w.to(x.dtype).t()) * s


if __name__ == "__main__":
    main()
