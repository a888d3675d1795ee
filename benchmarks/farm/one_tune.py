"""One tuning by more and more processes on a GPU: seconds for the same plans.

python -m benchmarks.farm.one_tune -o OUT.json [--name CELL] [--plans N] [--processes LIST]

``--processes`` are pairs as ``2x1``: so many compilers, and so many that check and time. Each
tuning is in a process of its own without anything in a cache, whose workers have started; nothing
is climbed to, so that all measure the same plans.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report.provenance import commit
from benchmarks.search.fresh_process import in_fresh_process
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.text.json_form import dump_text, load_text

Json = dict[str, Any]

_PROCESSES = "1x1,2x1,2x2,8x1,16x1,16x2"


def tuned(name: str, texts: Sequence[str], compilers: int, checks: int) -> Json:
    """The row of one tuning, in this process."""
    from benchmarks.search.first_calls import call_of
    from mirage_py.pipeline.pipeline import resolve_target
    from mirage_py.runtime.compile.compile_pool import CompilePool, keep_compile_workers
    from mirage_py.runtime.eager.compiled import EAGER
    from mirage_py.runtime.numerical_check.check_pool import keep_check_workers
    from mirage_py.runtime.process.warm_workers import NOTHING
    from mirage_py.runtime.tune.tuner import tune

    plans = [p for p in (load_text(t, "plan") for t in texts) if isinstance(p, Plan)]
    function, arguments = call_of(name)
    function(*arguments)
    keep_compile_workers()
    keep_check_workers(checks)
    with CompilePool(compilers) as pool:
        pool.executor.map([NOTHING] * compilers)
    target, _ = resolve_target("auto")
    begun = time.perf_counter()
    report = tune(
        plans[0].ugraph.program,
        plans,
        {EAGER: function},
        target=target,
        climbing_rounds=0,
        compile_workers=compilers,
        check_workers=checks,
    )
    return {
        "seconds": round(time.perf_counter() - begun, 2),
        "stages": {k: round(s, 2) for k, s in report.seconds.items()},
        "timed": sum(m.timed for m in report.measured if m.plan is not None),
        "best_us": round(report.best.time_us, 3),
    }


def measured(name: str, texts: Sequence[str], compilers: int, checks: int) -> Json:
    """The row of one tuning, in a process of its own with empty caches."""
    workers = {"MIRAGE_PY_WORKERS": str(compilers)}
    row: Json = in_fresh_process(tuned, name, texts, compilers, checks, **workers)
    return row


def main(arguments: Sequence[str]) -> None:
    """Measure, and write after each tuning."""
    from benchmarks.search.winner_flips import ranked

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--out", type=Path, required=True, help="result file")
    parser.add_argument("--name", default="rmsnorm-b1", help="a cell of the suite")
    parser.add_argument("--plans", type=int, default=24, help="plans that are tuned")
    parser.add_argument("--processes", default=_PROCESSES, help="compilers x checks, by comma")
    chosen = parser.parse_args(arguments)
    _, plans = ranked(chosen.name, chosen.plans)
    texts = [dump_text(plan) for plan in plans]
    command = f"python -m benchmarks.farm.one_tune {' '.join(arguments)}"
    document: Json = {"commit": commit(), "command": command, "plans": len(plans), "rows": {}}
    for pair in chosen.processes.split(","):
        compilers, checks = map(int, pair.split("x"))
        row = document["rows"][pair] = measured(chosen.name, texts, compilers, checks)
        print(f"{chosen.name} {pair:6s} {row}", flush=True)
        chosen.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
