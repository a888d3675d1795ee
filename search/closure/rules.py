"""Rules for combining tensors in a block: loop stages, and results that are never built."""

from __future__ import annotations

from collections.abc import Sequence

from mirage_py.reasons import Code, Reason, reason
from mirage_py.search.closure.pool import PoolTensor


class RefusedError(Exception):
    """A candidate breaks a ``rule``."""

    def __init__(self, rule: Reason) -> None:
        super().__init__(rule)
        self.rule = rule


def joint_loop(operands: Sequence[PoolTensor]) -> str | None:
    """The loop in which all operands are at hand at once."""
    loops = dict.fromkeys(t.looped for t in operands if t.looped is not None)
    if not loops:
        return None
    if len(loops) > 1:
        raise RefusedError(reason(Code.TWO_LOOPS))
    (loop,) = loops
    if any(t.looped is None and loop in t.dims for t in operands):
        raise RefusedError(reason(Code.WHOLE_AND_TILE))
    return loop


def joint_stage(operands: Sequence[PoolTensor], loop: str | None, max_loops: int) -> int:
    """The stage of a combination.

    Inside a loop, what is not looped comes from before it. A looped operand of an earlier loop is
    no obstacle: it is computed again.
    """
    stage = max(t.stage + (loop is not None and t.looped is None) for t in operands)
    if loop is not None and stage > max_loops:
        raise RefusedError(reason(Code.MAX_LOOPS, max_loops))
    return stage


def may_be_built(operands: Sequence[PoolTensor], buildable: Sequence[frozenset[str]]) -> bool:
    """Whether a result is no larger than one of its operands, or than a node of the program."""
    dims = frozenset(d for t in operands for d in t.dims)
    if any(len(t.dims) == len(dims) for t in operands):
        return True
    return any(dims <= known for known in buildable)
