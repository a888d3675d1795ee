"""One node of a program or of a block graph: an operator applied to earlier nodes."""

from __future__ import annotations

from dataclasses import dataclass

from mirage_py.ugraph.ir.dtypes import DType
from mirage_py.ugraph.ir.index import IndexExpr, Predicate


@dataclass(frozen=True, slots=True)
class Access:
    """Which element of a tensor each point reads: one index expression per axis of the tensor."""

    tensor: str
    index: tuple[IndexExpr, ...]

    def dims(self) -> tuple[str, ...]:
        """Dimensions the access depends on."""
        return tuple(dict.fromkeys(d for e in self.index for d in e.dims()))

    @property
    def is_look_up(self) -> bool:
        """Whether a position is data."""
        return any(e.tensors() for e in self.index)

    @property
    def tensors(self) -> tuple[str, ...]:
        """The tensor, and those that hold positions in it."""
        return tuple(dict.fromkeys((self.tensor, *(t for e in self.index for t in e.tensors()))))

    def __str__(self) -> str:
        return f"{self.tensor}[{', '.join(map(str, self.index))}]"


# Operators that write a tensor, and all that have an Access for their attribute.
STORES = ("store", "store_add")
ACCESSES = ("load", "read", *STORES)
# Operators that reduce over the dimensions of their attribute.
REDUCING = ("sum", "max", "matmul")

# The attribute of a node; each operator's row in `operators` says which of these it takes.
Attr = (
    None | float | str | DType | Access | IndexExpr | Predicate | tuple[str, ...] | tuple[int, ...]
)


@dataclass(frozen=True, slots=True)
class Node:
    """``args`` are positions of earlier nodes; ``dims`` the named dimensions of the result, in
    the order of the program's dimensions.
    """

    op: str
    args: tuple[int, ...] = ()
    attr: Attr = None
    dims: tuple[str, ...] = ()

    @property
    def access(self) -> Access:
        """The attribute of a load or store."""
        assert isinstance(self.attr, Access)
        return self.attr

    @property
    def reduced(self) -> tuple[str, ...]:
        """The dimensions that a sum, max or matmul sums over."""
        assert isinstance(self.attr, tuple)
        return tuple(str(d) for d in self.attr)

    def in_place(self, source: tuple[str, ...]) -> tuple[str, ...]:
        """Of the dimensions of what a ``read`` reads those that it reads at their own positions,
        and no others by them: for some of these it needs no more than those.
        """
        index = self.access.index
        own = (d for d, e in zip(source, index, strict=True) if e.is_dim and e.name == d)
        return tuple(d for d in own if sum(d in e.dims() for e in index) == 1)

    @property
    def degrees(self) -> tuple[int, ...]:
        """How often each running maximum of an accum_rescaled enters as a factor."""
        assert isinstance(self.attr, tuple)
        return tuple(d for d in self.attr if isinstance(d, int))
