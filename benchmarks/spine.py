"""Every workload beside its peers on this GPU, in one run, with the losses as they are.

python -m benchmarks.families DIR                  # where egglog is: search, no GPU
python -m benchmarks.spine DIR -o OUT.json         # where the GPU is
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import math
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.families import Searched, read
from benchmarks.peers import peers
from benchmarks.workloads import Workload, cells, suite
from mirage_py.runtime.measured import Measured, TuneReport
from mirage_py.runtime.tuner import tune
from mirage_py.search.cost_model import lower_bound_us
from mirage_py.targets import Target
from mirage_py.targets import target as target_named
from mirage_py.ugraph.plan import Plan
from mirage_py.ugraph.ugraph import BlockGraph

PLANS = 160


def measure(workload: Workload, folder: Path, target: Target, limit: int) -> dict[str, Any]:
    """One row: the fastest generated kernel, the peers, errors, and how well the model ranked."""
    searched = read(folder / f"{workload.key}.json")
    candidates = searched.plans[:limit]
    started = time.perf_counter()

    def progress(stage: str) -> None:
        if not stage.startswith("compiled"):
            print(f"  {time.perf_counter() - started:5.1f} s  {stage}", flush=True)

    report = tune(
        searched.program, list(candidates), peers(workload), target=target, progress=progress
    )
    tune_s = time.perf_counter() - started
    timed = [m for m in report.measured if m.plan is not None and m.timed]
    ours = min(timed, key=lambda m: m.time_us) if timed else None
    rivals = {m.name: m for m in report.measured if m.plan is None}
    row: dict[str, Any] = {
        "workload": workload.name,
        "batch": workload.batch,
        "backend": "triton",
        "ours_us": _round(ours.time_us if ours else math.inf),
        "peers_us": {n: _round(m.time_us) for n, m in rivals.items()},
        "floor_us": _round(lower_bound_us(searched.program, target)),
        "max_rel_error": ours.max_rel_error if ours else None,
        "eager_rel_error": rivals["eager"].max_rel_error,
        "search_s": searched.search_s,
        "tune_s": round(tune_s, 1),
        "candidates": len(candidates),
        "timed": len(timed),
        "dropped": _dropped(report),
        "model_rank_correlation": _rank_correlation(searched, report),
        "notes": list(report.notes),
    }
    if ours is not None and ours.plan is not None:
        row["plan"] = _described(ours.plan)
    row["kinds"] = _best_by_kernels(timed)
    return row


def _described(plan: Plan) -> list[dict[str, Any]]:
    """What tells a plan from others, kernel by kernel."""
    described: list[dict[str, Any]] = []
    for kernel, options in zip(plan.ugraph.kernels, plan.options, strict=True):
        if not isinstance(kernel, BlockGraph):
            described.append({"name": kernel.name, "library": kernel.op})
            continue
        described.append(
            {
                "name": kernel.name,
                "grid": {a.dim: a.tile for a in kernel.grid},
                "parts": {
                    d: plan.ugraph.program.sizes[d]
                    for d in kernel.grid_tiles
                    if d not in plan.ugraph.program.tensors and d.endswith("_part")
                },
                "loops": [[s.loop, s.tile] for s in kernel.sections if s.loop is not None],
                "num_warps": options.num_warps,
                "num_stages": list(options.num_stages),
                "flags": dict(options.flags),
            }
        )
    return described


def _best_by_kernels(timed: Sequence[Measured]) -> dict[str, float | None]:
    """The fastest time of each kind: one kernel, several, atomic, with library calls."""
    best: dict[str, float] = {}
    for measured in timed:
        assert measured.plan is not None
        kernels = measured.plan.ugraph.kernels
        blocks = [k for k in kernels if isinstance(k, BlockGraph)]
        adds = any(n.op == "store_add" for k in blocks for n in k.nodes)
        kind = "library" if len(blocks) < len(kernels) else f"{len(kernels)} kernels"
        kind = "atomic" if adds else kind
        best[kind] = min(best.get(kind, math.inf), measured.time_us)
    return {kind: _round(time_us) for kind, time_us in sorted(best.items())}


def _dropped(report: TuneReport) -> dict[str, int]:
    """Why candidates fell out, by the first words of the reason."""
    counts: dict[str, int] = {}
    for measured in report.measured:
        if measured.plan is not None and not measured.passed:
            reason = measured.reason.strip().splitlines()[0][:80]
            counts[reason] = counts.get(reason, 0) + 1
    return counts


def _rank_correlation(searched: Searched, report: TuneReport) -> float | None:
    """Spearman's, between predicted and measured times."""
    predicted = dict(zip(searched.plans, searched.predicted_us, strict=True))
    pairs = [(predicted[m.plan], m.time_us) for m in report.measured if m.plan and m.timed]
    if len(pairs) < 3:
        return None
    ranks = [np.argsort(np.argsort([p[k] for p in pairs])) for k in (0, 1)]
    return round(float(np.corrcoef(ranks[0], ranks[1])[0, 1]), 2)


def _round(value: float) -> float | None:
    return round(value, 2) if math.isfinite(value) else None


def machine() -> dict[str, Any]:
    """What was measured on."""
    import torch
    import triton

    return {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cuda": torch.version.cuda,
        "python": sys.version.split()[0],
    }


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False, shell=False
    )
    return done.stdout.strip() or "unknown"


def line(row: dict[str, Any]) -> str:
    """A row of the table on the terminal."""
    rivals = {n: t for n, t in row["peers_us"].items() if t is not None}
    best = min(rivals.values()) if rivals else math.nan
    ours = row["ours_us"]
    ratio = best / ours if ours else math.nan
    shown = "  ".join(f"{n} {t:.1f}" for n, t in rivals.items())
    return (
        f"{row['workload']:17s} b{row['batch']:<3d} ours {ours}  best peer/ours {ratio:.2f}x  "
        f"eager/ours {rivals.get('eager', math.nan) / (ours or math.nan):.2f}x  "
        f"floor {row['floor_us']}  {shown}  err {row['max_rel_error']:.1e}  "
        f"rank {row['model_rank_correlation']}  tune {row['tune_s']} s"
    )


def main() -> None:
    """Measure the suite, or the workloads named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--only", default="", help="keys such as rmsnorm-b8, by comma")
    parser.add_argument("--plans", type=int, default=PLANS)
    parser.add_argument("--target", default="h200")
    parser.add_argument("--commit", default="", help="when the tree is no git checkout")
    chosen = parser.parse_args()
    wanted = [k for k in chosen.only.split(",") if k]
    rows = []
    known = cells()
    for workload in [known[key] for key in wanted] or suite():
        row = measure(workload, chosen.families, target_named(chosen.target), chosen.plans)
        rows.append(row)
        print(line(row), flush=True)
        document = {
            "schema": 1,
            "machine": machine(),
            "command": "python -m benchmarks.spine " + " ".join(sys.argv[1:]),
            "commit": chosen.commit or _commit(),
            "date": dt.datetime.now(tz=dt.UTC).strftime("%Y-%m-%d"),
            "rows": rows,
        }
        # Written after every row: what was measured is kept whatever happens next.
        chosen.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
