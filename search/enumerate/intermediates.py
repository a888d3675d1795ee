"""Rules for intermediates: the values that a kernel may store for a later one.

Two rules keep them few. Both are dominance: what the reader can compute for itself from no more
data need not be stored.

  an intermediate without a reduction in it is computed by its reader, from the inputs
  a function of one stored tensor and scalars is computed by its reader, from that tensor
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from mirage_py.reasons import Code, reason
from mirage_py.search.closure.pool import Pool
from mirage_py.search.space.counters import Counter
from mirage_py.ugraph.operators import ELEMENTWISE, all_operators

_ELEMENTWISE = tuple(op.name for op in all_operators() if op.kind == ELEMENTWISE)


@dataclass(frozen=True, slots=True)
class Storable:
    """A tensor of a kernel's pool that the kernel may store; ``basic`` if no rule forbids it.

    Those that are not basic may still be operands of a library call, which computes nothing else.
    """

    number: int
    value: int
    basic: bool


def storables(
    pool: Pool, outputs: Sequence[int], splits: Sequence[str], counter: Counter
) -> Iterator[Storable]:
    """Every tensor of a pool that outlives its loop or has the dimension of it.

    ``outputs`` are the values of the program's outputs: where there are several, an earlier kernel
    may store some of them. With ``splits`` only partial results are of use.
    """
    pure = _without_reduction(pool)
    images = _images(pool)
    for number, tensor in enumerate(pool.tensors):
        if not tensor.dims or tensor.looped not in (None, *tensor.dims):
            continue
        if any(p not in tensor.dims for p in splits):
            continue
        if all(not way.args for way in tensor.alternatives):
            continue
        if tensor.value in outputs:
            if len(outputs) > 1:
                yield Storable(number, tensor.value, True)
            continue
        rule = None
        if pure[number]:
            rule = Code.PURE
        elif images[number]:
            rule = Code.IMAGE
        if rule:
            counter.prune(reason(rule), partial(pool.formula, tensor.alternatives[0]))
        yield Storable(number, tensor.value, not rule)


def _without_reduction(pool: Pool) -> list[bool]:
    """For each tensor whether some derivation of it has no reduction."""
    pure = [False] * len(pool)
    changed = True
    while changed:
        changed = False
        for number, tensor in enumerate(pool.tensors):
            if pure[number]:
                continue
            for way in tensor.alternatives:
                elementwise = not way.args or way.op in _ELEMENTWISE
                if elementwise and all(pure[a] for a in way.args):
                    pure[number] = changed = True
                    break
    return pure


def _images(pool: Pool) -> list[bool]:
    """For each tensor whether it is elementwise in one earlier tensor of the same shape.

    Of tensors that are images of one another the first one found is none.
    """
    images = [False] * len(pool)
    for number, tensor in enumerate(pool.tensors):
        for way in tensor.alternatives:
            if way.op not in _ELEMENTWISE:
                continue
            others = [a for a in dict.fromkeys(way.args) if pool[a].dims]
            if len(others) == 1 and others[0] < number:
                (source,) = others
                alike = pool[source].dims == tensor.dims and pool[source].looped == tensor.looped
                images[number] |= alike
    return images
