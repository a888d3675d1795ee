"""Common ground of all tests: hypothesis profiles, a private cache, golden files, GPU skips."""

from __future__ import annotations

import difflib
import functools
import gc
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import hypothesis
import pytest
import quick
import quicker_torch
from nightly import NIGHTLY, covering

TESTS = Path(__file__).parent
GOLDEN_DIR = TESTS / "golden"
MAX_DIFF_LINES = 80

# `ci` draws the same examples on every run: a red commit is red for its own sake. `nightly` looks
# further: HYPOTHESIS_PROFILE=nightly or --hypothesis-profile=nightly. Speed is no property of ours
# to test on shared cores, hence no deadline.
hypothesis.settings.register_profile(
    "ci",
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile(
    "nightly", hypothesis.settings.get_profile("ci"), max_examples=5000, derandomize=False
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
if not NIGHTLY and (providers := sys.modules.get("hypothesis.internal.conjecture.providers")):
    # Now and then hypothesis draws a constant that stands in a module of ours which is imported:
    # the examples of a test would be others after other tests, and each process reads 2,000 files.
    providers.is_local_module_file = lambda _: False
# Inductor reads these when it is imported. Processes that compile for it, one for each core, take
# longer to start than all kernels of a test to compile; so do trials of vector instructions, and
# headers that are compiled beforehand.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "0")
os.environ.setdefault("TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS", "0")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the golden files instead of comparing with them; runs the golden tests only",
    )
    parser.addoption("--quick", action="store_true", help="the folders of tests/quick.py alone")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--quick"):
        quick.install()


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session):
    """What is imported stays for the whole run: no collection of garbage looks at it again. Later
    ones are made when there is something to find: by default one comes at every 700 objects.
    """
    if int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 2:
        _begin_at_the_end(session.config)
    gc.disable()
    try:
        return (yield)
    finally:
        quicker_torch.install()
        gc.freeze()
        gc.set_threshold(20_000)
        gc.enable()


def _begin_at_the_end(config: pytest.Config) -> None:
    """A fresh clone has no bytecode. Where one process begins with the first folders and another
    with the last, each finds what the other has compiled, tests with their assertions above all.
    """
    if [Path(a).resolve() for a in config.args] == [TESTS]:
        unit = TESTS / "unit"
        parts = [p for p in (*TESTS.iterdir(), *unit.iterdir()) if p != unit]
        found = [p for p in parts if p.match("test_*.py") or any(p.rglob("test_*.py"))]
        config.args[:] = [str(p) for p in sorted(found, reverse=True)]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Others are not even imported."""
    left_out = config.getoption("--quick") and not quick.is_quick(collection_path)
    return True if left_out else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.parts)  # whatever folder was the first
    if not NIGHTLY:
        _cover(config, items)
    # One that began last would keep one process busy while the others have nothing to do.
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    if not config.getoption("--update-golden"):
        return
    golden = [item for item in items if "golden" in getattr(item, "fixturenames", ())]
    others = [item for item in items if "golden" not in getattr(item, "fixturenames", ())]
    items[:] = golden
    config.hook.pytest_deselected(items=others)


def _cover(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of tests marked ``covering(n)`` what ``nightly.covering`` chooses."""
    families: dict[tuple[str, int], list[pytest.Function]] = {}
    for item in items:
        marker = item.get_closest_marker("covering")
        if marker is not None and isinstance(item, pytest.Function):
            key = item.nodeid.partition("[")[0], *marker.args
            families.setdefault(key, []).append(item)
    dropped: dict[pytest.Item, None] = {}
    for (_, strength), family in families.items():
        # One name for each decorator; the numbers of values are different in all items.
        names = [dict(enumerate(item.callspec._idlist)) for item in family]
        kept = covering(names, strength)
        dropped |= {item: None for n, item in enumerate(family) if n not in kept}
    if dropped:
        items[:] = [item for item in items if item not in dropped]
        config.hook.pytest_deselected(items=list(dropped))


@functools.cache
def _has_gpu() -> bool:
    # torch takes seconds to import: only a test that needs a GPU pays for it.
    import torch

    return torch.cuda.is_available()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not _has_gpu():
        pytest.skip("needs an NVIDIA GPU")


@pytest.fixture(scope="session", autouse=True)
def _private_environment(tmp_path_factory: pytest.TempPathFactory):
    """No test reads or writes the user's cache, nor follows the user's settings. One process does
    all of a search or a verification: whether others are started is a question of the clock.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("MIRAGE_PY_")]:
            patch.delenv(name)
        patch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path_factory.mktemp("mirage_py_cache")))
        patch.setenv("MIRAGE_PY_WORKERS", "1")
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_runtime(tmp_path_factory: pytest.TempPathFactory):
    """What all kernels under CPU emulation share is compiled once, whatever cache a test has: that
    takes longer than ten kernels. A test that has a compiler of its own makes its own.
    """
    from mirage_py.runtime.cpu import cpu_build

    kept = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        kept = kept.parent  # of all processes of this run
    kept = kept / "runtime"
    kept.mkdir(exist_ok=True)
    compile_, made_once = cpu_build._compile, cpu_build._made_once

    def shared(folder: Path, suffix: str, command: Sequence[str]) -> Path:
        return made_once(kept if cpu_build._compile is compile_ else folder, suffix, command)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu_build, "_made_once", shared)
        yield


@dataclass(frozen=True)
class Golden:
    """Texts that were read by a person once and must not change unnoticed."""

    folder: Path
    update: bool

    def check(self, text: str, name: str) -> None:
        """Compare ``text`` with the file ``name`` under tests/golden, or write it there."""
        path = self.folder / name
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(f"there is no golden file {name}; `make golden` writes it", pytrace=False)
        expected = path.read_text(encoding="utf-8")
        if text == expected:
            return
        diff = list(
            difflib.unified_diff(
                expected.splitlines(),
                text.splitlines(),
                f"tests/golden/{name}",
                "this run",
                lineterm="",
            )
        )
        shown = diff[:MAX_DIFF_LINES] or ["(only line ends differ)"]
        if len(diff) > MAX_DIFF_LINES:
            shown.append(f"... {len(diff) - MAX_DIFF_LINES} more lines")
        message = [f"{name} changed; if that is meant, accept it with `make golden`", *shown]
        pytest.fail("\n".join(message), pytrace=False)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(GOLDEN_DIR, update=request.config.getoption("--update-golden"))
