"""A run of the suite: which rows, on which GPUs, into which files."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from benchmarks.farm import gpus
from benchmarks.farm.farm import Farm, Job, Outcome, farm_gpus
from benchmarks.report.provenance import commit
from benchmarks.report.record import MEASUREMENTS, Record, read_document
from benchmarks.suite import families
from benchmarks.suite.options import Options
from benchmarks.suite.roofline import contraction_flops
from benchmarks.workloads.workload import Workload
from mirage_py.errors import InputError

Say = Callable[[str], None]

INTERRUPTED = "interrupted"
# What a byte of input takes in the float64 reference, in flops.
_BYTE_FLOPS = 100.0


def run_suite(options: Options, say: Say, on_row: Callable[[dict[str, Any]], None]) -> Record:
    """Measure on every GPU; the record of what came out, which is on disk after each row.

    Raises InputError where there is no GPU, or none works. After Ctrl-C the record is what there
    is, with a note.
    """
    there = options.scheduler
    everyone = farm_gpus(there, options.gpu_model) if there else gpus.visible()
    visible = everyone[: options.gpus]
    if not visible:
        raise InputError("there is no NVIDIA GPU to measure on", repair="use --suite smoke")
    started = time.monotonic()
    deadline = None if options.seconds is None else started + options.seconds
    run = _Run(options, len(visible), say, on_row)
    workers = max(1, len(os.sched_getaffinity(0)) // len(visible))
    jobs = _jobs(options, workers)
    # Each row has its share of the cores, whoever compiles.
    shared = ("MIRAGE_PY_WORKERS", "TORCHINDUCTOR_COMPILE_THREADS")
    environment = dict.fromkeys(shared, str(workers))
    say(f"{len(jobs)} rows on {len(visible)} GPUs, {workers} cores each")
    farm = Farm(
        visible,
        "benchmarks.suite.row_worker:prepare",
        options.row_seconds,
        environment,
        run.ready,
        run.outcome,
        scheduler=there,
    )
    with farm:
        try:
            left = farm.run(jobs, skip=run.is_kept, deadline=deadline)
            why = "out of time"
        except KeyboardInterrupt:
            left, why = farm.unfinished(), INTERRUPTED
    record = run.record
    if record is None:
        if why == INTERRUPTED:
            raise KeyboardInterrupt
        raise InputError("no GPU can be measured on", why="; ".join(farm.faults))
    record.notes += farm.faults
    record.not_run = {job.key: why for job in left if job.key not in record.rows}
    if why == INTERRUPTED:
        record.notes.append(why)
    record.write()
    return record


class _Run:
    """What the farm reports becomes a record, which begins with the first GPU that is ready."""

    def __init__(
        self, options: Options, count: int, say: Say, on_row: Callable[[dict[str, Any]], None]
    ) -> None:
        self.options = options
        self.gpus = count
        self.say = say
        self.on_row = on_row
        self.record: Record | None = None

    def ready(self, gpu: str, found: dict[str, Any]) -> None:
        """A worker has its GPU."""
        self.say(
            f"GPU {gpu}: {found['machine']['gpu']}, an empty kernel takes "
            f"{found['launch_us']:.2f} us"
        )
        if self.record is None:
            machine = {**found["machine"], **gpus.driver_facts(), "gpus": self.gpus}
            name = gpus.short_name(found["machine"]["gpu"])
            self.record = new_record(self.options, machine, name)

    def is_kept(self, job: Job) -> bool:
        """Whether a row is there already."""
        return self.record is not None and job.key in self.record.rows

    def outcome(self, outcome: Outcome) -> None:
        """A row is done, or given up."""
        record = self.record
        assert record is not None
        key = outcome.job.key
        if outcome.value is None:
            record.failed[key] = outcome.reason
            record.write()
            self.say(f"{key} failed: {outcome.reason}")
            return
        row = {**outcome.value["row"], "gpu": outcome.gpu}
        if outcome.attempt > 1:
            row["attempt"] = outcome.attempt
        record.add(row, outcome.value["measurements"])
        self.on_row(row)


def new_record(options: Options, machine: dict[str, Any], name: str) -> Record:
    """An empty record, or with ``--resume`` the one that the folder holds."""
    options.folder.mkdir(parents=True, exist_ok=True)
    record = Record(
        options.folder,
        name,
        machine,
        options.command,
        commit(options.commit),
        {
            "suite": options.suite,
            "plans": options.most_plans,
            "effort": options.effort,
            "backend": options.backend,
            "peers": list(options.peers),
        },
    )
    if options.resume and record.path.exists():
        record.take(read_document(record.path))
    else:
        (options.folder / MEASUREMENTS).unlink(missing_ok=True)
    record.write()
    return record


def _jobs(options: Options, workers: int) -> list[Job]:
    """The rows, those first that are likely to take longest."""
    weighed = [(_weight(w, options), w) for w in options.workloads]
    weighed.sort(key=lambda pair: -pair[0])
    folder = str(options.families.resolve()) if options.families else None
    return [
        Job(
            w.key,
            {
                "service": "benchmarks.suite.row_worker:measure",
                "key": w.key,
                "families": folder,
                "plans": options.most_plans,
                "effort": options.effort,
                "backend": options.backend,
                "peers": list(options.peers),
                "compile_workers": max(1, workers - 1),
            },
        )
        for _, w in weighed
    ]


def _weight(workload: Workload, options: Options) -> float:
    """What the float64 reference of a workload takes, about; all else is alike."""
    from mirage_py.ugraph.ir.program import Program

    program: Program | None = None
    if options.families is None:
        from mirage_py.frontend.spec import parse_file

        program = parse_file(workload.spec, sizes=workload.sizes)
    else:
        path = options.families / f"{workload.key}.json"
        # A row whose search is missing fails, and says so; it is no reason not to begin.
        program = families.read(path, 0).program if path.exists() else None
    if program is None:
        return 0.0
    moved = sum(t.bytes for t in program.tensors.values())
    return contraction_flops(program) + _BYTE_FLOPS * moved
