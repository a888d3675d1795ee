"""In which order the blocks of a grid run: the program id decoded to a block's place on each axis.

Blocks start in the order of their ids, so that those with neighbouring ids run side by side and
find in the L2 what one of them has read. By itself the first axis runs fastest. ``order grouped``
takes eight places of the second axis for each of the first, as matrix products do whose operands
are both large. ``order backwards`` begins at the end of the axes along which a mask leaves blocks
unequal work: of a causal mask the last rows have most, and a long block that starts last is waited
for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from mirage_py.codegen.triton.tile_text import atom

ORDER = "order"
GROUPED = "grouped"
BACKWARDS = "backwards"
_GROUP = 8


def can_group(axes: Sequence[tuple[str, int]]) -> bool:
    """Whether the second axis falls into groups, and there is more than one of them."""
    return len(axes) > 1 and axes[1][1] > _GROUP and axes[1][1] % _GROUP == 0


def block_numbers(
    axes: Sequence[tuple[str, int]],
    order: str = "",
    uneven: Collection[str] = (),
    counts: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """For each axis, given with its number of blocks, a block's place on it as text over ``pid``.

    ``uneven`` are the axes along which blocks have unequal work. Of axes whose number of blocks
    depends on the size at run time, ``counts`` has its name; such axes are not grouped.
    """
    names = counts or {}
    numbers: dict[str, str] = {}
    step = 1
    named_steps: list[str] = []
    for dim, blocks in axes:
        factors = [*([str(step)] if step != 1 or not named_steps else []), *named_steps]
        step_text = atom(" * ".join(factors))
        number = "pid" if step_text == "1" else f"pid // {step_text}"
        if dim != axes[-1][0]:
            number = f"{atom(number)} % {names.get(dim, blocks)}"
        numbers[dim] = number
        if dim in names:
            named_steps.append(names[dim])
        else:
            step *= blocks
    if order == GROUPED and can_group(axes) and not names:
        (first, count), (second, others) = axes[:2]
        whole = "pid" if len(axes) == 2 else f"(pid % {count * others})"
        numbers[first] = f"({whole} % {count * _GROUP}) // {_GROUP}"
        numbers[second] = f"({whole} // {count * _GROUP}) * {_GROUP} + {whole} % {_GROUP}"
    if order == BACKWARDS:
        for dim, blocks in axes:
            if dim in uneven:
                last = f"{names[dim]} - 1" if dim in names else str(blocks - 1)
                numbers[dim] = f"{last} - {atom(numbers[dim])}"
    return numbers
