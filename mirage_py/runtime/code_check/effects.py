"""PTX instructions with effects: memory, copies, barriers, wgmma."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from mirage_py.runtime.code_check.events import BOUNDS, Fault, UnsupportedError
from mirage_py.runtime.code_check.execute import (
    GENERIC,
    LANES,
    PARAMETERS,
    RANK_SHIFT,
    WarpRun,
    special,
)
from mirage_py.runtime.code_check.ptx.integers import UNKNOWN, Value
from mirage_py.runtime.code_check.ptx.ptx import Address, Instruction, Vector

_OFFSET = (1 << RANK_SHIFT) - 1
_VECTORS = {"v2": 2, "v4": 4, "v8": 8}


def _bytes_of(i: Instruction) -> int:
    size = int(re.sub(r"\D", "", i.parts[-1])) // 8
    for word, count in _VECTORS.items():
        if word in i.parts:
            size *= count
    return size


def _is_shared(i: Instruction, address: Value) -> bool:
    if any(p.startswith("shared") for p in i.parts):
        return True
    if any(p in ("global", "const", "param", "local") for p in i.parts):
        return False
    low, high = int(np.min(address)), int(np.max(address))
    if low >= GENERIC and high < PARAMETERS:
        return True
    if high < GENERIC:
        return False
    raise UnsupportedError(f"line {i.line}: an address of shared and of global memory")


def _in_shared(run: WarpRun, i: Instruction, address: Value, size: int, mask: Any) -> Value:
    """The address without what makes it generic; a fault where it lies outside."""
    if int(np.max(address)) >= GENERIC:
        address = address - GENERIC
    places = run.program.memory.masked(address, mask)
    end = run.program.shared_end
    rank = places >> RANK_SHIFT
    at = places & _OFFSET
    if at.size and (int(at.max()) + size > end or int(rank.max()) > run.program.launch.cluster):
        text = (
            f"{i.opcode} of {size} bytes at byte {int(at.max())} of shared memory, which has {end}"
        )
        run.program.memory.say(Fault(BOUNDS, i.line, text))
    elif (
        size
        and size & (size - 1) == 0
        and int(np.bitwise_or.reduce(at.ravel(), initial=0)) & (size - 1)
    ):
        run.program.memory.say(Fault(BOUNDS, i.line, f"{i.opcode} of {size} bytes is misaligned"))
    return address


def _check_waited(run: WarpRun, i: Instruction, mask: Any, read: Value = None) -> None:
    """A kernel with programmatic dependent launch touches global memory only once it has waited,
    but for what the kernel in front does not write. ``read`` is where it reads.
    """
    if run.program.launch.waits and (mask & ~run.waited).any():
        if read is not None and run.program.memory.is_early(read, mask):
            return
        text = f"{i.opcode} comes before the wait for the kernel in front"
        run.program.memory.say(Fault("early access", i.line, text))


def _threads(run: WarpRun) -> Any:
    launch = run.program.launch
    blocks = np.arange(launch.blocks, dtype=np.int64)[:, None]
    return blocks * launch.threads + run.warp * 32 + LANES


@special("ld", "ldu")
def _load(run: WarpRun, i: Instruction, mask: Any, merged: Any, may: bool) -> None:
    to = i.operands[0]
    targets = to.items if isinstance(to, Vector) else (to,)
    value: Value = UNKNOWN
    if "param" in i.parts:
        address = run.address(i.operands[1], i)
        number, offset = divmod(address - PARAMETERS, 1 << 16)
        value = run.program.memory.parameter(number) if not offset else UNKNOWN
    elif "local" not in i.parts:
        size = _bytes_of(i)
        address = run.address(i.operands[1], i)
        if _is_shared(i, address):
            address = _in_shared(run, i, address, size, mask)
            run.note("load", i, mask, address, size, may=may)
        else:
            _check_waited(run, i, mask, address)
            run.program.memory.touch(i.line, address, size, mask, what="a load", may=may)
            if not isinstance(to, Vector):
                value = run.program.memory.constant(address, size)
    for name in targets:
        run.write(name, value, mask, merged, may)


@special("st")
def _store(run: WarpRun, i: Instruction, mask: Any, merged: Any, may: bool) -> None:
    if "local" in i.parts:
        return
    size, address = _bytes_of(i), run.address(i.operands[0], i)
    if _is_shared(i, address):
        address = _in_shared(run, i, address, size, mask)
        run.note("store", i, mask, address, size, may=may)
        return
    _check_waited(run, i, mask)
    threads = _threads(run)
    run.program.memory.store(i.line, address, size, mask, threads, may, adds=False)


@special("red", "atom")
def _add(run: WarpRun, i: Instruction, mask: Any, merged: Any, may: bool) -> None:
    where = 1 if i.parts[0] == "atom" else 0
    address = run.address(i.operands[where], i)
    if _is_shared(i, address):
        raise UnsupportedError(f"line {i.line}: {i.opcode}")
    _check_waited(run, i, mask)
    threads = _threads(run)
    size = _bytes_of(i)
    run.program.memory.store(i.line, address, size, mask, threads, may, adds=True)
    if where:
        run.write(i.operands[0], UNKNOWN, mask, merged, may)


def _whole(run: WarpRun, i: Instruction, mask: Any) -> None:
    """Of each block all lanes do it, or none."""
    if not (mask.all(axis=1) == mask.any(axis=1)).all():
        raise UnsupportedError(f"line {i.line}: {i.opcode} by a part of a warp")


_ROWS = {"x4": 32, "x2": 16, "x1": 8}


@special("ldmatrix", "stmatrix")
def _matrix(run: WarpRun, i: Instruction, mask: Any, merged: Any, may: bool) -> None:
    is_load = i.parts[0] == "ldmatrix"
    address = run.address(i.operands[1 if is_load else 0], i)
    rows = next(count for word, count in _ROWS.items() if word in i.parts)
    _whole(run, i, mask)
    named = mask & (rows > LANES)
    address = _in_shared(run, i, address, 16, named)
    run.note("matrix_load" if is_load else "matrix_store", i, named, address, 16, may=may)


@special("cp")
def _copy(run: WarpRun, i: Instruction, mask: Any, merged: Any, may: bool) -> None:
    if may and "prefetch" not in i.parts:
        raise UnsupportedError(f"line {i.line}: data decides whether {i.opcode} happens")
    words = i.parts
    if "bulk" in words:
        return _bulk(run, i, mask)
    if "commit_group" in words:
        return run.note("copy_commit", i, mask)
    if "wait_group" in words or "wait_all" in words:
        left = run.number(i.operands[0], i) if "wait_group" in words else 0
        return run.note("copy_wait", i, mask, data=left)
    if "mbarrier" in words:
        raise UnsupportedError(f"line {i.line}: {i.opcode}")
    size = run.number(i.operands[2], i)
    to = _in_shared(run, i, run.address(i.operands[0], i), size, mask)
    source = run.address(i.operands[1], i)
    _check_waited(run, i, mask, source)
    bytes_read: Value = run.value(i.operands[3]) if len(i.operands) > 3 else size
    if bytes_read is UNKNOWN:
        run.program.memory.touch(i.line, source, size, mask, what="a copy", may=True)
    else:
        reads = mask & (np.asarray(bytes_read) > 0)
        run.program.memory.touch(i.line, source, size, reads, what="a copy")
    run.note("copy", i, mask, to, size)
    return None


def _bulk(run: WarpRun, i: Instruction, mask: Any) -> None:
    words = i.parts
    if "prefetch" in words:
        return
    if (
        words[-1] == "commit_group"
        or "wait_group" in words
        or not words[3].startswith(("shared", "tensor", "1d"))
    ):
        raise UnsupportedError(f"line {i.line}: {i.opcode}")
    if any(w.startswith("multicast") for w in words) or "reduce" in words:
        raise UnsupportedError(f"line {i.line}: {i.opcode}")
    tensor = "tensor" in words
    if tensor and not any(w.startswith("shared") for w in words[4:6]):
        raise UnsupportedError(f"line {i.line}: {i.opcode}")
    source = i.operands[1]
    assert isinstance(source, Address)
    if tensor:
        address = run.address(source, i)
        number = (int(np.max(address)) - PARAMETERS) >> 16
        parameters = run.program.entry.parameters
        name = parameters[number] if 0 <= number < len(parameters) else ""
        found = run.program.launch.maps.get(name)
        if found is None:
            raise UnsupportedError(f"line {i.line}: a tensor map that is no parameter")
        if not found.early:
            _check_waited(run, i, mask)
        vector = source.coordinates[0]
        assert isinstance(vector, Vector)
        coordinates = tuple(run.value(c) for c in vector.items)
        run.program.memory.box(i.line, found, coordinates, mask)
        size = int(np.prod(found.box)) * found.element
        barrier = i.operands[2]
    else:
        size = run.number(i.operands[2], i)
        barrier = i.operands[3]
        if not isinstance(size, int):
            raise UnsupportedError(f"line {i.line}: {i.opcode} of as many bytes as the thread says")
        address = run.address(source, i)
        _check_waited(run, i, mask, address)
        run.program.memory.touch(i.line, address, size & -size, mask, what="a bulk copy")
        run.program.memory.touch(i.line, address + size - 16, 16, mask, what="a bulk copy")
    to = run.address(i.operands[0], i)
    at = _in_shared(run, i, to, 0, mask)
    places = run.program.memory.masked(at, mask) & _OFFSET
    if (
        int(places.max()) + size > run.program.shared_end
        or int(np.bitwise_or.reduce(places.ravel())) & 15
    ):
        text = f"{i.opcode} of {size} bytes at byte {int(places.max())} of shared memory"
        run.program.memory.say(Fault(BOUNDS, i.line, text))
    run.note("tma", i, mask, at, size, data=run.address(barrier, i))


@special("mbarrier")
def _mbarrier(run: WarpRun, i: Instruction, mask: Any, merged: Any, may: bool) -> None:
    what = i.parts[1]
    if may:
        raise UnsupportedError(f"line {i.line}: data decides whether {i.opcode} happens")
    has_state = what in ("arrive", "try_wait", "test_wait") and not isinstance(
        i.operands[0], Address
    )
    place = 1 if has_state else 0
    address = _in_shared(run, i, run.address(i.operands[place], i), 8, mask)
    rest = i.operands[place + 1 :]
    if what == "init":
        run.note("init", i, mask, address, 8, run.number(rest[0], i))
    elif what == "inval":
        run.note("inval", i, mask, address, 8)
    elif what == "expect_tx":
        run.note("expect", i, mask, address, 8, (0, run.number(rest[0], i)))
    elif what == "arrive":
        if "noComplete" in i.parts:
            raise UnsupportedError(f"line {i.line}: {i.opcode}")
        number = run.number(rest[0], i) if rest else None
        pair = (1, number) if "expect_tx" in i.parts else (1 if number is None else number, 0)
        run.note("expect", i, mask, address, 8, pair)
    elif what == "try_wait" and "parity" in i.parts:
        run.note("wait", i, mask, address, 8, run.number(rest[0], i))
        run.write(i.operands[0], True, mask, merged, False)
    else:
        raise UnsupportedError(f"line {i.line}: {i.opcode}")


@special("bar", "barrier")
def _barrier(run: WarpRun, i: Instruction, mask: Any, merged: Any, may: bool) -> None:
    words = i.parts
    if "warp" in words:
        if not may:
            run.note("warp", i, mask)
        return
    if may:
        raise UnsupportedError(f"line {i.line}: data decides whether {i.opcode} happens")
    if "cluster" in words:
        kind = "cluster_arrive" if "arrive" in words else "cluster_wait"
        run.note(kind, i, mask, data="relaxed" not in words)
        return
    if "red" in words:
        raise UnsupportedError(f"line {i.line}: {i.opcode}")
    number = run.number(i.operands[0], i) if i.operands else 0
    count = run.number(i.operands[1], i) if len(i.operands) > 1 else run.program.launch.threads
    run.note("bar", i, mask, data=("arrive" in words, number, count))


@special("fence", "membar")
def _fence(run: WarpRun, i: Instruction, mask: Any, merged: Any, may: bool) -> None:
    if may:
        return
    if "proxy" in i.parts:
        run.note("proxy", i, mask)
    elif "mbarrier_init" in i.parts:
        run.note("init_fence", i, mask)


@special("wgmma")
def _wgmma(run: WarpRun, i: Instruction, mask: Any, merged: Any, may: bool) -> None:
    what = i.parts[1]
    if may:
        raise UnsupportedError(f"line {i.line}: data decides whether {i.opcode} happens")
    _whole(run, i, mask)
    if what == "commit_group":
        run.note("wgmma_commit", i, mask)
    elif what == "wait_group":
        run.note("wgmma_wait", i, mask, data=run.number(i.operands[0], i))
    elif what == "mma_async":
        shape = next(p for p in i.parts if re.fullmatch(r"m64n\d+k\d+", p))
        n, k = (int(x) for x in re.findall(r"[nk](\d+)", shape))
        width = 32 // k
        flags = [x for x in i.operands[4:] if isinstance(x, int)]
        a_in_registers = isinstance(i.operands[1], Vector)
        turned = flags[2:]
        a_turned = bool(turned[0]) if len(turned) > 1 else False
        b_turned = bool(turned[-1]) if turned else False
        tiles = [] if a_in_registers else [(run.number(i.operands[1], i), 64, a_turned)]
        tiles.append((run.number(i.operands[2], i), n, b_turned))
        run.note("wgmma", i, mask, data=(tuple(tiles), width, k))
