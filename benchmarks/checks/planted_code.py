"""Faults planted into PTX of emitted kernels, one a text: what the checker of emitted code must
find.

Each kind stands for a mistake of an emitter. A planted fault keeps the lines of the text, so that
what is found can be compared with where it lies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

_DECLARED = "{ .reg .b32 %planted<4>; .reg .b64 %plantedl<4>;"
_BARRIER = re.compile(r"^\s*(bar\.sync|barrier\.cluster\.\w+\S*|bar\.warp\.sync)\b.*;")
_MEMORY = re.compile(
    r"^(\s*)((?:ld\.shared|st\.shared|ldmatrix|stmatrix)\S*\s.*\[)(%r\d+)(\+\d+)?(\].*)"
)
_GLOBAL = re.compile(
    r"^(\s*)((?:@!?%p\d+\s+)?(?:ld\.global|st\.global)\S*\s.*\[)(%rd\d+)(\+\d+)?(\].*)"
)
_COPY = re.compile(
    r"^(\s*)(cp\.async\.c[ag]\.shared\.global) \[(%r\d+)\], \[(%rd\d+)\], (\d+), (\S+);"
)
_TMA = re.compile(r"^(\s*)(cp\.async\.bulk\S*) \[(%r\d+)\], \[(%rd\d+), \{([^}]*)\}\](.*)")
_TRY = re.compile(r"^(\s*)mbarrier\.try_wait\.parity\S* ended, \[(%r\d+)\], (\S+);")
_ARRIVE = re.compile(r"^\s*(?:mbarrier\.arrive\.(?!expect)|bar\.arrive\b).*")
_EXPECT = re.compile(r"^(\s*)(mbarrier\.arrive\.expect_tx\S*) _, \[(%r\d+)\], (%r\d+);")
_INIT = re.compile(r"^(\s*)(mbarrier\.init\S*) \[(%r\d+)\], (%r\d+);")
_SKIP = re.compile(r"^(\s*)@(!?)(%p\d+) bra(\S*)\s+(\S+);")
_BOUND = re.compile(r"^(\s*)setp\.(lt|gt|eq|ne|ge|le)\.([su]32)(\s+)(%p\d+), (%r\d+), (\d+);")
_NAMED = re.compile(r"^(\s*)bar\.(sync|arrive) (%r\d+), (%r\d+);")
_OFFSET = re.compile(r"^(\s*)add\.s32(\s+)(%r\d+), (%r\d+), (\d+);")


Change = Callable[["Line"], Iterator[str]]


@dataclass(frozen=True, slots=True)
class Planted:
    """``text`` is the whole PTX with one fault of this kind in a line."""

    kind: str
    line: int
    was: str
    text: str

    @property
    def name(self) -> str:
        """For tables."""
        return f"{self.kind} in line {self.line}"


def planted(text: str, kinds: Mapping[str, Change] | None = None) -> Iterator[Planted]:
    """All faults that can be planted into a kernel, by kind, then by line."""
    lines = text.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("{"))
    lines[start] = _DECLARED + lines[start][1:]
    for kind, change in (kinds or OF_NVCC).items():
        for n, line in enumerate(lines):
            if n <= start:
                continue
            for new in change(Line(line, lines, n)):
                if new != line:
                    changed = [*lines[:n], new, *lines[n + 1 :]]
                    yield Planted(kind, n + 1, line.strip(), "\n".join(changed) + "\n")


@dataclass(frozen=True, slots=True)
class Line:
    """One line, with all others."""

    text: str
    lines: list[str]
    number: int

    def near(self, before: int, after: int) -> list[str]:
        """So many lines before it, and as many after it less one."""
        return self.lines[max(0, self.number - before) : self.number + after]


def without(pattern: str) -> Change:
    """Lines that begin so are left out."""
    compiled = re.compile(rf"^\s*{pattern}")

    def change(at: Line) -> Iterator[str]:
        if compiled.match(at.text):
            yield "// planted: left out"

    return change


def barrier_left_out(at: Line) -> Iterator[str]:
    """Those where threads wait."""
    if _BARRIER.match(at.text) and "arrive" not in at.text:
        yield "// planted: left out"


def _wrong_parity(at: Line) -> Iterator[str]:
    if m := _TRY.match(at.text):
        start = at.text.replace(f", {m[3]};", ", %planted1;")
        yield f"xor.b32 %planted1, {m[3]}, 1; {start}"


def _wait_left_out(at: Line) -> Iterator[str]:
    if _TRY.match(at.text):
        yield "setp.eq.u32 ended, 0, 0;"


def one_more(pattern: str) -> Change:
    """The number after this prefix is larger by one."""
    compiled = re.compile(rf"^(\s*{pattern})\s+(\d+);")

    def change(at: Line) -> Iterator[str]:
        if m := compiled.match(at.text):
            yield f"{m[1]} {int(m[2]) + 1};"

    return change


def _arrive_left_out(at: Line) -> Iterator[str]:
    if _ARRIVE.match(at.text):
        yield "// planted: left out"


def _count(by: int) -> Change:
    def change(at: Line) -> Iterator[str]:
        if m := _INIT.match(at.text):
            yield f"add.s32 %planted1, {m[4]}, {by}; {m[2]} [{m[3]}], %planted1;"

    return change


def _bytes(by: int) -> Change:
    def change(at: Line) -> Iterator[str]:
        if m := _EXPECT.match(at.text):
            yield f"add.s32 %planted1, {m[4]}, {by}; {m[2]} _, [{m[3]}], %planted1;"

    return change


def _tile_away(by: int) -> Change:
    def change(at: Line) -> Iterator[str]:
        if m := _MEMORY.match(at.text):
            yield f"{m[1]}{m[2]}{m[3]}+{int(m[4] or 0) + by}{m[5]}"
        elif (m := _COPY.match(at.text)) and by > 0:
            yield f"{m[1]}{m[2]} [{m[3]}+{by}], [{m[4]}], {m[5]}, {m[6]};"

    return change


def _beyond_global(at: Line) -> Iterator[str]:
    if m := _GLOBAL.match(at.text):
        yield f"{m[1]}{m[2]}{m[3]}+{int(m[4] or 0) + (1 << 30)}{m[5]}"
    elif m := _COPY.match(at.text):
        yield f"{m[1]}{m[2]} [{m[3]}], [{m[4]}+{1 << 30}], {m[5]}, {m[6]};"


def _tile_away_global(at: Line) -> Iterator[str]:
    if (m := _GLOBAL.match(at.text)) and "st.global" in at.text:
        yield f"{m[1]}{m[2]}{m[3]}+{int(m[4] or 0) + 4096}{m[5]}"


def _tma_away(at: Line) -> Iterator[str]:
    if m := _TMA.match(at.text):
        yield f"{m[1]}{m[2]} [{m[3]}+2048], [{m[4]}, {{{m[5]}}}]{m[6]}"


def _beyond_tensor(at: Line) -> Iterator[str]:
    if m := _TMA.match(at.text):
        first, *rest = m[5].split(", ")
        where = ", ".join(["%planted1", *rest])
        start = f"add.s32 %planted1, {first}, 1048576;"
        yield f"{start} {m[2]} [{m[3]}], [{m[4]}, {{{where}}}]{m[6]}"


def _mask_dropped(at: Line) -> Iterator[str]:
    if (m := _COPY.match(at.text)) and _is_chosen(at, m[6]):
        yield f"{m[1]}{m[2]} [{m[3]}], [{m[4]}], {m[5]}, {m[5]};"
    if m := _SKIP.match(at.text):
        after = "".join(at.near(0, 8)[1:])
        if "_global" in after or ".global" in after:
            yield f"{m[1]}// planted: no branch"


def _is_chosen(at: Line, register: str) -> bool:
    pattern = re.compile(rf"\bselp\.\w+\s+{re.escape(register)},")
    return any(pattern.search(line) for line in at.near(40, 0))


def _bound_moved(at: Line) -> Iterator[str]:
    m = _BOUND.match(at.text)
    if m and any(f"@{m[5]} bra" in x or f"@!{m[5]} bra" in x for x in at.near(0, 3)[1:]):
        back = next((x for x in at.near(0, 3)[1:] if "bra" in x), "")
        label = back.split()[-1].rstrip(";") + ":" if back else ""
        if label in "\n".join(at.lines[: at.number]):  # a loop
            more = int(m[7]) + _step(at, m[6])
            yield f"{m[1]}setp.{m[2]}.{m[3]}{m[4]}{m[5]}, {m[6]}, {more};"


def _step(at: Line, register: str) -> int:
    for line in reversed(at.near(40, 0)):
        m = _OFFSET.match(line)
        if m and m[3] == register:
            return int(m[5])
    return 1


def _stage_too_many(at: Line) -> Iterator[str]:
    """A ring that comes round one stage late, or one early."""
    m = _BOUND.match(at.text)
    if m and m[2] == "eq" and any(re.search(rf"selp\.b32.*, {m[5]};", x) for x in at.near(0, 5)):
        for by in (1, -1):
            yield f"{m[1]}setp.eq.{m[3]}{m[4]}{m[5]}, {m[6]}, {int(m[7]) + by};"


def _other_barrier(at: Line) -> Iterator[str]:
    if m := _NAMED.match(at.text):
        half = "mov.u32 %planted2, %tid.x; shr.u32 %planted2, %planted2, 5; "
        half += f"and.b32 %planted2, %planted2, 1; add.s32 %planted1, {m[3]}, %planted2;"
        yield f"{half} bar.{m[2]} %planted1, {m[4]};"
        yield f"add.s32 %planted1, {m[4]}, 32; bar.{m[2]} {m[3]}, %planted1;"


def _overlap(at: Line) -> Iterator[str]:
    """A buffer that begins inside of the one before it."""
    m = _OFFSET.match(at.text)
    if (
        m
        and int(m[5]) >= 1024
        and int(m[5]) % 1024 == 0
        and (any(re.search(rf"mov\.u32\s+{re.escape(m[4])}, shared_memory;", x) for x in at.lines))
    ):
        yield f"{m[1]}add.s32{m[2]}{m[3]}, {m[4]}, {int(m[5]) - 512};"


OF_NVCC: dict[str, Change] = {
    "barrier left out": barrier_left_out,
    "wrong parity": _wrong_parity,
    "wait for a phase left out": _wait_left_out,
    "arrival left out": _arrive_left_out,
    "expected bytes left out": without(r"mbarrier\.arrive\.expect_tx"),
    "arrivals: one more": _count(1),
    "arrivals: one less": _count(-1),
    "bytes: 16 more": _bytes(16),
    "bytes: 1024 less": _bytes(-1024),
    "wgmma wait one later": one_more(r"wgmma\.wait_group\.sync\.aligned"),
    "wgmma wait left out": without(r"wgmma\.wait_group"),
    "wgmma commit left out": without(r"wgmma\.commit_group"),
    "wgmma fence left out": without(r"wgmma\.fence"),
    "proxy fence left out": without(r"fence\.proxy\.async"),
    "fence of barriers left out": without(r"fence\.mbarrier_init"),
    "copy wait one later": one_more(r"cp\.async\.wait_group"),
    "copy wait left out": without(r"cp\.async\.wait_group"),
    "copy commit left out": without(r"cp\.async\.commit_group"),
    "copy left out": without(r"cp\.async\.(?:c[ag]|bulk\.tensor)"),
    "other named barrier": _other_barrier,
    "shared address a tile away": _tile_away(4096),
    "bulk copy a tile away": _tma_away,
    "buffers overlap": _overlap,
    "stage too many or too few": _stage_too_many,
    "loop one iteration longer": _bound_moved,
    "mask dropped": _mask_dropped,
    "stores a tile away": _tile_away_global,
    "global address beyond": _beyond_global,
    "tensor coordinates beyond": _beyond_tensor,
    "wait for the kernel before left out": without(r"griddepcontrol\.wait"),
}
KINDS = tuple(OF_NVCC)
