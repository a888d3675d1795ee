"""Families, the results of a search: µGraphs with open tiles, and their origins."""

from __future__ import annotations

from dataclasses import dataclass

from mirage_py.search.closure.derivation import Derivation
from mirage_py.search.space.spaces import Configuration
from mirage_py.ugraph.ir.ugraph import UGraph

# Kinds of families.
ONE_KERNEL = "one kernel"
TWO_KERNELS = "two kernels"
SPLIT = "split"
ATOMIC = "atomic"
LIBRARY = "library"
CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where one kernel that is a block graph comes from. ``arrangement`` is "fused" or "split"."""

    configuration: Configuration
    arrangement: str
    derivation: Derivation


@dataclass(frozen=True, slots=True)
class Family:
    """Kernels with open tiles, and the origin of each that is no library call, in order; a kernel
    that combines splits in clusters has the origins of the two kernels that it was made of.

    ``cost_us`` ranks families of one program and means nothing else. ``kind`` is one of the names
    above.
    """

    ugraph: UGraph
    cost_us: float
    kind: str
    origins: tuple[Origin, ...]

    @property
    def configuration(self) -> Configuration:
        """That of the last kernel with an origin."""
        return self.origins[-1].configuration

    @property
    def arrangement(self) -> str:
        """That of the last kernel with an origin."""
        return self.origins[-1].arrangement

    @property
    def derivation(self) -> Derivation:
        """That of the last kernel with an origin."""
        return self.origins[-1].derivation
