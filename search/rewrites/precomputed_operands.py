"""Precomputed operands: an operand of a matmul gets a kernel of its own, before all others.

An operand that takes a reduction (a normalised key) is computed by every block that multiplies by
it, unless an earlier kernel stores it. With two kernels in a family, one is then that kernel and
the other has all the rest, which can no longer be split. So the program is cut at such a value: the
kernel for it is searched, the rest is searched as a program with one more input, and every family
of the rest follows a kernel for the value, stored in the type in which matmuls read it. The rest of
attention with normalised keys is attention, so all families of attention are found for it.

Norms are not special here: it is a rewrite whose result is verified like all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from mirage_py.search.rewrites.pieces import piece, stored_tensors, together
from mirage_py.search.space.abstraction import reduced_dims
from mirage_py.search.tilings.kinds import CLUSTER, ONE_KERNEL, SPLIT, has_loops, kind_of
from mirage_py.ugraph.ir.data_flow import cone
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.rewrite.inner_scales import with_inner_scales

# Families of the rest to combine with kernels for the operands, of each of these kinds: a rest with
# values between its kernels is found without a cut.
_RESTS = 30
_KINDS = (ONE_KERNEL, SPLIT, CLUSTER)
# A value is computed row by row where a block can hold a row, else in loops.
_MAX_ROW_ELEMENTS = 8192
# Of the largest operand, how large others have to be.
_LARGE = 0.25

Search = Callable[[Program], Sequence[UGraph]]


def with_precomputed_operands(
    program: Program,
    search: Search,
    independent: Search = lambda _: (),
    may: Callable[[UGraph], bool] = lambda _: True,
) -> list[UGraph]:
    """Families in which kernels of their own precompute operands of matmuls; none where there is
    no such operand. ``search`` finds the families of a program that are of one kernel or split a
    reduction, cheapest first (others are left out), and ``independent`` those in which outputs have
    kernels of their own. Of kernels for an operand those are taken that
    ``may`` be; of the rest any.
    """
    types = dict.fromkeys(t.dtype for t in program.inputs)
    if len(types) > 1 or not all(t.is_half for t in types):
        return []
    cut = program
    chosen = _cut(program)
    if not chosen:
        # A scale of several matmuls is worth computing once; a scale after one is found anyway.
        cut = with_inner_scales(program)
        chosen = tuple(v for v in _cut(cut) if _matmul_users(cut, v) > 1)
    if not chosen:
        return []
    tensors = stored_tensors(cut, chosen)
    stored = [_producer(piece(cut, {v: tensors[v]}, v), search, may) for v in chosen]
    first = [m for m in stored if m is not None]
    if len(first) < len(stored):
        return []
    left = piece(cut, tensors)
    rests = [*_kept(search(left)), *independent(left)]
    found = (together(program, (*first, rest), tuple(tensors.values())) for rest in rests)
    return list({u.digest: u for u in found if u is not None}.values())


def _cut(program: Program) -> tuple[int, ...]:
    """The values to precompute: the largest operands. A small one costs its blocks less than
    another kernel (queries beside keys, on an H200: 1.2 us).
    """
    sizes = {v: prod(program.sizes[d] for d in program.nodes[v].dims) for v in _operands(program)}
    return tuple(v for v, size in sizes.items() if size >= _LARGE * max(sizes.values()))


def _operands(program: Program) -> tuple[int, ...]:
    """Operands of a matmul that take a reduction but no matmul and no exponential, and that lack a
    dimension of the other operand: blocks along it would compute them again.
    """
    nodes = program.nodes
    found: dict[int, None] = {}
    for node in nodes:
        if node.op != "matmul":
            continue
        for mine, other in (node.args, node.args[::-1]):
            needed = [nodes[n] for n in cone(program.nodes, [mine])]
            reduces = any(n.op in ("sum", "max") for n in needed)
            plain = all(n.op not in ("exp", "matmul") for n in needed)
            repeated = any(d not in nodes[mine].dims for d in nodes[other].dims)
            if reduces and plain and repeated and nodes[mine].op not in ("sum", "max"):
                found[mine] = None
    return tuple(sorted(found))


def _matmul_users(program: Program, value: int) -> int:
    """How many matmuls read a value."""
    return sum(n.op == "matmul" and value in n.args for n in program.nodes)


def _producer(made: Program, search: Search, may: Callable[[UGraph], bool]) -> UGraph | None:
    """The cheapest family of one kernel, without loops where a block can hold a row."""
    blocks = [u for u in search(made) if kind_of(u) == ONE_KERNEL]
    row = prod(made.sizes[d] for d in reduced_dims(made))
    straight = [u for u in blocks if not has_loops(u)]
    looped = [u for u in blocks if u not in straight]
    chosen = (*straight, *looped) if row <= _MAX_ROW_ELEMENTS else (*looped, *straight)
    return next((u for u in chosen if may(u)), None)


def _kept(families: Sequence[UGraph]) -> list[UGraph]:
    """The cheapest of each kind."""
    counts: dict[str, int] = {}
    kept = []
    for family in families:
        kind = kind_of(family)
        counts[kind] = counts.get(kind, 0) + 1
        if kind in _KINDS and counts[kind] <= _RESTS:
            kept.append(family)
    return kept
