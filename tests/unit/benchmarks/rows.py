"""Rows of a result file as a run would write them."""

from __future__ import annotations

from typing import Any


def row(workload: str, ours_us: float | None, *, batch: int = 1, **more: Any) -> dict[str, Any]:
    """``more`` are peers with their times, and any other field by its name."""
    names = [n for n in more if n.startswith(("eager", "compile", "cublas", "sdpa", "flex"))]
    peers = {name: more.pop(name) for name in names}
    return {
        "workload": workload,
        "batch": batch,
        "backend": "triton",
        "ours_us": ours_us,
        "result_us": ours_us,
        "result": None if ours_us is None else "ours",
        "peers_us": peers,
        "floor_us": None,
        "bound_by": "memory",
        "launch_us": 1.5,
        "moved_bytes": 4096,
        "flops": 8192.0,
        "max_rel_error": 1e-4,
        "eager_rel_error": 2e-4,
        **more,
    }


def document(*rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The rest of a result file around them."""
    return {
        "schema": 1,
        "machine": {"gpu": "NVIDIA H200"},
        "command": "python -m benchmarks",
        "commit": "0123456",
        "date": "2026-01-01",
        "rows": list(rows),
        "failed": {},
        "not_run": {},
        "notes": [],
        **more,
    }
