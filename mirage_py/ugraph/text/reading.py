"""Conversion of the parse tree of a text form to programs and µGraphs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from mirage_py.errors import FormatError, InputError, UnsupportedError
from mirage_py.ugraph.ir.convolution import read_convolution
from mirage_py.ugraph.ir.dims import node_dims
from mirage_py.ugraph.ir.dtypes import DType, Fp32Precision, dtype
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import STORES, Access, Attr, Node
from mirage_py.ugraph.ir.program import Dim, Output, Program, Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph, GridAxis, Kernel, LibraryCall, Section, UGraph

if TYPE_CHECKING:
    from lark import Token, Tree

    Branch = Tree[Token]
    Item = Branch | Token

# Expressions are walked by recursion, here and wherever they are used.
MAX_DEPTH = 64
_REPAIR = "see the form in mirage_py.ugraph.text.text_form"


def read_program(tree: Item, source: str) -> Program:
    """A program from the tree of a program file."""
    reader = _Reader(source)
    title, *rest = _children(tree)
    reader.declare(rest)
    return reader.program(reader.title(title), rest)


def read_ugraph_tree(tree: Item, source: str) -> UGraph:
    """A µGraph from the tree of a µGraph file."""
    reader = _Reader(source)
    title, *rest = _children(tree)
    reader.declare(rest)
    body = next(t for t in rest if _name(t) == "body")
    program = reader.program(reader.title(title), _children(body))
    kernels: list[Kernel] = []
    for item in rest:
        if _name(item) == "block":
            kernels.append(reader.block(item))
        elif _name(item) == "library":
            kernels.append(reader.library(item))
    return UGraph(program, tuple(kernels), tuple(reader.tensors["tensor"].values()))


def read_expression(tree: Item, source: str, depth: int = 0) -> IndexExpr:
    """An index expression, exactly as written."""
    if depth > MAX_DEPTH:
        raise _fail(tree, source, f"an index expression deeper than {MAX_DEPTH}")
    name = _name(tree)
    parts = _children(tree)
    if name == "dim_index":
        return IndexExpr("dim", name=str(parts[0]))
    if name == "int_index":
        return IndexExpr("const", value=int(str(parts[0])))
    if name == "data_index":
        tensor, *index = _children(parts[0])
        args = tuple(read_expression(e, source, depth + 1) for e in index)
        return IndexExpr("data", name=str(tensor), args=args)
    left = read_expression(parts[0], source, depth + 1)
    if name in ("add", "sub"):
        right = read_expression(parts[1], source, depth + 1)
        if name == "sub":
            # There is no subtraction: x - 3 is x + -3, and x - y is x + y * -1.
            negated = IndexExpr("mul", value=-1, args=(right,))
            right = IndexExpr("const", value=-right.value) if right.op == "const" else negated
        return IndexExpr("add", args=(left, right))
    value = int(str(parts[1]))
    if name != "mul" and value < 1:
        raise _fail(tree, source, f"division by {value} in an index", "divide by at least 1")
    return IndexExpr(name, value=value, args=(left,))


def read_access(tree: Item, source: str) -> Access:
    """A tensor with its indices."""
    tensor, *index = _children(tree)
    return Access(str(tensor), tuple(read_expression(e, source) for e in index))


_COMPARISONS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}


def read_predicate(tree: Item, source: str, depth: int = 0) -> Predicate:
    """A condition on indices."""
    if depth > MAX_DEPTH:
        raise _fail(tree, source, f"a condition deeper than {MAX_DEPTH}")
    parts = _children(tree)
    if _name(tree) == "compare":
        left, sign, right = parts
        sides = (read_expression(left, source), read_expression(right, source))
        return Predicate(_COMPARISONS[str(sign)], exprs=sides)
    args = tuple(read_predicate(part, source, depth + 1) for part in parts)
    return Predicate(_name(tree).rstrip("_"), args=args)


class _Reader:
    """Knows the dimensions and tensors of one file."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.precision = Fp32Precision.IEEE
        self.dims: dict[str, int] = {}
        self.tensors: dict[str, dict[str, Tensor]] = {"input": {}, "output": {}, "tensor": {}}

    def declare(self, items: Iterable[Item]) -> None:
        """Take in the declarations among ``items``."""
        for item in items:
            if _name(item) != "declaration":
                continue
            (what,) = _children(item)
            if _name(what) == "precision":
                (word,) = map(str, _children(what))
                if word not in tuple(Fp32Precision):
                    raise self.fail(item, f"unknown precision '{word}'")
                self.precision = Fp32Precision(word)
                continue
            if _name(what) == "dim":
                name, size = _children(what)
                if str(name) in self.dims:
                    raise self.fail(item, f"dimension '{name}' is declared twice")
                self.dims[str(name)] = int(str(size))
                continue
            kind, name, shape, element, *strides = _children(what)
            if any(str(name) in known for known in self.tensors.values()):
                raise self.fail(item, f"tensor '{name}' is declared twice")
            steps = _ints(strides[0]) if strides else None
            tensor = Tensor(str(name), _ints(shape), self.element(element), steps)
            self.tensors[str(kind)][str(name)] = tensor

    def program(self, name: str, items: Sequence[Item]) -> Program:
        """The program whose statements are among ``items``."""
        statements = [t for t in items if _name(t) == "node"]
        nodes = self.nodes(statements)
        outputs: dict[str, Output] = {}
        for item in (t for t in items if _name(t) == "result"):
            access_tree, value = _children(item)
            access = self.access(access_tree)
            if access.tensor not in self.tensors["output"] or access.tensor in outputs:
                repair = "declare each output once and return it once"
                raise self.fail(item, f"'{access.tensor}' is no output left to return", repair)
            position = int(str(value)[1:])
            if position >= len(nodes):
                raise self.fail(value, f"{value} is not defined")
            tensor = self.tensors["output"][access.tensor]
            outputs[access.tensor] = Output(tensor, position, access.index)
        missing = [t for t in self.tensors["output"] if t not in outputs]
        if missing:
            raise FormatError(
                f"output {', '.join(missing)} is never returned",
                where=self.source,
                repair="end the program with `return NAME[...] = %N` for each output",
            )
        return Program(
            name,
            tuple(Dim(d, n) for d, n in self.dims.items()),
            tuple(self.tensors["input"].values()),
            nodes,
            tuple(outputs[t] for t in self.tensors["output"]),
            self.precision,
        )

    def library(self, tree: Item) -> LibraryCall:
        """A library call; of PyTorch with the statements that it computes."""
        name, op, args, result, *more = _children(tree)
        text = [str(t) for t in more if _name(t) == "STRING"]
        spec = read_convolution(json.loads(text[0]), self.source) if text else None
        body = None
        for item in more:
            if _name(item) == "called":
                body = BlockGraph.straight(str(name), self.nodes(_children(item)))
        return LibraryCall(str(name), str(op), _names(args), str(result), spec, body)

    def block(self, tree: Item) -> BlockGraph:
        """A graph-defined kernel."""
        name, *items = _children(tree)
        grid: tuple[GridAxis, ...] = ()
        threads: list[tuple[int, ...]] = []
        sections: list[tuple[Section, list[Item]]] = []
        open_section = False
        for item in items:
            kind = _name(item)
            if kind == "grid":
                grid = tuple(self.grid_axis(a) for a in _children(item))
            elif kind == "thread":
                threads.append(tuple(int(str(t)[1:]) for t in _children(item)))
            elif kind == "loop":
                axis, *body = _children(item)
                sections.append((Section((), *self.axis(axis)), body))
            elif kind == "section":
                sections.append((Section(()), list(_children(item))))
            elif open_section:
                sections[-1][1].append(item)
            else:
                sections.append((Section(()), [item]))
            open_section = kind in ("node", *STORES) or (open_section and kind == "thread")
        statements = [s for _, body in sections for s in body]
        positions = [self.position(s, line) for line, s in enumerate(statements)]
        nodes = self.nodes(statements)
        rest = iter(positions)
        placed = tuple(
            Section(tuple(next(rest) for _ in body), section.loop, section.tile)
            for section, body in sections
        )
        return BlockGraph(str(name), grid, nodes, placed, tuple(threads))

    def grid_axis(self, tree: Item) -> GridAxis:
        """A grid axis, which may be one of the cluster."""
        axis, *cluster = _children(tree)
        return GridAxis(*self.axis(axis), bool(cluster))

    def axis(self, tree: Item) -> tuple[str, int | None]:
        """A dimension and its tile."""
        name, tile = _children(tree)
        text = str(_children(tile)[0])
        return str(name), None if text == "?" else int(text)

    def position(self, statement: Item, line: int) -> int:
        """The number of a statement's node."""
        first = _children(statement)[0]
        return int(str(first)[1:]) if _name(first) == "ID" else line

    def nodes(self, statements: Sequence[Item]) -> tuple[Node, ...]:
        """The nodes of statements in order of execution, placed by their numbers."""
        found: dict[int, Node] = {}
        for line, statement in enumerate(statements):
            position = self.position(statement, line)
            if position in found or position >= len(statements):
                repair = f"number the nodes 0 to {len(statements) - 1}, each once"
                raise self.fail(statement, f"%{position} is no free number", repair)
            for operand in self.operands(statement):
                if operand not in found:
                    raise self.fail(statement, f"%{operand} is not defined before it is used")
            found[position] = self.node(statement, found)
        return tuple(found[position] for position in range(len(found)))

    def operands(self, statement: Item) -> tuple[int, ...]:
        """Positions of a statement's operands."""
        if _name(statement) in STORES:
            return (int(str(_children(statement)[-1])[1:]),)
        value = _children(statement)[1]
        lists = [t for t in _children(value) if _name(t) == "operands"]
        return tuple(int(str(t)[1:]) for part in lists for t in _children(part))

    def node(self, statement: Item, known: dict[int, Node]) -> Node:
        """One statement, its dimensions as written or as they follow from the operands."""
        args = self.operands(statement)
        if _name(statement) in STORES:
            node = Node(_name(statement), args, self.access(_children(statement)[-2]))
            written: list[Item] = []
        else:
            _, value, *written = _children(statement)
            op = str(_children(value)[0]) if _name(value) == "apply" else _name(value)
            node = Node(op, args, self.attribute(op, value))
        if written:
            return Node(node.op, args, node.attr, _names(written[0]))
        try:
            dims = node_dims(node, [known[a].dims for a in args], self.dims)
        except UnsupportedError as error:
            raise self.fail(statement, error.what, error.repair) from None
        except (AssertionError, IndexError):
            raise self.fail(statement, f"'{node.op}' lacks its attribute or an operand") from None
        return Node(node.op, args, node.attr, dims)

    def attribute(self, op: str, value: Item) -> Attr:
        """The attribute of an operator."""
        parts = _children(value)
        if op == "load":
            return self.access(parts[0])
        if op == "read":
            return Access("", tuple(read_expression(e, self.source) for e in parts[1:]))
        if op == "const":
            return float(str(parts[0]))
        if op == "size":
            return str(parts[0])
        if op == "index":
            return read_expression(parts[0], self.source)
        if op == "mask":
            return read_predicate(parts[0], self.source)
        items = [i for t in parts[1:] if _name(t) == "attribute" for i in _children(t)]
        if not any(_name(t) == "attribute" for t in parts[1:]):
            return None
        if op == "accum_rescaled":
            return tuple(self.integer(i) for i in items)
        if op in ("cast", "accum_max") and len(items) == 1:
            return self.element(items[0]) if op == "cast" else str(items[0])
        return tuple(str(i) for i in items)

    def title(self, tree: Item) -> str:
        """The name of the program, quoted where it is no identifier."""
        (token,) = _children(tree)
        if _name(token) == "NAME":
            return str(token)
        try:
            return str(json.loads(str(token)))
        except ValueError:
            raise self.fail(token, f"{token} is no quoted name") from None

    def element(self, item: Item) -> DType:
        """An element type."""
        try:
            return dtype(str(item))
        except InputError as error:
            raise self.fail(item, error.what, error.repair) from None

    def integer(self, item: Item) -> int:
        """A whole number."""
        try:
            return int(str(item))
        except ValueError:
            raise self.fail(item, f"'{item}' is no integer") from None

    def access(self, tree: Item) -> Access:
        """A tensor with its indices."""
        return read_access(tree, self.source)

    def fail(self, at: Item, what: str, repair: str = "") -> FormatError:
        """The error for a place in the text."""
        return _fail(at, self.source, what, repair)


def _fail(at: Item, source: str, what: str, repair: str = "") -> FormatError:
    place = at.meta if hasattr(at, "meta") else at
    line, column = getattr(place, "line", 0), getattr(place, "column", 0)
    return FormatError(what, where=f"{source}:{line}:{column}", repair=repair or _REPAIR)


def _name(item: Item) -> str:
    return str(item.data) if hasattr(item, "data") else str(item.type)


def _children(item: Item) -> list[Item]:
    return item.children if hasattr(item, "children") else []


def _ints(tree: Item) -> tuple[int, ...]:
    return tuple(int(str(t)) for t in _children(tree))


def _names(tree: Item) -> tuple[str, ...]:
    return tuple(str(t) for t in _children(tree))
