"""Checks on nvdisasm's output: registers read before anything can have written them, and the stack
pointer taken for a number.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest
from unit.runtime.sass_lines import sass

from mirage_py.errors import CompileError
from mirage_py.runtime.compile import checked_code, compiled_facts
from mirage_py.runtime.compile import compile as compile_module
from mirage_py.runtime.compile.checked_code import check_once
from mirage_py.runtime.compile.compile import KernelSource
from mirage_py.runtime.compile.compiled_facts import check_registers, cuda_tools
from mirage_py.runtime.sass.machine_code import unwritten_in

# Of a kernel that failed on an H200: UR14 and UR15 should have been UR10 and UR11.
DATA = Path(__file__).parents[3] / "data/sass"
FORGOTTEN = (DATA / "forgotten_descriptor.sass").read_text()
SHARED = (DATA / "shared_operand.sass").read_text()
READS = "UIADD3 UR14, UP0, UR14, 0x20, URZ"


def test_the_descriptor_that_ptxas_forgot():
    assert unwritten_in(FORGOTTEN) == (
        READS,
        "UIADD3.X UR15, UR15, -0x3ffffff0, URZ, UP0, !UPT",
    )


def test_as_it_should_have_been():
    right = FORGOTTEN.replace("UR14, UP0, UR14,", "UR14, UP0, UR10,").replace(
        "UR15, UR15,", "UR15, UR11,"
    )
    assert right != FORGOTTEN
    assert unwritten_in(right) == ()


@pytest.mark.parametrize(
    "lines",
    [
        ("ULDC.64 UR4, c[0x0][0x210]", "MOV R1, UR5", "EXIT"),
        ("@P0 UMOV UR4, 0x1", "MOV R1, UR4", "EXIT"),
        # written further down, but on the way
        ("BRA `(.L_x_1)", ".L_x_0:", "MOV R1, UR4", "EXIT", ".L_x_1:", "UMOV UR4, 0x1",
         "BRA `(.L_x_0)"),
        # written in one of two branches: as far as the condition goes, nothing is known
        ("@P0 BRA `(.L_x_0)", "UMOV UR4, 0x1", ".L_x_0:", "MOV R1, UR4", "EXIT"),
        # nobody gets there
        ("EXIT", "MOV R1, UR4"),
        # the left operand is in registers: the first two of the four are not read
        ("UMOV UR6, 0x1", "UMOV UR7, 0x1", "HGMMA.64x16x16.F32 R24, R4, gdesc[UR4], R24", "EXIT"),
        # computed addresses: no verdict
        ("BRX R4 -0x10", "MOV R1, UR4", "EXIT"),
        ("R2UR UR4, R3", "S2UR UR5, SR_CTAID.X", "IADD3 R1, UR4, UR5, RZ", "EXIT"),
        # written in a function of the compiler's own, which is called
        ("CALL.REL.NOINC `($divides)", "MOV R1, UR4", "EXIT", "$divides:", "UMOV UR4, 0x1",
         "RET.REL.NODEC R2 `(kernel)"),
        # called where the text does not say
        ("CALL.ABS.NOINC R4", "MOV R1, UR4", "EXIT"),
        # a stack: room on it, what is kept there, the address of that
        ("LDC R1, c[0x0][0x28]", "VIADD R1, R1, 0xfffffff0", "STL [R1+0x8], R4",
         "LDL.LU R4, [R1+0x8]", "IADD3 R2, R1, 0x8, RZ", "EXIT"),
        # a register like any other
        ("MOV R1, 0x1", "R2UR UR4, R1", "MOV R2, UR4", "EXIT"),
        (),
    ],
)  # fmt: skip
def test_no_fault(lines):
    assert unwritten_in(sass(*lines)) == ()


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (("MOV R1, UR4", "UMOV UR4, 0x1", "EXIT"), "MOV R1, UR4"),
        (("UMOV UR4, 0x1", "LDG.E R0, desc[UR4][R2.64+UR6]", "EXIT"),
         "LDG.E R0, desc[UR4][R2.64+UR6]"),
        (("UISETP.NE.AND UP0, UPT, UR4, 0x1, UPT", "EXIT"),
         "UISETP.NE.AND UP0, UPT, UR4, 0x1, UPT"),
        (("UMOV UR4, 0x1", "UMOV UR5, 0x1", "HGMMA.64x16x16.F32 R24, gdesc[UR4], RZ, !UPT", "EXIT"),
         "HGMMA.64x16x16.F32 R24, gdesc[UR4], RZ, !UPT"),
        # a call of a function that divides hides nothing
        (("CALL.REL.NOINC `($divides)", "MOV R1, UR4", "EXIT", "$divides:", "MUFU.RCP R3, R2",
          "RET.REL.NODEC R2 `(kernel)"), "MOV R1, UR4"),
        # the condition of a jump is an operand: what is behind it is reached
        (("UMOV UR5, 0x1", "BRA.DIV UR5, `(.L_x_0)", "MOV R1, UR4", ".L_x_0:", "EXIT"),
         "MOV R1, UR4"),
        (("BRA.DIV UR5, `(.L_x_0)", ".L_x_0:", "EXIT"), "BRA.DIV UR5, `(.L_x_0)"),
        # of an attention kernel that ended with an illegal memory access on an H200: the descriptor
        # should have come from UR6
        (("LDC R1, c[0x0][0x28]", "R2UR UR10, R1.reuse", "UIADD3 UR10, UP0, UR10, 0x20, URZ",
          "EXIT"), "R2UR UR10, R1.reuse"),
        (("MOV R1, c[0x0][0x28]", "IADD3 R1, R1, -0x10, RZ", "STL [R1], R4", "R2UR UR4, R1",
          "EXIT"), "R2UR UR4, R1"),
        (("LDC R1, c[0x0][0x37c]", "FMNMX R4, R4, R1.reuse, !PT", "EXIT"),
         "FMNMX R4, R4, R1.reuse, !PT"),
    ],
)  # fmt: skip
def test_a_fault(lines, found):
    assert unwritten_in(sass(*lines)) == (found,)


def _prints(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(compiled_facts, "cuda_tools", lambda _: ("a", "b"))
    monkeypatch.setattr(compiled_facts, "disassembled", lambda *_: text)


def test_such_a_kernel_does_not_compile(monkeypatch):
    _prints(monkeypatch, FORGOTTEN)
    with pytest.raises(CompileError, match="nothing has written"):
        check_registers(b"", "kernel for sm_90")


def test_a_kernel_whose_operands_share_registers_does_not_compile(monkeypatch):
    _prints(monkeypatch, SHARED)
    # The data are shortened: its uniform registers are written elsewhere.
    monkeypatch.setattr(compiled_facts, "unwritten_in", lambda _: ())
    with pytest.raises(CompileError, match="same registers"):
        check_registers(b"", "kernel for sm_90")


def test_a_tool_that_does_not_read_the_code_gives_way_to_the_next(monkeypatch):
    asked = []

    def one_reads(_cubin: bytes, tool: str) -> str:
        asked.append(tool)
        if tool == "a":
            raise FileNotFoundError("nvdisasm")
        # Nothing at all, a jump to what is not there, and what is understood.
        texts = {"b": "", "c": sass("BRA 0x140", "EXIT"), "d": sass("BRA `(.L_x_0)", ".L_x_0:")}
        return texts[tool]

    monkeypatch.setattr(compiled_facts, "cuda_tools", lambda _: ("a", "b", "c", "d", "e"))
    monkeypatch.setattr(compiled_facts, "disassembled", one_reads)
    check_registers(b"", "kernel for sm_90")
    assert asked == ["a", "b", "c", "d"]


def test_without_the_tool_nothing_is_known(monkeypatch):
    monkeypatch.setattr(compiled_facts, "cuda_tools", lambda _: ())
    check_registers(b"", "kernel for sm_90")


def test_the_tool_whose_version_is_known_comes_first(monkeypatch):
    monkeypatch.setattr(compiled_facts, "_triton_tool", lambda name: f"triton/{name}")
    monkeypatch.setattr(compiled_facts.shutil, "which", lambda name: f"toolkit/{name}")
    assert cuda_tools("nvdisasm") == ("triton/nvdisasm", "toolkit/nvdisasm")


def test_code_is_looked_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path))
    looked = []

    def check(cubin: bytes, where: str) -> None:
        looked.append(cubin)
        if cubin == b"spoilt":
            raise CompileError("spoilt", where=where)

    monkeypatch.setattr(checked_code, "check_registers", check)
    for _ in range(2):
        check_once(b"right", "", "k for sm_90")
        with pytest.raises(CompileError, match="spoilt"):
            check_once(b"spoilt", "", "k for sm_90")
    assert looked == [b"right", b"spoilt", b"spoilt"]
    # Another fault is looked for.
    monkeypatch.setattr(checked_code, "CHECKS", 99)
    check_once(b"right", "", "k for sm_90")
    assert len(looked) == 4


@pytest.mark.parametrize("text", ["wgmma.mma_async", "mma.sync"])
def test_a_process_that_launches_looks_too(monkeypatch: pytest.MonkeyPatch, text: str):
    """Its assembler may be another one than that of who found the plan."""
    looked = []

    class Compiled:
        asm: ClassVar = {"ptx": text, "cubin": b"code", "ttgir": "loop"}

    monkeypatch.setattr(compile_module, "compiled_handle", lambda *_: Compiled)
    monkeypatch.setattr(compile_module, "check_once", lambda *found: looked.append(found))
    source = KernelSource("k", "", (), 4)
    assert compile_module.checked_handle(source, 90) is Compiled
    assert looked == ([(b"code", "loop", "k for sm_90")] if "wgmma" in text else [])
