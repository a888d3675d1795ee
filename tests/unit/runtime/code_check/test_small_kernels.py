"""The checker of emitted code on kernels of a few lines, one for each rule it holds them to."""

from __future__ import annotations

import pytest
from code_launches import checked

from mirage_py.runtime.code_check.check import CodeReport
from mirage_py.runtime.code_check.events import Launch, Map, Tensor

_HEAD = """
.version 9.0
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 shared_memory[];
.visible .entry kernel(.param .u64 X, .param .u64 Y, .param .align 64 .b8 M[128])
{
.reg .pred %p<9>; .reg .b32 %r<99>; .reg .b64 %rd<99>; .reg .f32 %f<99>;
ld.param.u64 %rd1, [X];
ld.param.u64 %rd2, [Y];
mov.u32 %r1, %tid.x;
mov.u32 %r2, %ctaid.x;
mov.u32 %r3, shared_memory;
shl.b32 %r4, %r1, 2;
add.s32 %r5, %r3, %r4;
mad.lo.s32 %r6, %r2, 256, %r4;
cvt.u64.u32 %rd3, %r6;
add.s64 %rd4, %rd1, %rd3;
add.s64 %rd5, %rd2, %rd3;
and.b32 %r7, %r1, 31;
shr.u32 %r8, %r1, 5;
mov.b64 %rd6, M;
setp.ne.s32 %p1, %r1, 0;
mov.u32 %r30, 0;
mov.u32 %r31, 1;
"""
_TAIL = "\nret;\n}\n"
WAIT = "{ .reg .pred ended; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 ended, [%r20], %r{n}; "
WAIT += "@ended bra ENDED; bra AGAIN; ENDED: }"


def wait(register: int) -> str:
    return WAIT.replace("{n}", str(register))


def report(body: str, threads: int = 64, blocks: int = 2, cluster: int = 1) -> CodeReport:
    tensors = {"X": Tensor("X", 512, 4), "Y": Tensor("Y", 512, 4, is_output=True)}
    maps = {"M": Map("X", (64, 2), (64, 1), 4)}
    launch = Launch(blocks, threads, cluster, 4096, tensors, maps)
    return checked(_HEAD + body + _TAIL, launch)


STORE = "st.global.f32 [%rd5], %f1;"
TURNED = f"""
st.shared.f32 [%r5], %f9;
bar.sync 0;
xor.b32 %r9, %r4, 128;
add.s32 %r9, %r3, %r9;
ld.shared.f32 %f1, [%r9];
{STORE}
"""
# An mbarrier of one arrival, made by thread 0 and waited for by all.
MADE = """
add.s32 %r20, %r3, 1024;
mov.u32 %r21, 256;
@%p1 bra $MADE;
mbarrier.init.shared::cta.b64 [%r20], %r31;
fence.mbarrier_init.release.cluster;
$MADE:
bar.sync 0;
"""
FETCHED = f"""
{MADE}
@%p1 bra $FETCHED;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r20], %r21;
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes \
[%r3], [%rd6, {{%r30, %r2}}], [%r20];
$FETCHED:
{wait(30)}
ld.shared.f32 %f1, [%r5];
{STORE}
"""
REMOTE = f"""
st.shared.f32 [%r5], %f9;
barrier.cluster.arrive.release.aligned;
barrier.cluster.wait.acquire.aligned;
mov.u32 %r10, %cluster_ctarank;
xor.b32 %r10, %r10, 1;
mapa.shared::cluster.u32 %r11, %r5, %r10;
ld.shared::cluster.f32 %f1, [%r11];
barrier.cluster.arrive.release.aligned;
barrier.cluster.wait.acquire.aligned;
{STORE}
"""
CLEAN = {
    "turned": (TURNED, 1),
    "fetched": (FETCHED, 1),
    "remote": (REMOTE, 2),
    "within a warp": (
        TURNED.replace("bar.sync 0", "bar.warp.sync -1").replace("%r4, 128", "%r4, 64"),
        1,
    ),
    "copied": (
        (
            "cp.async.ca.shared.global [%r5], [%rd4], 4; cp.async.commit_group; "
            f"cp.async.wait_group 0; ld.shared.f32 %f1, [%r5]; {STORE}"
        ),
        1,
    ),
}


@pytest.mark.parametrize("name", CLEAN)
def test_a_right_kernel_is_clean(name: str) -> None:
    body, cluster = CLEAN[name]
    found = report(body, cluster=cluster)
    assert found.clean, str(found)
    assert found.events > 0
    assert found.accesses > 0


AGAIN = "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;"
WRONG = {
    "no barrier": (TURNED.replace("bar.sync 0;", ""), 1, "race"),
    "no barrier within a warp": (
        TURNED.replace("bar.sync 0;", "").replace("%r4, 128", "%r4, 64"),
        1,
        "race",
    ),
    "a barrier for one warp alone": (
        TURNED.replace("bar.sync 0;", "bar.sync 1, 32;"),
        1,
        "race",
    ),
    "a barrier of too many": (TURNED.replace("bar.sync 0;", "bar.sync 1, 96;"), 1, "deadlock"),
    "who writes waits, who reads does not": (
        TURNED.replace("bar.sync 0;", "setp.eq.s32 %p2, %r8, 0; @%p2 bra $IN; bra $ON; $IN: "
        "bar.arrive 1, 64; bra $BEHIND; $ON: bar.sync 1, 64; $BEHIND:"),
        1,
        "race",
    ),
    "nothing was stored": (TURNED.replace("st.shared.f32 [%r5], %f9;", ""), 1, "read before"),
    "past the end of shared memory": (TURNED.replace("[%r9]", "[%r9+4000]"), 1, "out of bounds"),
    "past the end of the tensor": (TURNED.replace("[%rd5]", "[%rd5+4]"), 1, "out of bounds"),
    "misaligned": (TURNED.replace("[%rd5]", "[%rd5+2]"), 1, "out of bounds"),
    "an input is written": (TURNED.replace("[%rd5]", "[%rd4]"), 1, "output"),
    "two threads write one element": (
        TURNED.replace(STORE, "st.global.f32 [%rd2], %f1;"), 1, "race"),
    "an element that nobody writes": (TURNED.replace(STORE, f"@%p1 {STORE}"), 1, "output"),
    "no wait for the bytes": (FETCHED.replace(wait(30), ""), 1, "race"),
    "the other parity": (FETCHED.replace(wait(30), wait(31)), 1, "race"),
    "too many bytes": (FETCHED.replace("%r21, 256", "%r21, 272"), 1, "deadlock"),
    "too few bytes": (FETCHED.replace("%r21, 256", "%r21, 240"), 1, "deadlock"),
    "an arrival too many": (
        FETCHED.replace("[%r20], %r31;", "[%r20], 2;"), 1, "deadlock"),
    "no fence behind making it": (
        FETCHED.replace("fence.mbarrier_init.release.cluster;", ""), 1, "missing proxy fence"),
    "not made where others use it": (FETCHED.replace("bar.sync 0;", ""), 1, "barrier misused"),
    "coordinates beyond": (
        FETCHED.replace("{%r30, %r2}", "{%r21, %r2}"), 1, "out of bounds"),
    "a copy comes over what was stored": (
        FETCHED.replace("@%p1 bra $FETCHED;", "st.shared.f32 [%r5], %f9; bar.sync 0;"
        "@%p1 bra $FETCHED;"), 1, "missing proxy fence"),
    "the copy engine writes the barrier": (
        FETCHED.replace("::bytes [%r3]", "::bytes [%r20]"), 1, "barrier misused"),
    "nobody waits for the copy": (
        FETCHED.replace(wait(30), "").replace("ld.shared.f32 %f1, [%r5];", ""), 1, "outlives"),
    "no cluster barrier in front": (REMOTE.replace(AGAIN, "", 1), 2, "race"),
    "no cluster barrier behind": (
        REMOTE[::-1].replace(AGAIN[::-1], "", 1)[::-1], 2, "outlives"),
    "no wait for copies": (
        CLEAN["copied"][0].replace("cp.async.wait_group 0;", ""), 1, "race"),
    "a wait for all but one": (
        CLEAN["copied"][0].replace("wait_group 0", "wait_group 1"), 1, "race"),
    "copies that no group has": (
        CLEAN["copied"][0].replace("cp.async.commit_group;", ""), 1, "race"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_is_found(name: str) -> None:
    body, cluster, kind = WRONG[name]
    found = report(body, cluster=cluster)
    assert not found.unsupported, found.unsupported
    assert found.faults, "nothing was found"
    assert any(fault.kind.startswith(kind) for fault in found.faults), str(found.faults)


def test_what_data_decides_is_not_checked():
    loaded = "ld.global.u32 %r40, [%rd4];"
    at = "add.s32 %r41, %r3, %r40; ld.shared.f32 %f1, [%r41];"
    assert "depends on data" in report(loaded + at + STORE).unsupported
    branch = "setp.ne.s32 %p2, %r40, 0; @%p2 bra $X; bar.sync 0; $X:"
    assert "data decides" in report(loaded + branch + STORE).unsupported


def test_both_ways_of_a_branch_on_data_count():
    body = TURNED.replace(
        "st.shared.f32 [%r5], %f9;",
        "st.shared.f32 [%r5], %f9; ld.global.u32 %r40, [%rd4]; setp.ne.s32 %p2, %r40, 0; "
        "@%p2 bra $X; st.shared.f32 [%r5+256], %f9; $X:",
    )
    assert report(body).clean
    wrong = body.replace("[%r5+256]", "[%r3]")
    assert any(f.kind == "race" for f in report(wrong).faults)
