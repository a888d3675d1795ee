"""Coverage-guided fuzzing of the targets with atheris: `make fuzz`, or

    python tests/fuzz/run.py --seconds 60 --target spec --target json --out fuzz-out

Each target runs in a process of its own for its share of the seconds. An exception that is not
documented is kept once for each place it comes from (OUT/TARGET/finding-*.txt), and fuzzing goes
on; a hang, a crash or too much memory ends the process, which is started again. Ends with 1 if
there was any of these.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

TESTS = Path(__file__).parents[1]
# One input: what takes longer is a hang, what is above a second worth a look.
HANG_S = 25
SLOW_S = 2.0
MEMORY_MB = 3000
_LONGEST = 1 << 17


@dataclass
class Report:
    """What became of one target. ``findings`` and ``slow`` name files."""

    executions: int = 0
    read: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0
    findings: list[str] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)


def main() -> int:
    """Run the targets named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="for all targets together")
    parser.add_argument("--target", action="append", help="one of them; may be given again")
    parser.add_argument("--out", type=Path, default=Path("fuzz-out"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    sys.path[:0] = [str(TESTS)]
    if given.inside:
        _fuzz(given.target[0], given.seconds, given.out, given.seed)
        return 0
    from fuzz.targets import TARGETS

    names = given.target or [*TARGETS]
    bad = 0
    _print(f"{'target':12} {'executions':>10} {'read':>8} {'s':>6} {'slowest s':>9}  findings")
    for name in names:
        report, crashes = _campaign(name, given.seconds // len(names), given.out, given.seed)
        found = len(report.findings) + len(crashes)
        bad += found
        _print(
            f"{name:12} {report.executions:10} {report.read:8} {report.seconds:6.0f} "
            f"{report.slowest_s:9.2f}  {found}"
        )
        for path in (*report.findings, *crashes, *report.slow):
            _print(f"    {path}")
    return 1 if bad else 0


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _campaign(name: str, seconds: int, out: Path, seed: int) -> tuple[Report, list[str]]:
    """Run one target until its time is over, however often its process ends."""
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    total, crashes = Report(), []
    end = time.monotonic() + seconds
    while (left := int(end - time.monotonic())) >= 1:
        (folder / "report.json").unlink(missing_ok=True)
        command = [sys.executable, __file__, "--inside", "--target", name, "--out", str(out)]
        command += ["--seconds", str(left), "--seed", str(seed)]
        with (folder / "log.txt").open("ab") as log:
            code = subprocess.run(command, stdout=log, stderr=log, check=False).returncode
        path = folder / "report.json"
        part = Report(**json.loads(path.read_text())) if path.exists() else Report()
        total.executions += part.executions
        total.read += part.read
        total.seconds += part.seconds
        total.slowest_s = max(total.slowest_s, part.slowest_s)
        total.findings += [f for f in part.findings if f not in total.findings]
        total.slow += [f for f in part.slow if f not in total.slow]
        seed += 1
        if code != 0:
            kept = folder / f"ended-{len(crashes)}.txt"
            if (folder / "current.txt").exists():
                shutil.copy(folder / "current.txt", kept)
            crashes.append(f"the process ended with {code}: {kept}, log.txt")
            if part.executions == 0:
                break  # it does not even start
    return total, crashes


def _fuzz(name: str, seconds: int, out: Path, seed: int) -> None:
    import atheris

    with atheris.instrument_imports(include=["mirage_py"]):
        from fuzz.targets import TARGETS, clean

    target = TARGETS[name]
    folder = out / name
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    seeds = target.seeds()
    for number, text in enumerate(seeds):
        (corpus / f"seed{number}").write_text(text, encoding="utf-8", newline="")

    def mutator(data: bytes, largest: int, number: int) -> bytes:
        rng = random.Random(number)
        if rng.random() < 0.15:
            return bytes(atheris.Mutate(data, largest))
        try:
            changed = target.mutate(rng, data.decode(errors="replace"), seeds)
        except Exception:  # noqa: BLE001
            # An exception here would stop atheris without a word.
            return bytes(atheris.Mutate(data, largest))
        return changed.encode(errors="replace")[:largest]

    watch = _Watch(target.run, folder)
    arguments = [
        sys.argv[0], f"-max_total_time={seconds}", "-timeout=0", f"-seed={seed}",
        f"-rss_limit_mb={MEMORY_MB}", f"-max_len={_LONGEST}", "-len_control=0",
        f"-artifact_prefix={folder}/", "-print_final_stats=1", "-verbosity=1", str(corpus),
    ]  # fmt: skip
    atheris.Setup(arguments, watch, custom_mutator=mutator)
    try:
        atheris.Fuzz()
    finally:
        watch.write()
        clean()


class _Watch:
    """The target with a record of what it did."""

    def __init__(self, run: Callable[[str], bool], folder: Path) -> None:
        self._run = run
        self._folder = folder
        self._started = time.monotonic()
        self._written = 0.0
        self._places: dict[str, None] = {}
        self._current = folder / "current.txt"
        self.report = Report()

    def __call__(self, data: bytes) -> None:
        begun = time.monotonic()
        text = data.decode(errors="replace")
        self.report.executions += 1
        self._current.write_text(text, encoding="utf-8", errors="replace", newline="")
        # Ends the process with a traceback, from a thread that needs no interpreter.
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        try:
            self.report.read += self._run(text)
        except Exception as error:  # noqa: BLE001
            # Every kind of failure is a finding; the next input may show another.
            self._keep("finding", _place(error), text, traceback.format_exc(limit=-25))
        faulthandler.cancel_dump_traceback_later()
        took = time.monotonic() - begun
        self.report.slowest_s = max(self.report.slowest_s, took)
        if took > SLOW_S:
            self._keep("slow", f"{int(took)}s", text, f"{took:.2f} s")
        if begun - self._written > 1.0:
            if not self._written:
                # libFuzzer's clock, which nobody answers any more: the watch above does its work.
                signal.signal(signal.SIGALRM, signal.SIG_IGN)
            self._written = begun
            self.write()

    def write(self) -> None:
        """Put the record where the parent finds it."""
        self.report.seconds = time.monotonic() - self._started
        path = self._folder / "report.json"
        path.with_suffix(".new").write_text(json.dumps(asdict(self.report)))
        path.with_suffix(".new").replace(path)

    def _keep(self, kind: str, place: str, text: str, story: str) -> None:
        if place in self._places:
            return
        self._places[place] = None
        path = self._folder / f"{kind}-{place}.txt"
        path.write_text(text, encoding="utf-8", errors="replace", newline="")
        path.with_suffix(".why").write_text(story, encoding="utf-8", errors="replace")
        listed = self.report.findings if kind == "finding" else self.report.slow
        listed.append(str(path))


def _place(error: BaseException) -> str:
    """The kind of error and the last line of ours that it passed, as a name."""
    error = error.__cause__ or error
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "mirage_py" in f.filename] or list(frames)
    last = ours[-1]
    return f"{type(error).__name__}-{Path(last.filename).stem}-{last.lineno}"


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
