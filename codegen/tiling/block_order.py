"""The order in which the blocks of a grid run: the program id decoded to a block index on each
axis.

Blocks start in the order of their ids, so those with neighbouring ids run at the same time and
share data in the L2. By default the first axis runs fastest. ``order grouped`` takes eight indices
of the second axis for each of the first, as matmuls of two large operands do. ``order backwards``
starts at the end of the axes along which a mask makes work unequal: under a causal mask the last
rows have most, and a long block that starts last is waited for. ``order longest`` has these axes
also run slowest, so that all the longest blocks come first: eight indices of the other axes at a
time, down to their shortest blocks, then the next eight, whose long blocks fill the gaps that these
leave. FlashAttention-3 orders its tiles in the same way.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod

from mirage_py.codegen.text.operator_text import atom
from mirage_py.ugraph.ir.launch_choices import BlockOrder

_GROUP = 8
# Levels of a number along several axes; no dimension is called so.
_INNER, _OUTER = "(inner)", "(outer)"


def can_group(axes: Sequence[tuple[str, int]]) -> bool:
    """Whether the second axis falls into groups, and there is more than one of them."""
    return len(axes) > 1 and axes[1][1] > _GROUP and axes[1][1] % _GROUP == 0


def block_numbers(
    axes: Sequence[tuple[str, int]],
    order: BlockOrder | None = None,
    uneven: Collection[str] = (),
    counts: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """For each axis, given with its number of blocks, a block's place on it as text over ``pid``.

    ``uneven`` are the axes along which blocks have unequal work. Of axes whose number of blocks
    depends on the size at run time, ``counts`` has its name; the second axis is not grouped then.
    """
    names = counts or {}
    if order is BlockOrder.LONGEST:
        return _longest_first(axes, uneven, names)
    numbers: dict[str, str] = {}
    before: list[tuple[str, int]] = []
    for dim, blocks in axes:
        step = _blocks(before, names)
        number = "pid" if step == "1" else f"pid // {step}"
        if dim != axes[-1][0]:
            number = f"{atom(number)} % {names.get(dim, blocks)}"
        numbers[dim] = number
        before.append((dim, blocks))
    if order is BlockOrder.GROUPED and can_group(axes) and axes[1][0] not in names:
        first, second = axes[0][0], axes[1][0]
        whole = "pid" if len(axes) == 2 else f"(pid % {_blocks(axes[:2], names)})"
        group = _blocks([axes[0], ("", _GROUP)], names)
        numbers[first] = f"({whole} % {group}) // {_GROUP}"
        numbers[second] = f"({whole} // {group}) * {_GROUP} + {whole} % {_GROUP}"
    if order is BlockOrder.BACKWARDS:
        for dim, blocks in axes:
            if dim in uneven:
                last = f"{names[dim]} - 1" if dim in names else str(blocks - 1)
                numbers[dim] = f"{last} - {atom(numbers[dim])}"
    return numbers


def _longest_first(
    axes: Sequence[tuple[str, int]], uneven: Collection[str], names: Mapping[str, str]
) -> dict[str, str]:
    """The ``uneven`` axes from their ends, slower than groups of eight blocks along the others;
    slower than all of these where they do not fall into such groups, or have names.
    """
    even = [axis for axis in axes if axis[0] not in uneven]
    slow = [axis for axis in axes if axis[0] in uneven]
    places = prod(blocks for _, blocks in even)
    if places <= _GROUP or places % _GROUP or any(dim in names for dim, _ in even):
        return block_numbers((*even, *slow), BlockOrder.BACKWARDS, uneven, names)
    levels = ((_INNER, _GROUP), *slow, (_OUTER, places // _GROUP))
    numbers = block_numbers(levels, BlockOrder.BACKWARDS, uneven, names)
    place = f"{numbers.pop(_OUTER)} * {_GROUP} + {numbers.pop(_INNER)}"
    found = {dim: text.replace("pid", f"({place})") for dim, text in block_numbers(even).items()}
    return found | numbers


def _blocks(axes: Sequence[tuple[str, int]], names: Mapping[str, str]) -> str:
    """How many blocks some axes have together, as text that stands as a factor."""
    fixed = prod(blocks for dim, blocks in axes if dim not in names)
    named = [names[dim] for dim, _ in axes if dim in names]
    return atom(" * ".join([*([str(fixed)] if fixed != 1 or not named else []), *named]))
