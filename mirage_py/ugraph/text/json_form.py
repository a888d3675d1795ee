"""The JSON form of programs, µGraphs and plans: what artifacts and the cache hold.

    {"schema": 1, "kind": "ugraph",
     "program": {"name": "p", "dims": [{"name": "b", "size": 16}, ...],
                 "inputs": [{"name": "X", "shape": [16, 4096], "dtype": "f16"}, ...],
                 "nodes": [{"op": "load", "attr": "X[b, d]", "dims": ["b", "d"]},
                           {"op": "sum", "args": [0], "attr": ["d"], "dims": ["b"]}, ...],
                 "outputs": [{"tensor": {...}, "node": 7, "index": ["b", "n"]}]},
     "intermediates": [],
     "kernels": [{"kind": "block", "name": "k0", "grid": [{"dim": "n", "tile": 64}], "nodes": [...],
                  "sections": [{"nodes": [0, 1], "loop": "d", "tile": 128}], "threads": [[5, 6]]},
                 {"kind": "library", "name": "k1", "op": "matmul", "args": ["X", "W"],
                  "result": "Y"}]}

A grid axis of a cluster has "cluster": true besides. Index expressions and conditions are text,
infinite constants the strings "inf" and "-inf". Reading
is strict (mirage_py.ugraph.text.json_reading) and ends with the validator: what it returns is
well-formed.
"""

from __future__ import annotations

import json
from math import isfinite, isnan
from pathlib import Path
from typing import Any

from mirage_py.errors import FormatError
from mirage_py.ugraph.ir.dtypes import DType, Fp32Precision
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import Access, Node
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.ir.ugraph import GridAxis, Kernel, LibraryCall, Section, UGraph
from mirage_py.ugraph.text.files import read_text
from mirage_py.ugraph.text.json_reading import SCHEMA, from_json, node_from_json, parse_json

__all__ = [
    "SCHEMA",
    "dump_text",
    "from_json",
    "load_text",
    "node_from_json",
    "node_to_json",
    "read_ugraph",
    "to_json",
    "write_ugraph",
]

Json = dict[str, Any]


def to_json(value: Program | UGraph | Plan) -> Json:
    """The object as JSON data, which ``from_json`` turns back into an equal one."""
    if isinstance(value, Program):
        return {"schema": SCHEMA, "kind": "program", **_program(value)}
    if isinstance(value, UGraph):
        return {"schema": SCHEMA, "kind": "ugraph", **_ugraph(value)}
    options = [
        {
            "num_warps": o.num_warps,
            "num_stages": list(o.num_stages),
            "flags": [list(flag) for flag in o.flags],
        }
        for o in value.options
    ]
    body = {"backend": value.backend, "options": options, "ugraph": _ugraph(value.ugraph)}
    return {"schema": SCHEMA, "kind": "plan", **body}


def dump_text(value: Program | UGraph | Plan) -> str:
    """The JSON form as text, indented, with one newline at the end."""
    return json.dumps(to_json(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def load_text(text: str, source: str) -> Program | UGraph | Plan:
    """What ``dump_text`` wrote; ``source`` names the text in errors (FormatError)."""
    return from_json(parse_json(text, source), source)


def write_ugraph(path: Path, ugraph: UGraph) -> None:
    """Write a ``*.ug.json`` file."""
    path.write_text(dump_text(ugraph), encoding="utf-8")


def read_ugraph(path: Path) -> UGraph:
    """Read a ``*.ug.json`` file; FormatError if it is not one."""
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(
            "cannot be read as text",
            where=str(path),
            why=str(error),
            repair="check the path, and that the file is UTF-8",
        ) from None
    found = load_text(text, str(path))
    if not isinstance(found, UGraph):
        kind = type(found).__name__.lower()
        raise FormatError(
            f"holds a {kind}, not a µGraph", where=str(path), repair="name a *.ug.json file"
        )
    return found


def _program(program: Program) -> Json:
    precision = program.fp32_precision
    exact = precision is Fp32Precision.IEEE
    return {
        "name": program.name,
        **({} if exact else {"fp32_precision": str(precision)}),
        "dims": [{"name": d.name, "size": d.size} for d in program.dims],
        "inputs": [_tensor(t) for t in program.inputs],
        "nodes": [node_to_json(n) for n in program.nodes],
        "outputs": [
            {"tensor": _tensor(o.tensor), "node": o.node, "index": [str(e) for e in o.index]}
            for o in program.outputs
        ],
    }


def _ugraph(ugraph: UGraph) -> Json:
    return {
        "program": _program(ugraph.program),
        "intermediates": [_tensor(t) for t in ugraph.intermediates],
        "kernels": [_kernel(k) for k in ugraph.kernels],
    }


def _kernel(kernel: Kernel) -> Json:
    if isinstance(kernel, LibraryCall):
        call = {"name": kernel.name, "op": kernel.op, "args": list(kernel.args)}
        more: Json = {"convolution": str(kernel.convolution)} if kernel.convolution else {}
        if kernel.body is not None:
            more = {"nodes": [node_to_json(n) for n in kernel.body.nodes]}
        return {"kind": "library", **call, "result": kernel.result, **more}
    return {
        "kind": "block",
        "name": kernel.name,
        "grid": [_grid_axis(a) for a in kernel.grid],
        "nodes": [node_to_json(n) for n in kernel.nodes],
        "sections": [_section(s) for s in kernel.sections],
        "threads": [list(group) for group in kernel.threads],
    }


def _grid_axis(axis: GridAxis) -> Json:
    out: Json = {"dim": axis.dim, "tile": axis.tile}
    return {**out, "cluster": True} if axis.cluster else out


def _section(section: Section) -> Json:
    if section.loop is None:
        return {"nodes": list(section.nodes)}
    return {"nodes": list(section.nodes), "loop": section.loop, "tile": section.tile}


def _tensor(tensor: Tensor) -> Json:
    out: Json = {"name": tensor.name, "shape": list(tensor.shape), "dtype": tensor.dtype.name}
    if tensor.strides is not None:
        out["strides"] = list(tensor.strides)
    return out


def node_to_json(node: Node) -> Json:
    """One node as JSON data; empty operands, attribute and dimensions are left out."""
    out: Json = {"op": node.op}
    if node.args:
        out["args"] = list(node.args)
    if node.attr is not None:
        out["attr"] = _attribute(node)
    if node.dims:
        out["dims"] = list(node.dims)
    return out


def _attribute(node: Node) -> str | float | list[str | int]:
    attr = node.attr
    if isinstance(attr, tuple):
        return list(attr)
    if isinstance(attr, float):
        if isnan(attr):
            raise FormatError("a constant is NaN", where=f"node '{node.op}'")
        return attr if isfinite(attr) else repr(attr)
    assert isinstance(attr, str | DType | Access | IndexExpr | Predicate)
    return str(attr)
