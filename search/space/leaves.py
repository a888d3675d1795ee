"""The leaves of a program: the loads, constants and sizes that its values are computed from."""

from __future__ import annotations

from dataclasses import dataclass

from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Program

SCALAR_LEAVES = ("const", "size")
TENSOR_LEAVES = ("load", "index", "mask")


@dataclass(frozen=True, slots=True)
class Leaf:
    """A node without operands that depends on dimensions.

    One tensor read at two places is two leaves. To the search they are unrelated random values,
    which is sound: what is equal for unrelated values is equal for related ones.
    """

    name: str
    node: Node

    @property
    def dims(self) -> tuple[str, ...]:
        """The dimensions it depends on, in the program's order."""
        return self.node.dims


def leaf_name(node: Node) -> str:
    """A text that no other leaf has."""
    return str(node.attr) if node.op == "load" else f"{node.op} {node.attr}"


def leaves_of(program: Program) -> tuple[Leaf, ...]:
    """Every distinct leaf but the scalars, in the order of the program's nodes."""
    nodes = [n for n in program.nodes if n.op in TENSOR_LEAVES]
    return tuple(Leaf(leaf_name(n), n) for n in dict.fromkeys(nodes))


def scalars_of(program: Program) -> tuple[float, ...]:
    """The constants of a program, each once."""
    values = [n.attr for n in program.nodes if n.op == "const"]
    return tuple(dict.fromkeys(v for v in values if isinstance(v, float)))
