"""In which order the blocks of a grid run: the program id decoded to a block's place on each axis.

Blocks start in the order of their ids, so that those with neighbouring ids run side by side and
find in the L2 what one of them has read. By itself the first axis runs fastest. ``order grouped``
takes eight places of the second axis for each of the first, as matrix products do whose operands
are both large. ``order backwards`` begins at the end of the axes along which a mask leaves blocks
unequal work: of a causal mask the last rows have most, and a long block that starts last is waited
for.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mirage_py.codegen.triton.tile_text import atom

ORDER = "order"
GROUPED = "grouped"
BACKWARDS = "backwards"
_GROUP = 8


def can_group(axes: Sequence[tuple[str, int]]) -> bool:
    """Whether the second axis falls into groups, and there is more than one of them."""
    return len(axes) > 1 and axes[1][1] > _GROUP and axes[1][1] % _GROUP == 0


def block_numbers(
    axes: Sequence[tuple[str, int]], order: str = "", uneven: Collection[str] = ()
) -> dict[str, str]:
    """For each axis, given with its number of blocks, a block's place on it as text over ``pid``.

    ``uneven`` are the axes along which blocks have unequal work.
    """
    numbers: dict[str, str] = {}
    step = 1
    for dim, blocks in axes:
        number = "pid" if step == 1 else f"pid // {step}"
        if dim != axes[-1][0]:
            number = f"{atom(number)} % {blocks}"
        numbers[dim] = number
        step *= blocks
    if order == GROUPED and can_group(axes):
        (first, count), (second, others) = axes[:2]
        whole = "pid" if len(axes) == 2 else f"(pid % {count * others})"
        numbers[first] = f"({whole} % {count * _GROUP}) // {_GROUP}"
        numbers[second] = f"({whole} // {count * _GROUP}) * {_GROUP} + {whole} % {_GROUP}"
    if order == BACKWARDS:
        for dim, blocks in axes:
            if dim in uneven:
                numbers[dim] = f"{blocks - 1} - {atom(numbers[dim])}"
    return numbers
