"""Faults planted into PTX that Triton wrote; ``planted_code.py`` has those for nvcc's.

Triton masks accesses by predicates, and writes them as inline text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from benchmarks.checks.planted_code import Change, Line, barrier_left_out, one_more, without

_GUARD = r"^(\s*)((?:@!?%p\d+ )?)"
_ACCESS = re.compile(
    _GUARD + r"((?:ld|st)\.(global|shared)\S*\s.*?\[|(?:ld|st)matrix\S*\s.*?\[)"
    r"\s*(%rd?\d+)\s*(?:\+\s*(\d+))?\s*(\].*)"
)
_COPY = re.compile(
    _GUARD + r"(cp\.async\.c[ag]\S*) \[ (%r\d+) \+ (\d+) \], \[ (%rd\d+) \+ (\d+) \], (\S+), (\S+);"
)
_BULK = re.compile(_GUARD + r"(cp\.async\.bulk\S*) \[(%r\d+)\], \[(%rd\d+), \{([^}]*)\}\](.*)")
_TRY = re.compile(r"^\s*(mbarrier\.try_wait\.parity\S*) complete, \[(%r\d+)\], (%r\d+);")
_EXPECT = re.compile(_GUARD + r"(mbarrier\.arrive\.expect_tx\S*) _, \[(%r\d+)\], (\d+);")
_INIT = re.compile(_GUARD + r"(mbarrier\.init\S*) \[(%r\d+)\], (\d+);")
_COMPARED = re.compile(r"^(\s*setp\.(?:lt|gt|le|ge)\.[su]32\s+%p\d+, %r\d+, )(\d+);")
_WIDENED = re.compile(r"^(\s*(?:mul|mad)\.wide\.[su]32\s+%rd\d+, %r\d+, )(\d+)([,;].*)")
_SHIFTED = re.compile(r"^(\s*shl\.b32\s+%r\d+, %r\d+, )(\d+);")


def _wait_left_out(at: Line) -> Iterator[str]:
    if _TRY.match(at.text):
        yield "setp.eq.u32 complete, 0, 0;"


def _wrong_parity(at: Line) -> Iterator[str]:
    if m := _TRY.match(at.text):
        yield f"xor.b32 %planted1, {m[3]}, 1; {m[1]} complete, [{m[2]}], %planted1;"


def _bytes(by: int) -> Change:
    def change(at: Line) -> Iterator[str]:
        if m := _EXPECT.match(at.text):
            yield f"{m[1]}{m[2]}{m[3]} _, [{m[4]}], {int(m[5]) + by};"

    return change


def _expect_left_out(at: Line) -> Iterator[str]:
    if _EXPECT.match(at.text):
        yield "// planted: left out"


def _count(at: Line) -> Iterator[str]:
    if m := _INIT.match(at.text):
        yield f"{m[1]}{m[2]}{m[3]} [{m[4]}], {int(m[5]) + 1};"


def _copy_left_out(at: Line) -> Iterator[str]:
    if _COPY.match(at.text) or _BULK.match(at.text):
        yield "// planted: left out"


def _mask_dropped(at: Line) -> Iterator[str]:
    m = _ACCESS.match(at.text)
    if m and m[2] and "shared" not in m[3]:
        yield at.text.replace(m[2], "", 1)
    if (m := _COPY.match(at.text)) and m[9].startswith("%"):
        yield at.text.replace(m[9], m[8])


def _thread_chosen(at: Line) -> Iterator[str]:
    m = _ACCESS.match(at.text)
    if m and m[2] and "st.shared" in m[3]:
        yield at.text.replace(m[2], "", 1)


def _compared(by: int) -> Change:
    def change(at: Line) -> Iterator[str]:
        if m := _COMPARED.match(at.text):
            yield f"{m[1]}{int(m[2]) + by};"

    return change


def _moved(space: str, by: int, what: str = "") -> Change:
    def change(at: Line) -> Iterator[str]:
        m = _ACCESS.match(at.text)
        if m and (m[4] or "shared") == space and m[3].startswith(what):
            yield f"{m[1]}{m[2]}{m[3]}{m[5]}+{int(m[6] or 0) + by}{m[7]}"

    return change


def _copy_beyond(at: Line) -> Iterator[str]:
    if m := _COPY.match(at.text):
        to = f"[ {m[6]} + {int(m[7]) + (1 << 30)} ]"
        yield f"{m[1]}{m[2]}{m[3]} [ {m[4]} + {m[5]} ], {to}, {m[8]}, {m[8]};"


def _bulk_away(at: Line) -> Iterator[str]:
    if m := _BULK.match(at.text):
        yield f"{m[1]}{m[2]}{m[3]} [{m[4]}+2048], [{m[5]}, {{{m[6]}}}]{m[7]}"


def _beyond_tensor(at: Line) -> Iterator[str]:
    if m := _BULK.match(at.text):
        first, *rest = m[6].split(", ")
        where = ", ".join(["%planted1", *rest])
        start = f"add.s32 %planted1, {first}, 1048576;"
        yield f"{start} {m[2]}{m[3]} [{m[4]}], [{m[5]}, {{{where}}}]{m[7]}"


def _stride(at: Line) -> Iterator[str]:
    if m := _WIDENED.match(at.text):
        yield f"{m[1]}{2 * int(m[2])}{m[3]}"


def _half_a_stage(at: Line) -> Iterator[str]:
    """Stages that begin inside of the ones before them."""
    m = _SHIFTED.match(at.text)
    if m and int(m[2]) >= 10:
        yield f"{m[1]}{int(m[2]) - 1};"


OF_TRITON: dict[str, Change] = {
    "barrier left out": barrier_left_out,
    "wrong parity": _wrong_parity,
    "wait for a phase left out": _wait_left_out,
    "expected bytes left out": _expect_left_out,
    "arrivals: one more": _count,
    "bytes: 16 more": _bytes(16),
    "bytes: 1024 less": _bytes(-1024),
    "wgmma wait one later": one_more(r"wgmma\.wait_group\.sync\.aligned"),
    "wgmma wait left out": without(r"wgmma\.wait_group"),
    "wgmma commit left out": without(r"wgmma\.commit_group"),
    "wgmma fence left out": without(r"wgmma\.fence"),
    "proxy fence left out": without(r"fence\.proxy\.async"),
    "copy wait one later": one_more(r"cp\.async\.wait_group"),
    "copy wait left out": without(r"cp\.async\.wait_group"),
    "copy commit left out": without(r"cp\.async\.commit_group"),
    "copy left out": _copy_left_out,
    "mask dropped": _mask_dropped,
    "stored by all threads": _thread_chosen,
    "bound one more": _compared(1),
    "bound one less": _compared(-1),
    "wrong stride": _stride,
    "half a stage": _half_a_stage,
    "shared address a tile away": _moved("shared", 4096),
    "bulk copy a tile away": _bulk_away,
    "stores a tile away": _moved("global", 4096, "st."),
    "global address beyond": _moved("global", 1 << 30),
    "copy from beyond": _copy_beyond,
    "tensor coordinates beyond": _beyond_tensor,
    "wait for the kernel before left out": without(r"griddepcontrol\.wait"),
}
