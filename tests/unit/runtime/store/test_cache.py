from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from plans import rms_program, scale_program, two_kernel_plan

from mirage_py.errors import MirageWarning
from mirage_py.runtime.store.artifact import load_artifact
from mirage_py.runtime.store.cache import ResultCache, cache_key
from mirage_py.ugraph.ir.dtypes import BF16
from mirage_py.ugraph.ir.plan import Plan

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
    monkeypatch.setattr("mirage_py.runtime.store.cache.__version__", "9.9.9")
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
    with pytest.warns(MirageWarning, match="not cached"):
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
import itertools, os, random, sys, time, traceback
from pathlib import Path
from plans import two_kernel_plan
from mirage_py.runtime.store.cache import ResultCache
from mirage_py.runtime.store.cache_transfer import export_entries, import_entries
root = Path(sys.argv[1])
TURNS = {"write": 60, "read": 120, "damage": 120}
TURNS |= dict.fromkeys(("prune", "export", "import"), 10)
plan = two_kernel_plan(9, 40)
program = plan.ugraph.program

def work(number, role):
    cache = ResultCache(root / "cache")
    rng = random.Random(number)
    # Even keys hold the plan, odd ones the original program; each process has keys of its own too.
    keys = [0, 1, 2 + 2 * number, 3 + 2 * number]
    done = 0
    for turn in itertools.count():
        # Writers go on until something was exported.
        if turn >= TURNS[role] and (done or role not in ("write", "export")):
            if role == "export":
                (root / "exported").touch()
            if role != "write" or (root / "exported").exists():
                return done
        place = rng.choice(keys)
        key = "%064x" % place
        if role == "write" and rng.random() < 0.5:
            held = plan if place % 2 == 0 else None
            folder = cache.put("h200", key, program=program, plan=held, report={"by": number})
            assert folder is not None
        elif role == "damage" and rng.random() < 0.05:
            (cache.folder("h200", key) / "report.json").unlink(missing_ok=True)
        elif role == "prune":
            cache.prune(max_bytes=rng.choice([0, 40_000, 80_000]))
            time.sleep(0.05)
        elif role == "export":
            written = export_entries(cache.entries(), root / f"export{turn}.tar")
            done += len(written)
            time.sleep(0.05)
        elif role == "import":
            exports = sorted(root.glob("export*.tar"))
            for entry in import_entries(cache, exports[-1], verified=None) if exports else ():
                assert entry.outcome in ("imported", "known"), entry
            time.sleep(0.05)
        else:
            found = cache.get("h200", key)
            if found is not None:
                assert found.program == program
                assert found.plan == (plan if place % 2 == 0 else None)
                done += 1

children = []
for number, role in enumerate(sys.argv[2:]):
    child = os.fork()
    if child == 0:
        try:
            (root / f"{number}.done").write_text(str(work(number, role)))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    children.append(child)
sys.exit(any(os.waitpid(child, 0)[1] for child in children))
"""
ROLES = ("write", "write", "write", "damage", "prune", "export", "import", "read")


def test_eight_processes_at_once(tmp_path: Path):
    """Whoever reads sees a whole entry or none, and what is exported is whole."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", HAMMER, str(tmp_path), *ROLES]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    done = [int((tmp_path / f"{n}.done").read_text()) for n in range(len(ROLES))]
    assert done[0] > 0
    assert done[ROLES.index("export")] > 0
    left = [p.name for p in (tmp_path / "cache" / "v1" / "h200").iterdir()]
    assert all(len(name) == 64 for name in left), left


def test_an_entry_of_another_target_is_a_miss(cache: ResultCache):
    there = cache.put("a100", KEY, program=PROGRAM, plan=PLAN, report={"target": "a100"})
    assert there is not None
    here = cache.folder("h200", KEY)
    here.parent.mkdir()
    there.rename(here)
    assert cache.get("h200", KEY) is None
    assert not here.exists()


def test_what_a_killed_writer_left_goes_with_pruning(cache: ResultCache):
    folder = put(cache)
    for name in (f".{KEY}.abcd1234", ".removed.abcd1234"):
        (folder.parent / name).mkdir()
        (folder.parent / name / "plan.json").write_text("half")
    assert [e.key for e in cache.entries()] == [KEY]
    cache.prune(older_than_s=3600)
    assert [p.name for p in folder.parent.iterdir()] == [KEY]


def test_a_deep_report_is_a_damaged_entry(cache: ResultCache):
    """Python's reader of JSON gives up on it with a RecursionError."""
    folder = put(cache)
    for name in ("report.json", "program.json", "manifest.json"):
        (folder / name).write_text("[" * 100_000)
    assert [e.program for e in cache.entries()] == ["(damaged)"]
    assert cache.get("h200", KEY) is None


OF_ANOTHER_USER = """
import os, sys, tempfile, warnings
from pathlib import Path
from plans import two_kernel_plan
from mirage_py.errors import InputError
from mirage_py.runtime.store.cache import ResultCache
plan = two_kernel_plan()
with tempfile.TemporaryDirectory() as own:  # so that all is imported that will be needed
    own = ResultCache(Path(own))
    own.put("h200", "ab", program=plan.ugraph.program, plan=plan, report={})
    own.get("h200", "ab")
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
cache = ResultCache(Path(sys.argv[1]))
warnings.simplefilter("always")
with warnings.catch_warnings(record=True) as caught:
    found = cache.get("h200", sys.argv[2])
    written = cache.put("h200", sys.argv[2], program=plan.ugraph.program, plan=plan, report={})
try:
    removed = [cache.remove(entry) for entry in cache.entries()]
except InputError as error:
    removed = error.what
print(found is not None, written, removed, [str(w.message).split(":")[0] for w in caught])
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize(
    ("mode", "found", "removed", "warned"),
    [
        (0o755, True, "the entry cannot be removed", ["the result is not cached"]),
        (
            0o700,
            False,
            "the cache cannot be read",
            ["the cache is not used", "the result is not cached"],
        ),
    ],
)
def test_a_cache_of_somebody_else(mode: int, found: bool, removed: str, warned: list[str]):
    """It is read where that is allowed; where nothing is, the work goes on and says so."""
    with tempfile.TemporaryDirectory(prefix="mirage_py_other_") as name:
        Path(name).chmod(0o755)
        root = Path(name) / "cache"
        put(ResultCache(root))
        root.chmod(mode)
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
        command = [sys.executable, "-c", OF_ANOTHER_USER, str(root), KEY]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert (done.stdout, done.stderr) == (f"{found} None {removed} {warned}\n", "")


@pytest.mark.parametrize("call", ["write", "mkdir", "rename"])
def test_a_full_disk_is_a_warning_and_leaves_nothing(cache: ResultCache, monkeypatch, call: str):
    folder = put(cache)

    def full(*args: object, **more: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    name = {"write": "Path.write_text", "mkdir": "Path.mkdir", "rename": "Path.replace"}[call]
    monkeypatch.setattr(f"mirage_py.runtime.base.atomic.{name}", full)
    monkeypatch.setattr("mirage_py.runtime.base.atomic._exchange", lambda *_: False)
    with pytest.warns(MirageWarning, match="not cached: .*No space left"):
        assert cache.put("h200", KEY, program=PROGRAM, plan=None, report={}) is None
    monkeypatch.undo()
    found = cache.get("h200", KEY)
    assert found is not None
    assert found.plan == PLAN
    assert [p.name for p in folder.parent.iterdir()] == [KEY]
