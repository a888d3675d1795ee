"""Tile extents of a block-graph instance: real, padded to powers of two, and where tails remain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from mirage_py.codegen.tiling.axis_order import axis_order
from mirage_py.errors import ScheduleError
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.ugraph.operators import REDUCE, operator

# The smallest extent of each side of a tensor-core product that Triton takes.
MIN_DOT_EXTENT = 16


def next_power_of_two(value: int) -> int:
    """The smallest power of two that is at least ``value``."""
    return 1 << max(0, value - 1).bit_length()


@dataclass(frozen=True, slots=True)
class MatmulRoles:
    """Live dimensions of a matmul by role; ``batch`` dimensions are in both operands and the
    result.
    """

    left: tuple[str, ...]
    right: tuple[str, ...]
    contracted: tuple[str, ...]
    batch: tuple[str, ...]


@dataclass(frozen=True)
class Tiling:
    """Extents of every dimension in every section of one block graph.

    Blocks are padded to powers of two (Triton's shape rule); a dimension has a tail where padded
    tiles do not cover it exactly, and tails are masked.

    All extents are those of one thread block: of a cluster's dimension it has one tile, although
    for the rules the dimension is whole in the cluster. A reduction over it is what the blocks
    have, reduced in each, and then from block to block (``reduced_over_cluster``).

    The sizes of ``run_time`` dimensions are arguments of the kernel: those of the program are what
    it was tuned for, and the largest where a tile has the whole dimension.
    """

    program: Program
    block: BlockGraph
    run_time: tuple[str, ...] = ()

    @cached_property
    def loop_tiles(self) -> tuple[Mapping[str, int], ...]:
        """For each section the loop dimension's tile, if it has one."""
        tiles: list[Mapping[str, int]] = []
        for section in self.block.sections:
            if section.loop is None:
                tiles.append({})
            elif section.tile is None:
                raise ScheduleError(f"loop over {section.loop} has no tile", where=self.block.name)
            else:
                tiles.append({section.loop: section.tile})
        return tuple(tiles)

    @cached_property
    def _unsplit_dims_in_dots(self) -> frozenset[str]:
        """Dimensions on a side of a product that tensor cores could take, and that needs them: the
        two codes of a byte are summed over beside many bytes.
        """
        found: set[str] = set()
        for number, node in enumerate(self.block.nodes):
            if node.op != "matmul":
                continue
            section = self.block.section_of[number]
            roles = self._roles(node, section, self._raw)
            if roles.left and roles.right and roles.contracted and not roles.batch:
                found.update((*roles.left, *roles.right))
                extents = {d: next_power_of_two(self._raw(d, section)) for d in roles.contracted}
                whole = prod(extents.values())
                found.update(d for d, n in extents.items() if whole // n < MIN_DOT_EXTENT)
        return frozenset(found)

    def _raw(self, dim: str, section: int) -> int:
        grid = self.block.grid_tiles
        if dim in grid:
            tile = grid[dim]
            if tile is None:
                raise ScheduleError(f"grid axis over {dim} has no tile", where=self.block.name)
            return tile
        return self.loop_tiles[section].get(dim, self.program.sizes[dim])

    def padded(self, dim: str, section: int) -> int:
        """Extent of the dimension in a tile of this section, as a power of two."""
        key = (dim, section)
        if key not in self._padded:
            self._padded[key] = self._pad(dim, section)
        return self._padded[key]

    @cached_property
    def _padded(self) -> dict[tuple[str, int], int]:
        # Ranking asks millions of times: every answer is kept.
        return {}

    def axis_order(self, is_reversed: bool = False) -> tuple[str, ...]:
        """The order of the kernel's tile axes (see codegen.axis_order)."""
        if is_reversed not in self._orders:
            self._orders[is_reversed] = axis_order(self.program, self.block, is_reversed)
        return self._orders[is_reversed]

    @cached_property
    def _orders(self) -> dict[bool, tuple[str, ...]]:
        return {}

    @cached_property
    def _elements(self) -> dict[tuple[tuple[str, ...], int], int]:
        return {}

    @cached_property
    def _known_roles(self) -> dict[int, MatmulRoles]:
        return {}

    def _pad(self, dim: str, section: int) -> int:
        raw = next_power_of_two(self._raw(dim, section))
        if raw > 1 and self._is_whole(dim, section) and dim in self._unsplit_dims_in_dots:
            return max(raw, MIN_DOT_EXTENT)
        return raw

    def _is_whole(self, dim: str, section: int) -> bool:
        return dim not in self.block.grid_tiles and dim not in self.loop_tiles[section]

    def has_tail(self, dim: str, section: int) -> bool:
        """Whether some tile of the dimension reaches, or may reach, past its end."""
        tile = self.padded(dim, section)
        return self.program.sizes[dim] % tile != 0 or (dim in self.run_time and tile > 1)

    def blocks(self, dim: str) -> int:
        """Number of grid blocks along a gridded dimension."""
        return -(-self.program.sizes[dim] // self.padded(dim, 0))

    @cached_property
    def axes(self) -> tuple[tuple[str, int], ...]:
        """Grid axes that have, or may have, more than one block with how many they have."""
        counts = ((a.dim, self.blocks(a.dim)) for a in self.block.grid)
        return tuple((dim, count) for dim, count in counts if count > 1 or dim in self.run_time)

    @cached_property
    def divided(self) -> tuple[str, ...]:
        """Dimensions along which the grid has, or may have, more than one block."""
        return tuple(dim for dim, _ in self.axes)

    @cached_property
    def grid_blocks(self) -> int:
        """Number of thread blocks of the kernel, those of clusters counted one by one."""
        total = 1
        for axis in self.block.grid:
            total *= self.blocks(axis.dim)
        return total

    @cached_property
    def cluster_axes(self) -> tuple[tuple[str, int], ...]:
        """Axes of the cluster of more than one block with how many they have."""
        return tuple((dim, count) for dim, count in self.axes if dim in self.block.cluster_dims)

    @cached_property
    def cluster_blocks(self) -> int:
        """Number of thread blocks of one cluster; 1 where there is none."""
        return prod(count for _, count in self.cluster_axes)

    def reduced_over_cluster(self, number: int) -> tuple[str, ...]:
        """The dimensions of a cluster of more than one block that the sum or maximum at ``number``
        reduces.
        """
        node = self.block.nodes[number]
        if operator(node.op).kind != REDUCE:
            return ()
        return tuple(dim for dim, _ in self.cluster_axes if dim in node.reduced)

    def live(self, dims: tuple[str, ...], section: int) -> tuple[str, ...]:
        """The dimensions along which a tile holds more than one element."""
        return tuple(d for d in dims if self.padded(d, section) > 1)

    def elements(self, dims: tuple[str, ...], section: int) -> int:
        """Elements of a padded tile."""
        key = (dims, section)
        if key not in self._elements:
            total = 1
            for d in dims:
                total *= self.padded(d, section)
            self._elements[key] = total
        return self._elements[key]

    def roles(self, number: int) -> MatmulRoles:
        """Roles of the live dimensions of the matmul at ``number``."""
        if number not in self._known_roles:
            node, section = self.block.nodes[number], self.block.section_of[number]
            self._known_roles[number] = self._roles(node, section, self.padded)
        return self._known_roles[number]

    def _roles(self, node: Node, section: int, extent: object) -> MatmulRoles:
        assert callable(extent)
        left, right = (self.block.nodes[a].dims for a in node.args)

        def live(dims: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(d for d in dims if extent(d, section) > 1)

        shared = tuple(d for d in left if d in right and d not in node.reduced)
        return MatmulRoles(
            left=live(tuple(d for d in left if d not in right)),
            right=live(tuple(d for d in right if d not in left)),
            contracted=live(node.reduced),
            batch=live(shared),
        )

    def is_dot(self, number: int) -> bool:
        """Whether the matmul runs on tensor cores; otherwise it is a product and a sum."""
        section = self.block.section_of[number]
        roles = self.roles(number)
        if roles.batch:
            return False
        sides = (roles.left, roles.right, roles.contracted)
        return all(s and self.elements(s, section) >= MIN_DOT_EXTENT for s in sides)
