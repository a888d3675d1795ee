"""Reading the JSON form, strictly: every key known, every value of its type and in range."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any, NoReturn, TypeVar

from mirage_py.errors import FormatError, InputError, ValidationError
from mirage_py.ugraph.checks.validate import validate_program, validate_ugraph
from mirage_py.ugraph.ir.convolution import read_convolution
from mirage_py.ugraph.ir.dtypes import DType, Fp32Precision, dtype
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.node import ACCESSES, Access, Attr, Node
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Dim, Output, Program, Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph, GridAxis, Kernel, LibraryCall, Section, UGraph
from mirage_py.ugraph.text.index_text import read_access, read_index, read_predicate

SCHEMA = 1
_LARGEST = 1 << 62
_MOST_WARPS = 32
_MOST_STAGES = 64
# Flags stand in generated code: nothing that ends a string there is read.
_FLAG = re.compile(r"[\w,:.\- ]{0,300}")
_REPAIR = (
    "correct this value, or write the file again; mirage_py.ugraph.text.json_form shows the form"
)

T = TypeVar("T")


def from_json(data: object, source: str = "JSON") -> Program | UGraph | Plan:
    """The object that ``to_json`` wrote. FormatError for anything else, also for what breaks a rule
    of the IR.
    """
    root = Item(data, source)
    kind = root.take("kind").text()
    if root.take("schema").integer() != SCHEMA:
        root.take("schema").fail(
            f"schema {root.take('schema').integer()} is not {SCHEMA}",
            "write it again with this version",
        )
    readers: dict[str, Callable[[Item, tuple[str, ...]], Program | UGraph | Plan]]
    readers = {"program": _program, "ugraph": _ugraph, "plan": _plan}
    if kind not in readers:
        root.take("kind").fail(f"unknown kind '{kind}'", f"use one of {', '.join(readers)}")
    found = readers[kind](root, ("schema", "kind"))
    try:
        if isinstance(found, Program):
            validate_program(found)
        else:
            validate_ugraph(found.ugraph if isinstance(found, Plan) else found)
    except ValidationError as error:
        raise FormatError(
            error.what,
            where=f"{source}: {error.where}",
            why=error.why,
            repair=error.repair or _REPAIR,
        ) from None
    return found


def node_from_json(data: object, source: str = "JSON") -> Node:
    """What ``node_to_json`` gave; FormatError if it is not that."""
    return _node(Item(data, source))


def parse_json(text: str, source: str) -> object:
    """JSON data; FormatError for what is no JSON, NaN and infinities, and keys given twice."""

    def no_constant(name: str) -> NoReturn:
        raise FormatError(
            f"the number {name}", where=source, why="JSON has no such number", repair=_REPAIR
        )

    def object_of(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
        out: dict[str, object] = {}
        for key, value in pairs:
            if key in out:
                raise FormatError(f"the key '{key}' is given twice", where=source, repair=_REPAIR)
            out[key] = value
        return out

    try:
        data: object = json.loads(text, parse_constant=no_constant, object_pairs_hook=object_of)
    except json.JSONDecodeError as error:
        where = f"{source}:{error.lineno}:{error.colno}"
        raise FormatError("this is no JSON", where=where, why=error.msg, repair=_REPAIR) from None
    except (RecursionError, ValueError) as error:
        raise FormatError(
            "this is no sensible JSON", where=source, why=str(error), repair=_REPAIR
        ) from None
    return data


@dataclass(frozen=True, slots=True)
class Item:
    """A JSON value and the path to it, for errors."""

    value: Any
    path: str

    def fail(self, what: str, repair: str = "") -> NoReturn:
        raise FormatError(what, where=self.path, repair=repair or _REPAIR)

    def take(self, key: str) -> Item:
        """A value of an object."""
        if not isinstance(self.value, dict):
            self.fail("an object is expected here")
        if key not in self.value:
            self.fail(f"the key '{key}' is missing")
        return Item(self.value[key], f"{self.path}.{key}")

    def only(self, required: Sequence[str], optional: Sequence[str] = ()) -> None:
        """FormatError unless this object has all the required keys, and no unknown ones."""
        for key in required:
            self.take(key)
        for key in self.value:
            if key not in required and key not in optional:
                known = ", ".join((*required, *optional))
                self.fail(f"unknown key {key!r}", f"the keys here are {known}")

    def maybe(self, key: str, read: Callable[[Item], T]) -> T | None:
        """A value that may be absent or null."""
        return read(self.take(key)) if self.value.get(key) is not None else None

    def text(self) -> str:
        if not isinstance(self.value, str):
            self.fail("a text is expected here")
        if not self.value.isascii() and any("\ud800" <= c <= "\udfff" for c in self.value):
            self.fail("half of a surrogate pair is no text")
        return self.value

    def boolean(self) -> bool:
        if not isinstance(self.value, bool):
            self.fail("true or false is expected here")
        return self.value

    def integer(self) -> int:
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            self.fail("a whole number is expected here")
        if abs(self.value) > _LARGEST:
            self.fail("the number is too large")
        return self.value

    def within(self, low: int, high: int) -> int:
        """A whole number of an interval, both ends included."""
        found = self.integer()
        if not low <= found <= high:
            self.fail(f"{found} is not in {low} to {high}")
        return found

    def number(self) -> float:
        """A float; infinities are the texts "inf" and "-inf"."""
        if self.value in ("inf", "-inf"):
            return float(self.value)
        if not isinstance(self.value, int | float) or isinstance(self.value, bool):
            self.fail("a number is expected here")
        try:
            found = float(self.value)
        except OverflowError:
            found = inf
        if not isfinite(found):
            self.fail("the number is too large", 'write infinity as "inf" or "-inf"')
        return found

    def list_of(self, read: Callable[[Item], T]) -> tuple[T, ...]:
        if not isinstance(self.value, list):
            self.fail("a list is expected here")
        items = (Item(value, f"{self.path}[{at}]") for at, value in enumerate(self.value))
        return tuple(read(item) for item in items)

    def parsed(self, parse: Callable[[str, str], T]) -> T:
        """A text that a parser understands."""
        return parse(self.text(), self.path)


def _program(item: Item, known: tuple[str, ...] = ()) -> Program:
    item.only(("name", "dims", "inputs", "nodes", "outputs", *known), ("fp32_precision",))
    return Program(
        item.take("name").text(),
        item.take("dims").list_of(_dim),
        item.take("inputs").list_of(_tensor),
        item.take("nodes").list_of(_node),
        item.take("outputs").list_of(_output),
        item.maybe("fp32_precision", _precision) or Fp32Precision.IEEE,
    )


def _precision(item: Item) -> Fp32Precision:
    if item.text() not in tuple(Fp32Precision):
        item.fail(f"unknown precision '{item.text()}'")
    return Fp32Precision(item.text())


def _ugraph(item: Item, known: tuple[str, ...] = ()) -> UGraph:
    item.only(("program", "intermediates", "kernels", *known))
    return UGraph(
        _program(item.take("program")),
        item.take("kernels").list_of(_kernel),
        item.take("intermediates").list_of(_tensor),
    )


def _plan(item: Item, known: tuple[str, ...] = ()) -> Plan:
    item.only(("backend", "options", "ugraph", *known))
    ugraph = _ugraph(item.take("ugraph"))
    options = item.take("options").list_of(_options)
    if len(options) != len(ugraph.kernels):
        item.take("options").fail(f"{len(options)} options for {len(ugraph.kernels)} kernels")
    return Plan(ugraph, options, item.take("backend").text())


def _options(item: Item) -> LaunchConfig:
    item.only(("num_warps", "num_stages", "flags"))
    num_warps = item.take("num_warps").within(1, _MOST_WARPS)
    num_stages = item.take("num_stages").list_of(lambda s: s.within(0, _MOST_STAGES))
    given = item.take("flags")
    flags = given.list_of(_flag)
    try:
        return LaunchConfig.from_flags(num_warps, num_stages, flags)
    except InputError as error:
        given.fail(error.what, error.repair)


def _flag(item: Item) -> tuple[str, str]:
    parts = item.list_of(Item.text)
    if len(parts) != 2 or not all(_FLAG.fullmatch(part) for part in parts):
        item.fail(
            "a flag is a name and a value", "use words and numbers, with , : . - between them"
        )
    return parts[0], parts[1]


def _dim(item: Item) -> Dim:
    item.only(("name", "size"))
    return Dim(item.take("name").text(), item.take("size").integer())


def _tensor(item: Item) -> Tensor:
    item.only(("name", "shape", "dtype"), ("strides",))
    return Tensor(
        item.take("name").text(),
        item.take("shape").list_of(Item.integer),
        _dtype(item.take("dtype")),
        item.maybe("strides", lambda strides: strides.list_of(Item.integer)),
    )


def _dtype(item: Item) -> DType:
    try:
        return dtype(item.text())
    except InputError as error:
        item.fail(error.what, error.repair)


def _output(item: Item) -> Output:
    item.only(("tensor", "node", "index"))
    index = item.take("index").list_of(lambda e: e.parsed(read_index))
    return Output(_tensor(item.take("tensor")), item.take("node").integer(), index)


def _kernel(item: Item) -> Kernel:
    kind = item.take("kind").text()
    if kind == "library":
        item.only(("kind", "name", "op", "args", "result"), ("convolution", "nodes"))
        name, op, result = (item.take(key).text() for key in ("name", "op", "result"))
        args = item.take("args").list_of(Item.text)
        spec = item.maybe("convolution", lambda text: text.parsed(read_convolution))
        nodes = item.maybe("nodes", lambda nodes: nodes.list_of(_node))
        body = None if nodes is None else BlockGraph.straight(name, nodes)
        return LibraryCall(name, op, args, result, spec, body)
    if kind != "block":
        item.fail(f"unknown kind of kernel '{kind}'", "use block or library")
    item.only(("kind", "name", "grid", "nodes", "sections", "threads"))
    return BlockGraph(
        item.take("name").text(),
        item.take("grid").list_of(_grid_axis),
        item.take("nodes").list_of(_node),
        item.take("sections").list_of(_section),
        item.take("threads").list_of(lambda group: group.list_of(Item.integer)),
    )


def _grid_axis(item: Item) -> GridAxis:
    item.only(("dim", "tile"), ("cluster",))
    cluster = item.maybe("cluster", Item.boolean) or False
    return GridAxis(item.take("dim").text(), item.maybe("tile", Item.integer), cluster)


def _section(item: Item) -> Section:
    item.only(("nodes",), ("loop", "tile"))
    return Section(
        item.take("nodes").list_of(Item.integer),
        item.maybe("loop", Item.text),
        item.maybe("tile", Item.integer),
    )


def _node(item: Item) -> Node:
    item.only(("op",), ("args", "attr", "dims"))
    op = item.take("op").text()
    return Node(
        op,
        item.maybe("args", lambda args: args.list_of(Item.integer)) or (),
        item.maybe("attr", lambda attr: _attribute(op, attr)),
        item.maybe("dims", lambda dims: dims.list_of(Item.text)) or (),
    )


def _attribute(op: str, item: Item) -> Attr:
    if op == "read":  # indices without a tensor
        return Access("", item.parsed(lambda text, where: read_access(f"_{text}", where)).index)
    if op in ACCESSES:
        return item.parsed(read_access)
    if op == "index":
        return item.parsed(read_index)
    if op == "mask":
        return item.parsed(read_predicate)
    if op == "const":
        return item.number()
    if op == "cast":
        return _dtype(item)
    if op == "accum_rescaled":
        return item.list_of(Item.integer)
    return item.text() if op in ("size", "accum_max") else item.list_of(Item.text)
