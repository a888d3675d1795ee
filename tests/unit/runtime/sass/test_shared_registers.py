"""Two products of warp groups whose left operands have the same registers."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.runtime.sass_lines import sass

from mirage_py.runtime.sass.shared_registers import shared_in

# Of a kernel whose results were wrong on an H200 from the second tile of keys on, shortened: the
# queries were read once, to R88 and on, where the exponentials of each tile went too.
WRONG = (Path(__file__).parents[3] / "data/sass/shared_operand.sass").read_text()


def product(left: int, sums: int = 24) -> str:
    return f"HGMMA.64x64x16.F32 R{sums}, R{left}, gdesc[UR12].tnspB, R{sums}"


def loop(*lines: str) -> tuple[str, ...]:
    return (".L_x_0:", *lines, "@!P0 BRA `(.L_x_0)", "EXIT")


def test_queries_that_exponentials_overwrite():
    found = shared_in(WRONG)
    assert len(found) == 4
    assert found[0] == "HGMMA.64x64x16.F32 R24, R88, gdesc[UR12].tnspB, RZ, !UPT"


def test_exponentials_in_registers_of_their_own():
    packed = [f"R{n}," for n in range(88, 104)]
    right = WRONG
    for name in packed:
        own = f"R{int(name[1:-1]) + 16},"
        right = right.replace(f"PACK_AB {name}", f"PACK_AB {own}")
        right = right.replace(f"R56, {name}", f"R56, {own}")
    assert right != WRONG
    assert shared_in(right) == ()


@pytest.mark.parametrize(
    "lines",
    [
        # as it should be
        ("LDSM.16.M88.4 R88, [R2]", *loop(product(88), "F2FP.F16.F32.PACK_AB R92, R1, R0",
                                          product(92, 56))),
        # the operand is read again in each iteration: registers are free in between
        loop("LDSM.16.M88.4 R88, [R2]", product(88), "F2FP.F16.F32.PACK_AB R88, R1, R0",
             product(88, 56)),
        # what an iteration leaves to the next one, and to the product behind the loop
        ("LOP3.LUT R88, R4, R5, RZ, 0x3c, !PT",
         ".L_x_0:", product(88), "LOP3.LUT R88, R6, R5, RZ, 0x3c, !PT", "@!P0 BRA `(.L_x_0)",
         product(88), "EXIT"),
        # two products of one operand that comes from two places
        ("LDSM.16.M88.4 R88, [R2]",
         *loop(product(88), product(88, 56), "F2FP.F16.F32.PACK_AB R88, R1, R0")),
        # two loops, one behind the other, with the same operand
        ("LDSM.16.M88.4 R88, [R2]", ".L_x_1:", product(88), "@!P0 BRA `(.L_x_1)",
         *loop(product(88))),
        # spilled, and brought back
        ("LDSM.16.M88.4 R88, [R2]",
         *loop(product(88), "F2FP.F16.F32.PACK_AB R88, R1, R0", product(88, 56),
               "LDL.128 R88, [R1]")),
        # both operands in shared memory
        ("LDSM.16.M88.4 R88, [R2]",
         *loop("HGMMA.64x64x16.F32 R24, gdesc[UR8], R24", "F2FP.F16.F32.PACK_AB R88, R1, R0",
               product(88, 56))),
        (),
    ],
)  # fmt: skip
def test_no_fault(lines):
    assert shared_in(sass(*lines)) == ()


@pytest.mark.parametrize(
    "lines",
    [
        ("LDSM.16.M88.4 R88, [R2]",
         *loop(product(88), "F2FP.F16.F32.PACK_AB R88, R1, R0", product(88, 56))),
        # computed, and not read: the instruction says nothing
        ("F2FP.F16.F32.PACK_AB R88, R3, R2",
         *loop(product(88), "F2FP.F16.F32.PACK_AB R88, R1, R0", product(88, 56))),
        # under a condition
        ("LDSM.16.M88.4 R88, [R2]",
         *loop(product(88), "@P1 LDSM.16.M88.4 R88, [R3]", "F2FP.F16.F32.PACK_AB R88, R1, R0",
               "@P2 BRA `(.L_x_2)", "FMUL R56, R56, R15", ".L_x_2:", product(88, 56))),
        # a function of the compiler's own is called on the way
        ("LDSM.16.M88.4 R88, [R2]",
         *loop(product(88), "F2FP.F16.F32.PACK_AB R88, R1, R0",
               "CALL.REL.NOINC `($__internal_0_$__cuda_sm20_rcp_rn_f32_slowpath)",
               product(88, 56)),
         "$__internal_0_$__cuda_sm20_rcp_rn_f32_slowpath:", "MUFU.RCP R3, R2",
         "RET.REL.NODEC R2 `(attention)"),
    ],
)  # fmt: skip
def test_a_fault(lines):
    assert shared_in(sass(*lines)) == (product(88),)


def test_where_control_goes_is_not_known():
    body = loop(product(88), "F2FP.F16.F32.PACK_AB R88, R1, R0", product(88, 56))
    assert shared_in(sass("LDSM.16.M88.4 R88, [R2]", *body, "BRX R4 -0x10")) == ()
