"""JSON form of families, with tables for everything that they share.

The families of one job have one program, and a few hundred kernels and a few thousand nodes that
occur ten times as often. So each of these has a table, and a family refers to its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from mirage_py.errors import FormatError
from mirage_py.search.closure.derivation import Derivation, Step
from mirage_py.search.extract.family import Family, Origin
from mirage_py.search.space.spaces import Configuration
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.ugraph.ir.dtypes import dtype
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph, GridAxis, Kernel, LibraryCall, Section, UGraph
from mirage_py.ugraph.text.json_form import from_json, node_from_json, node_to_json, to_json

Json = dict[str, Any]
T = TypeVar("T", bound=Hashable)


def families_to_json(families: Iterable[Family]) -> Json:
    """Families; ``families_from_json`` turns them back."""
    tables = _Writer()
    rows = [tables.family(f) for f in families]
    return {**tables.rows, "families": rows}


def families_from_json(data: Json, source: str, *, validated: bool) -> list[Family]:
    """What ``families_to_json`` gave.

    ``validated`` says that these µGraphs need no validation: they come from this program's own
    process and not from a file. Raises FormatError, ValidationError, or what Python raises where
    a key, a row or a type is not as it should be.
    """
    tables = _Reader(data, source)
    families = [tables.family(row) for row in data["families"]]
    if not validated:
        for family in families:
            validate_ugraph(family.ugraph)
    return families


def configuration_from_json(data: Json) -> Configuration:
    """What ``asdict`` gave of a configuration."""
    return Configuration(tuple(data["looped"]), tuple(data["gridded"]))


class _Writer:
    """``rows`` has the tables. What has a row is known by its value."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Json]] = {
            "programs": [], "nodes": [], "kernels": [], "derivations": []
        }  # fmt: skip
        self._known: dict[tuple[str, Hashable], int] = {}
        # Kernels and derivations are large: families share the objects, so these are looked at
        # before their values.
        self._by_identity: dict[int, tuple[object, int]] = {}

    def family(self, family: Family) -> Json:
        ugraph = family.ugraph
        return {
            "program": self._row("programs", ugraph.program, to_json),
            "kernels": [self._row("kernels", k, self._kernel) for k in ugraph.kernels],
            "intermediates": [[t.name, list(t.shape), t.dtype.name] for t in ugraph.intermediates],
            "cost_us": family.cost_us,
            "kind": family.kind,
            "origins": [
                {
                    "configuration": asdict(o.configuration),
                    "arrangement": o.arrangement,
                    "derivation": self._row("derivations", o.derivation, self._derivation),
                }
                for o in family.origins
            ],
        }

    def _row(self, table: str, value: T, to_row: Callable[[T], Json]) -> int:
        seen = self._by_identity.get(id(value))
        if seen is not None:
            return seen[1]
        number = self._known.get((table, value))
        if number is None:
            row = to_row(value)
            number = self._known[table, value] = len(self.rows[table])
            self.rows[table].append(row)
        self._by_identity[id(value)] = (value, number)  # kept, so that the identity stays its own
        return number

    def _node(self, node: Node) -> int:
        return self._row("nodes", node, node_to_json)

    def _kernel(self, kernel: Kernel) -> Json:
        if isinstance(kernel, LibraryCall):
            return asdict(kernel)
        return {
            "name": kernel.name,
            "grid": [a.dim for a in kernel.grid],
            "cluster": list(kernel.cluster_dims),
            "nodes": [self._node(n) for n in kernel.nodes],
            "sections": [[list(s.nodes), s.loop] for s in kernel.sections],
        }

    def _derivation(self, derivation: Derivation) -> Json:
        return {
            "steps": [self._step(s) for s in derivation.steps],
            "outputs": list(derivation.outputs),
        }

    def _step(self, step: Step) -> list[int | str | None]:
        attr = None if step.is_accumulator else step.attr
        node = Node(step.op, step.args, attr, step.dims)
        return [self._node(node), step.looped, step.runs_in if step.is_accumulator else None]


class _Reader:
    def __init__(self, data: Json, source: str) -> None:
        self.source = source
        self.nodes = [node_from_json(n, source) for n in data["nodes"]]
        self.programs = [self._program(p) for p in data["programs"]]
        self.kernels = [self._kernel(k) for k in data["kernels"]]
        self.derivations = [self._derivation(d) for d in data["derivations"]]

    def family(self, row: Json) -> Family:
        tensors = tuple(
            Tensor(str(name), tuple(map(int, shape)), dtype(kind))
            for name, shape, kind in row["intermediates"]
        )
        kernels = tuple(_at(self.kernels, number) for number in row["kernels"])
        ugraph = UGraph(_at(self.programs, row["program"]), kernels, tensors)
        origins = tuple(self._origin(o) for o in row["origins"])
        return Family(ugraph, float(row["cost_us"]), str(row["kind"]), origins)

    def _origin(self, row: Json) -> Origin:
        return Origin(
            configuration_from_json(row["configuration"]),
            str(row["arrangement"]),
            _at(self.derivations, row["derivation"]),
        )

    def _program(self, row: Json) -> Program:
        program = from_json(row, self.source)
        if not isinstance(program, Program):
            raise FormatError("a family is of no program", where=self.source)
        return program

    def _kernel(self, row: Json) -> Kernel:
        if "op" in row:
            return LibraryCall(row["name"], row["op"], tuple(row["args"]), row["result"])
        return BlockGraph(
            str(row["name"]),
            tuple(GridAxis(str(d), cluster=d in row["cluster"]) for d in row["grid"]),
            tuple(_at(self.nodes, number) for number in row["nodes"]),
            tuple(Section(tuple(map(int, nodes)), loop) for nodes, loop in row["sections"]),
        )

    def _derivation(self, row: Mapping[str, Any]) -> Derivation:
        steps = tuple(self._step(*step) for step in row["steps"])
        return Derivation(steps, tuple(int(o) for o in row["outputs"]))

    def _step(self, number: int, looped: str | None, over: str | None) -> Step:
        node = _at(self.nodes, number)
        attr = node.attr if over is None else (str(over),)
        return Step(node.op, node.args, attr, node.dims, looped)


def _at(rows: Sequence[T], number: int) -> T:
    if not 0 <= number < len(rows):
        raise IndexError(f"there is no row {number}")
    return rows[number]
