from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from plans import rms_program, scale_program, two_kernel_plan

from mirage_py.runtime.artifact import load_artifact
from mirage_py.runtime.cache import ResultCache, cache_key
from mirage_py.ugraph.dtypes import BF16
from mirage_py.ugraph.plan import Plan

PLAN = two_kernel_plan()
PROGRAM = PLAN.ugraph.program
KEY = cache_key(PROGRAM, "h200", "triton", {"effort": "quick"})


@pytest.fixture
def cache(tmp_path: Path) -> ResultCache:
    return ResultCache(tmp_path)


def put(cache: ResultCache, key: str = KEY, plan: Plan | None = PLAN) -> Path:
    folder = cache.put("h200", key, program=PROGRAM, plan=plan, report={})
    assert folder is not None
    return folder


def test_what_was_put_is_got(cache: ResultCache):
    assert cache.get("h200", KEY) is None
    folder = put(cache)
    found = cache.get("h200", KEY)
    assert found is not None
    assert found.plan == PLAN
    assert cache.get("a100", KEY) is None
    assert load_artifact(folder).plan == PLAN


def test_a_result_may_be_replaced(cache: ResultCache):
    put(cache)
    put(cache, plan=None)
    found = cache.get("h200", KEY)
    assert found is not None
    assert found.plan is None


def test_the_key_is_the_whole_content():
    strided = scale_program(strides=(80, 1))
    keys = [
        KEY,
        cache_key(PROGRAM, "h100", "triton", {"effort": "quick"}),
        cache_key(PROGRAM, "h200", "cuda", {"effort": "quick"}),
        cache_key(PROGRAM, "h200", "triton", {"effort": "full"}),
        cache_key(PROGRAM, "h200", "triton"),
        cache_key(strided, "h200", "triton", {"effort": "quick"}),
        cache_key(scale_program(dtype=BF16), "h200", "triton", {"effort": "quick"}),
        cache_key(scale_program(b=34), "h200", "triton", {"effort": "quick"}),
        cache_key(rms_program(), "h200", "triton", {"effort": "quick"}),
    ]
    assert len(set(keys)) == len(keys)
    renamed = PROGRAM.renamed("another name")
    assert cache_key(renamed, "h200", "triton", {"effort": "quick"}) == KEY


def test_another_version_is_another_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("mirage_py.runtime.cache.__version__", "9.9.9")
    assert cache_key(PROGRAM, "h200", "triton", {"effort": "quick"}) != KEY


@pytest.mark.parametrize("damage", ["truncate", "unlink", "garbage"])
def test_a_damaged_entry_is_a_miss_and_goes(cache: ResultCache, damage: str):
    folder = put(cache)
    plan = folder / "plan.json"
    if damage == "truncate":
        plan.write_text(plan.read_text()[:100])
    elif damage == "unlink":
        plan.unlink()
    else:
        (folder / "manifest.json").write_bytes(b"\x00\xff")
    assert cache.get("h200", KEY) is None
    assert not folder.exists()
    put(cache)
    assert cache.get("h200", KEY) is not None


def test_no_key_leads_outside(cache: ResultCache):
    for key, target in [("../x", "h200"), ("", "h200"), ("ab", ".."), ("ab", "a/b")]:
        with pytest.raises(ValueError, match="no cache key"):
            cache.get(target, key)


def test_a_cache_that_cannot_be_written_is_a_warning(tmp_path: Path):
    (tmp_path / "v1").write_text("a file where the folder should be")
    cache = ResultCache(tmp_path)
    with pytest.warns(RuntimeWarning, match="not cached"):
        assert cache.put("h200", KEY, program=PROGRAM, plan=PLAN, report={}) is None
    assert cache.get("h200", KEY) is None
    assert cache.entries() == ()


def test_entries_and_pruning(cache: ResultCache):
    keys = [f"{n:064x}" for n in range(3)]
    now = time.time()
    for age, key in enumerate(keys):
        folder = put(cache, key)
        os.utime(folder / "manifest.json", (now - 1000 * age, now - 1000 * age))
    entries = cache.entries()
    assert [e.key for e in entries] == keys
    assert {(e.target, e.program) for e in entries} == {("h200", "scale")}
    removed = cache.prune(older_than_s=1500)
    assert [e.key for e in removed] == keys[2:]
    assert cache.get("h200", keys[1]) is not None  # now the most recently used
    removed = cache.prune(max_bytes=entries[0].bytes)
    assert [e.key for e in removed] == keys[:1]
    cache.remove(cache.entries()[0])
    cache.remove(entries[0])
    put(cache, keys[0])
    assert len(cache.prune()) == 1
    assert cache.entries() == ()


HAMMER = """
import sys, time
from pathlib import Path
from plans import two_kernel_plan
from mirage_py.runtime.cache import ResultCache
number = int(sys.argv[2])
cache = ResultCache(Path(sys.argv[1]))
plan = two_kernel_plan()
program = plan.ugraph.program
hits = 0
end = time.monotonic() + 2.0
turn = 0
while time.monotonic() < end:
    turn += 1
    key = "%064x" % (turn % 2)
    if (turn + number) % 3 == 0:
        held = plan if turn % 2 else None
        cache.put("h200", key, program=program, plan=held, report={"by": number})
    elif turn % 23 == 0 and number == 0:
        (cache.folder("h200", key) / "plan.json").unlink(missing_ok=True)
    else:
        found = cache.get("h200", key)
        if found is not None:
            assert found.program == program
            assert (found.plan == plan) == (turn % 2 == 1), (turn, found.plan)
            hits += 1
print(hits)
"""


def test_many_processes_at_once(tmp_path: Path):
    """Readers, writers and one who damages entries: nobody ever sees half of one."""
    tests = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": tests}
    command = [sys.executable, "-c", HAMMER, str(tmp_path)]
    running = [
        subprocess.Popen([*command, str(n)], env=environment, stdout=subprocess.PIPE)
        for n in range(4)
    ]
    hits = [int(p.communicate(timeout=60)[0] or -1) for p in running]
    assert [p.returncode for p in running] == [0] * 4
    assert min(hits) > 0
    left = [p.name for p in (tmp_path / "v1" / "h200").iterdir()]
    assert all(len(name) == 64 for name in left), left
