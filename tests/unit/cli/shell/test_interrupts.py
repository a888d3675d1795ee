"""Ctrl-C: the first keeps the best so far, the second ends at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mirage_py.cli.shell.interrupts import stop_on_interrupt

# Ten operators, two reductions and three products: many jobs.
LONG = """
B = 8, D = 4096, F = 14336
X[B, D], R[B, D], G[D], W1[D, F], W2[D, F], W3[F, D] : f16
let x[b, d] = X[b, d] + R[b, d]
let h[b, d] = rms_norm[d](x[b, d], eps=1e-6) * G[d]
let y[b, f] = silu( sum[d](h[b, d] * W1[d, f]) ) * sum[d](h[b, d] * W2[d, f])
Z[b, m] = x[b, m] + sum[f](y[b, f] * W3[f, m])
"""
# A background job inherits an ignored interrupt; a user's terminal does not ignore it. The first
# comes when the first job of a search is done, a second one while what was found is verified.
CHILD = """
import os, signal, sys
from mirage_py.cli import main
from mirage_py.pipeline import pipeline
from mirage_py.search.enumerate import journal

def press(*given, **named):
    os.kill(os.getpid(), signal.SIGINT)

def add(*given, real=journal.Journal.add):
    real(*given)
    journal.Journal.add = real
    press()

signal.signal(signal.SIGINT, signal.default_int_handler)
journal.Journal.add = add
if sys.argv[1] == "twice":
    pipeline.verify_families = press
main(sys.argv[2:])
"""


@pytest.fixture
def interruptible() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def _press() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0)  # the handler runs at the next chance


@pytest.mark.usefixtures("interruptible")
def test_once_is_a_wish_and_twice_an_order(capfd: pytest.CaptureFixture[str]):
    with stop_on_interrupt() as should_stop:
        assert not should_stop()
        _press()
        assert should_stop()
        assert "Ctrl-C again ends at once" in capfd.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            _press()
        # Where the first of these was lost, there is another.
        with pytest.raises(KeyboardInterrupt):
            should_stop()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("interruptible")
def test_an_ignored_interrupt_stays_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with stop_on_interrupt() as should_stop:
        _press()
        assert not should_stop()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_outside_of_the_main_thread_nothing_changes():
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def inside() -> None:
        with stop_on_interrupt() as should_stop:
            seen.append((should_stop(), signal.getsignal(signal.SIGINT) is before))

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert seen == [(False, True)]


def _interrupted(folder: Path, how_often: str) -> tuple[Any, str]:
    """The document and what is said besides of a search that is interrupted."""
    (folder / "a.math").write_text(LONG)
    command = ["superoptimize", "a.math", "--target", "h200", "--effort", "none", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", CHILD, how_often, *command, "-o", "out", "--journal", "journal"],
        cwd=folder,
        env={**os.environ, "MIRAGE_PY_WORKERS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 130, done.stderr
    return json.loads(done.stdout), done.stderr


def test_an_interrupted_search_keeps_the_best_so_far(tmp_path: Path):
    document, err = _interrupted(tmp_path, "once")
    assert "finishing with the best so far" in err
    assert "interrupted: this is the best so far" in err
    assert document["interrupted"]
    assert not document["search"]["exhausted"]
    assert "stopped before the space was gone through" in document["search"]["reasons"]
    assert json.loads((tmp_path / "out" / "report.json").read_text()) == document
    assert document["search"]["families"]


def test_a_second_interrupt_ends_at_once(tmp_path: Path):
    document, err = _interrupted(tmp_path, "twice")
    assert "Ctrl-C again ends at once" in err
    assert document["error"]["kind"] == "Interrupted"
    assert not (tmp_path / "out").exists()
