"""Loops of Triton's that write a stage which a product of warp groups still reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirage_py.errors import CompileError
from mirage_py.runtime.compile import checked_code
from mirage_py.runtime.compile.checked_code import check_once
from mirage_py.runtime.sass.overwritten_stages import overwritten_in

# Of a kernel that was wrong on an H200 (triton 3.6.0), shortened: X has three stages and W four,
# since X is read by a product of ``mma.sync`` too.
DATA = Path(__file__).parents[3] / "data/ttgir/overwritten_stage.ttgir"
WRONG = DATA.read_text()
FOUND = ("%x_tile_36[0] in iteration 0",)


def test_a_tile_of_three_stages_that_two_kinds_of_products_read():
    assert overwritten_in(WRONG) == FOUND


def test_one_stage_more():
    # They are counted from -1 and from 2: the fourth is free.
    right = WRONG.replace("sge, %acc6_139, %c3_i32", "sge, %acc6_139, %c4_i32")
    right = right.replace("sge, %acc6_153, %c3_i32", "sge, %acc6_153, %c4_i32")
    assert right != WRONG
    assert overwritten_in(right) == ()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{pendings = 1 : i32}", "{pendings = 0 : i32}"),
        ("isAsync = true", "isAsync = false"),
        ("ttng.warp_group_dot %w", "tt.dot %w"),
        # branches in a loop: not followed
        ("      %acc6_150 =", "      scf.if %flag {\n      }\n      %acc6_150 ="),
        # a stage that nobody counts
        ("%x_tile_36[%acc6_155]", "%x_tile_36[%other]"),
        # no iteration
        ("to %c256_i32", "to %c0_i32"),
    ],
)
def test_no_fault(old: str, new: str):
    right = WRONG.replace(old, new)
    assert right != WRONG
    assert overwritten_in(right) == ()


def test_a_fault_of_a_later_iteration():
    """With two products under way the stage of the one before is read too."""
    late = WRONG.replace("{pendings = 1 : i32}", "{pendings = 2 : i32}")
    late = late.replace("sge, %acc6_139, %c3_i32", "sge, %acc6_139, %c4_i32")
    late = late.replace("sge, %acc6_153, %c3_i32", "sge, %acc6_153, %c4_i32")
    found = overwritten_in(late)
    assert [text.partition("[")[0] for text in found] == ["%x_tile_36", "%w_tile_38"]
    assert all(text.endswith("in iteration 1") for text in found)


@pytest.mark.parametrize(
    "text",
    ["", "tt.return", "scf.for", "%0 = scf.for %i = %a to %b step %c {", "    scf.yield"],
)
def test_other_texts(text: str):
    assert overwritten_in(text) == ()


def test_such_a_kernel_does_not_compile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(checked_code, "check_registers", lambda *_: None)
    for _ in range(2):
        with pytest.raises(CompileError, match="a product still reads"):
            check_once(b"code", WRONG, "lora for sm_90")
    check_once(b"other", "", "lora for sm_90")
