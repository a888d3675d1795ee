"""What ``make quick`` runs needs no compiler."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from quick import BUT, FOLDERS, MODULES, TESTS, Guard, NotQuickError, is_quick, refuse_programs

FILES = [path for path in sorted(TESTS.rglob("*.py")) if is_quick(path)]


def test_every_folder_has_tests():
    assert FILES
    for folder in FOLDERS:
        assert list((TESTS / folder).rglob("test_*.py")), folder


def test_what_is_left_out_is_there_and_lies_in_a_quick_folder():
    assert [name for name in BUT if not (TESTS / name).is_file()] == []
    assert [name for name in BUT if not name.startswith(FOLDERS)] == []
    assert len(BUT) == len({*BUT})


def test_no_quick_test_imports_a_compiler():
    """Inside of functions neither; what is imported indirectly the guard refuses in a quick run."""
    module = rf"(?:{'|'.join(MODULES)})\b"
    imports = re.compile(rf"^ *(?:import|from) {module}|importorskip\(.{module}", re.MULTILINE)
    texts = {str(path.relative_to(TESTS)): path.read_text(encoding="utf-8") for path in FILES}
    assert [name for name, text in texts.items() if imports.search(text)] == []
    assert imports.search("    import torch\n")
    assert imports.search("x = pytest.importorskip('triton.language')")


@pytest.mark.parametrize("name", ["torch", "torch._dynamo", "triton.language", "cupy"])
def test_the_guard_refuses_modules(name: str):
    with pytest.raises(NotQuickError, match=name):
        Guard.find_spec(name)
    assert Guard.find_spec(f"my_{name}") is None


@pytest.mark.parametrize("program", ["nvcc", "/usr/local/cuda/bin/ptxas", Path("/usr/bin/g++")])
def test_the_guard_refuses_programs(program: object):
    with pytest.raises(NotQuickError):
        refuse_programs("subprocess.Popen", (program, ["-v"], None, None))
    refuse_programs("subprocess.Popen", ("python", ["nvcc"], None, None))
