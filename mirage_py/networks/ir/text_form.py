"""Graphs as text, and back.

    graph {
      input x : f32[1, 64, 56, 56]
      constant w : f32[64, 64, 3, 3]
      %0 = conv2d(x, w, stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1) : f32[...]
      %1 = split(%0, axis=1, sizes=(32, 32)) : f32[...], f32[...]
      return %1, %1.1
    }

``%1.1`` is the second result of node 1. Types of results are there for people and are checked.
"""

from __future__ import annotations

import ast
import re

from mirage_py.errors import FormatError, MirageError
from mirage_py.networks.ir.builder import GraphBuilder
from mirage_py.networks.ir.graph import Graph, Value
from mirage_py.ugraph.ir.dtypes import dtype

_INPUT = re.compile(r"(input|constant) (\w+) : (\w+)\[([\d, ]*)\]")
_NODE = re.compile(r"%(\d+) = (\w+)\((.*)\)(?: : (.*))?")


def format_graph(graph: Graph) -> str:
    """The text of a graph, which ``parse_graph`` reads back as an equal graph."""
    lines = ["graph {"]
    for entry in graph.inputs:
        kind = "constant" if entry.name in graph.constants else "input"
        lines.append(f"  {kind} {entry.name} : {entry.type}")
    for number, node in enumerate(graph.nodes):
        operands = [_text(graph, value) for value in node.inputs]
        settings = [f"{name}={value!r}" for name, value in node.attributes]
        types = ", ".join(map(str, graph.types[number]))
        lines.append(
            f"  %{number} = {node.operator}({', '.join([*operands, *settings])}) : {types}"
        )
    results = ", ".join(_text(graph, value) for value in graph.outputs)
    return "\n".join([*lines, f"  return {results}", "}"]) + "\n"


def _text(graph: Graph, value: Value) -> str:
    if value.is_input:
        return graph.inputs[value.index].name
    return f"%{value.node}.{value.index}" if value.index else f"%{value.node}"


def parse_graph(text: str) -> Graph:
    """The graph that ``format_graph`` wrote, or one written by hand; FormatError with the line."""
    builder = GraphBuilder()
    values: dict[str, Value] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.split("#")[0].strip()
        if line in ("", "graph {", "}"):
            continue
        try:
            if line.startswith("return "):
                return builder.build(*(values[v.strip()] for v in line[7:].split(",")))
            _read(builder, values, line)
        except KeyError as error:
            raise FormatError(f"there is no value {error}", where=f"line {number}") from None
        except (MirageError, ValueError, SyntaxError) as error:
            raise FormatError(f"'{line}': {error}", where=f"line {number}") from None
    raise FormatError("the graph has no return", where="graph")


def _read(builder: GraphBuilder, values: dict[str, Value], line: str) -> None:
    """One line: an input or a node."""
    found = _INPUT.fullmatch(line)
    if found:
        kind, name, kind_of_number, extents = found.groups()
        shape = [int(n) for n in extents.split(",") if n.strip()]
        constant = kind == "constant"
        values[name] = builder.input(name, shape, dtype(kind_of_number), constant=constant)
        return
    found = _NODE.fullmatch(line)
    if not found:
        raise FormatError("it is neither an input nor a node nor a return")
    name, op, inside, types = found.groups()
    operands: list[Value] = []
    settings: dict[str, object] = {}
    for part in _parts(inside):
        key, equals, value = part.partition("=")
        if equals:
            settings[key.strip()] = ast.literal_eval(value.strip())
        else:
            operands.append(values[part])
    results = builder.apply_all(op, *operands, **settings)
    have = ", ".join(str(builder.type_of(value)) for value in results)
    if types is not None and types.strip() != have:
        raise FormatError(f"its results are {have}")
    for position, result in enumerate(results):
        values[f"%{name}.{position}"] = result
    values[f"%{name}"] = results[0]


def _parts(inside: str) -> list[str]:
    """Operands and attributes: cut at commas outside of brackets and quotes."""
    parts, depth, quote, current = [], 0, "", ""
    for letter in inside:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "([":
            depth += 1
        elif letter in ")]":
            depth -= 1
        if letter == "," and not depth and not quote:
            parts.append(current.strip())
            current = ""
        else:
            current += letter
    parts.append(current.strip())
    return [part for part in parts if part]
