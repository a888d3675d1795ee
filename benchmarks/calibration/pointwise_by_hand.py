"""ReLU of gigabytes by kernels written by hand: vector widths, cache hints, persistent, TMA.

    python -m benchmarks.calibration.pointwise_by_hand -o OUT.json [--columns 393216] [--only KIND]

Needs a GPU from sm_90 on and cupy. The least of three launches each, after one; a kernel whose
result is wrong is left out, and said. The cost model's access cost is read off such a file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import click
import torch

from benchmarks.calibration.pointwise_kernels import (
    LOADS,
    STORES,
    bulk_text,
    relu_blocks,
    stream_text,
)
from benchmarks.report.provenance import commit
from mirage_py.runtime.base.atomic import write_text

_ROWS = 4096
_REPEATS = 3
_VECTOR_BYTES = 16
_THREADS = (128, 256, 512, 1024)
_VECTORS = (1, 2, 4, 8)
# Places of instructions in LOADS and STORES.
_HINTS = ((0, 0), (1, 1), (1, 2), (2, 1), (3, 0), (4, 1), (4, 0), (1, 3), (0, 1))
_TILE_BYTES, _STAGES = (8192, 16384, 32768), (3, 4, 6)
_MOST_SMEM_BYTES, _SM_SMEM_BYTES = 200_000, 220_000
_BLOCKS, _WARPS = (512, 1024, 2048, 4096, 8192), (1, 2, 4, 8, 16)

Call = Callable[[], Any]
Row = dict[str, Any]
_PYTORCH = ("torch.relu", "copy_")


def stream_kernels(count: int, sms: int) -> Iterator[tuple[str, str, int, int]]:
    """Name, text, threads and blocks of each CUDA kernel for so many vectors; a persistent one
    fills the SMs once and twice.
    """
    for vectors in _VECTORS:
        for load, store in _HINTS:
            for persistent in (False, True):
                text = stream_text(vectors, load, store, persistent=persistent)
                for threads in _THREADS:
                    own = count // (threads * vectors)
                    once = sms * 2048 // threads
                    for blocks in (once, 2 * once) if persistent else (own,):
                        kind = f"k<{vectors},{load},{store},{int(persistent)}>"
                        yield f"{kind} threads {threads} grid {blocks}", text, threads, blocks


def bulk_kernels() -> Iterator[tuple[str, str, int, int, int]]:
    """Name, text, threads, blocks of an SM and shared memory of each kernel by TMA."""
    for tile_bytes in _TILE_BYTES:
        for stages in _STAGES:
            smem_bytes = tile_bytes * stages
            if smem_bytes > _MOST_SMEM_BYTES:
                continue
            for threads in (128, 256, 512):
                for blocks in (1, 2, 3):
                    if smem_bytes * blocks <= _SM_SMEM_BYTES:
                        name = f"bulk {tile_bytes}x{stages} threads {threads} x{blocks}"
                        yield name, bulk_text(tile_bytes, stages), threads, blocks, smem_bytes


def calls(x: torch.Tensor, y: torch.Tensor, only: str) -> Iterator[tuple[str, Call]]:
    """Each kernel by name, what PyTorch has first."""
    for name in _PYTORCH:
        yield name, partial(torch.relu, x) if name == "torch.relu" else partial(y.copy_, x)
    for block in _BLOCKS:
        run = relu_blocks[(x.numel() // block,)]
        for warps in _WARPS:
            for hint in (0, 1, 2):
                call = partial(run, x, y, block, hint, num_warps=warps)
                yield f"triton {block} warps {warps} hint {hint}", call
    if only != "triton":
        yield from _cuda_calls(x, y)


def _cuda_calls(x: torch.Tensor, y: torch.Tensor) -> Iterator[tuple[str, Call]]:
    import cupy

    @cache
    def kernel(text: str, name: str) -> Any:
        return cupy.RawModule(code=text, options=("-std=c++17",)).get_function(name)

    size, given = x.numel() * x.element_size(), (x.data_ptr(), y.data_ptr())
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    count = size // _VECTOR_BYTES
    for name, text, threads, blocks in stream_kernels(count, sms):
        run = kernel(text, "relu_stream")
        yield name, partial(run, (blocks,), (threads,), (*given, count))
    for name, text, threads, per_sm, smem_bytes in bulk_kernels():
        run = kernel(text, "relu_bulk")
        run.max_dynamic_shared_size_bytes = smem_bytes
        call = partial(run, (per_sm * sms,), (threads,), (*given, size), shared_mem=smem_bytes)
        yield name, call


def least_us(call: Call) -> float:
    """Microseconds of the fastest launch."""
    call()
    found: list[float] = []
    for _ in range(_REPEATS):
        begin: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        begin.record()
        call()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) * 1e3)
    return min(found)


def is_right(y: torch.Tensor, x: torch.Tensor) -> bool:
    """Whether the first and the last million of results are those of ReLU."""
    ends = (slice(0, 1 << 20), slice(-(1 << 20), None))
    return all(torch.equal(y[end], torch.relu(x[end])) for end in ends)


def document(rows: list[Row], columns: int, gpu: str) -> dict[str, Any]:
    """The result file, the fastest first."""
    return {
        "what": f"ReLU of {_ROWS} x {columns} bf16 values ({4 * _ROWS * columns / 1e9:.2f} GB "
        "moved), written by hand: CUDA k<vectors of 16 bytes a thread, kind of load, kind of "
        "store, persistent>, bulk copies by TMA through shared memory (bytes a stage x stages), "
        "Triton with a block and warps, with evict_first for loads (hint 1), loads and stores "
        f"(hint 2), nothing (0); least of {_REPEATS} launches",
        "gpu": gpu,
        "commit": commit(),
        "loads": dict(enumerate(LOADS)),
        "stores": dict(enumerate(STORES)),
        "rows": sorted(rows, key=lambda row: float(row["us"])),
    }


@click.command(help=__doc__.split("\n", maxsplit=1)[0])
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, help="result file")
@click.option("--columns", default=393216, help=f"of {_ROWS} rows; a multiple of 1024")
@click.option("--only", type=click.Choice(("", "triton")), default="", help="leave the others out")
def main(out: Path, columns: int, only: str) -> None:
    """Write the file at the end; a line for each kernel that is wrong."""
    x = torch.randn(_ROWS * columns // 8, device="cuda").bfloat16().repeat(8)
    y = torch.empty_like(x)
    rows: list[Row] = []
    for name, call in calls(x, y, only):
        y.zero_()
        us = least_us(call)
        if name in _PYTORCH or is_right(y, x):
            rows.append({"us": round(us, 1), "kernel": name})
        else:
            click.echo(f"{name}: the result is wrong")
    found = document(rows, columns, torch.cuda.get_device_name())
    write_text(out, json.dumps(found) + "\n")
    for row in found["rows"][:12]:
        click.echo(f"{row['us']:9.1f} us  {row['kernel']}")


if __name__ == "__main__":
    main()
