"""What it costs a warp to load, store, exchange or reduce a tile in a layout.

The unit is an issue slot of one of a multiprocessor's four schedulers: a quarter of a clock. Rates
are those of the CUDA programming guide for sm_80 and sm_90; latencies that nothing hides, like that
of a barrier, count in full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from mirage_py.codegen.cuda.layout.bank_conflicts import BANK_BYTES, WARP
from mirage_py.codegen.cuda.layout.layout_conversion import layout_conversion
from mirage_py.codegen.cuda.text.layout import Layout

# One trip to shared memory a clock; a shuffle takes as long. 128 bytes a clock from L1.
WAVEFRONT = 4
SECTOR_BYTES = 32
# Some 30 clocks until the last warp is there, in which the others have little else to do.
BARRIER = 120


def positions(layout: Layout, lane: int) -> dict[str, int]:
    """Where the first register of a lane of warp 0 lies along each dimension of the layout."""
    found = dict.fromkeys((b[0] for b in layout.bits()), 0)
    for number, bit in enumerate(layout.lanes):
        if bit is not None and lane >> number & 1:
            found[bit[0]] += 1 << bit[1]
    return found


def device_cost(
    layout: Layout, vector: int, element_bytes: int, offset: Callable[[Mapping[str, int]], int]
) -> int:
    """To load or store a tile in device memory, ``vector`` elements at once.

    ``offset`` gives the element of the tensor at a position. An access takes a slot for each sector
    of 32 bytes that its lanes touch, as L1 moves four of them a clock.
    """
    width = vector * element_bytes
    begins = (offset(positions(layout, lane)) * element_bytes for lane in range(WARP))
    sectors = {
        sector: None
        for begin in begins
        for sector in range(begin // SECTOR_BYTES, (begin + width - 1) // SECTOR_BYTES + 1)
    }
    return layout.register_count // vector * max(1, len(sectors))


def conversion_cost(source: Layout, target: Layout) -> int:
    """To bring a tile from one layout to another through shared memory, a word for an element."""
    _, wavefronts = layout_conversion(source, target, BANK_BYTES, in_pairs=False)
    return BARRIER + WAVEFRONT * wavefronts


def reduction_cost(layout: Layout, dims: Iterable[str]) -> int:
    """To reduce a tile over dimensions: in each thread, then over threads."""
    gone = tuple(dims)
    results = 1 << sum(b[0] not in gone for b in layout.registers)
    return layout.register_count - results + exchange_cost(layout, gone)


def exchange_cost(layout: Layout, dims: Iterable[str]) -> int:
    """To combine the parts of threads: over lanes by shuffles, over warps through shared memory."""
    gone = tuple(dims)
    results = 1 << sum(b[0] not in gone for b in layout.registers)
    lanes, warps = (
        sum(b is not None and b[0] in gone for b in layout.lanes),
        len(layout.warp_bits_of(gone)),
    )
    cost = lanes * results * (WAVEFRONT + 1)
    if warps:
        cost += BARRIER + WAVEFRONT * results * (1 + (1 << warps))
    return cost


def arrange_cost(source: Layout, target: Layout) -> int:
    """To have registers in another order: nothing if they are, a move for each at the most."""
    return 0 if source.registers == target.registers else target.register_count
