"""Printing of programs and µGraphs in the text form (mirage_py.ugraph.text.text_form)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from math import isnan

from mirage_py.ugraph.ir.dtypes import DType, Fp32Precision
from mirage_py.ugraph.ir.index import IndexExpr
from mirage_py.ugraph.ir.node import ACCESSES, STORES, Node
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph, LibraryCall, Section, UGraph, format_tile
from mirage_py.ugraph.operators import EFFECT, LEAF, REDUCE, operator


def format_program(program: Program) -> str:
    """The program as text that ``parse_program`` reads back to an equal one."""
    return _lines([f"program {_title(program.name)}", *_header(program, ()), *_body(program)])


def format_ugraph(ugraph: UGraph) -> str:
    """The µGraph as text that ``parse_ugraph`` reads back to an equal one."""
    lines = [f"ugraph {_title(ugraph.program.name)}"]
    lines += _header(ugraph.program, ugraph.intermediates)
    lines += ["program {", *_indented(_body(ugraph.program)), "}"]
    for kernel in ugraph.kernels:
        if isinstance(kernel, LibraryCall):
            args = ", ".join(kernel.args)
            spec = f" {json.dumps(str(kernel.convolution))}" if kernel.convolution else ""
            call = f"library {kernel.name} = {kernel.op}({args}) -> {kernel.result}{spec}"
            lines += [call] if kernel.body is None else [f"{call} {{", *_straight(kernel.body), "}"]
        else:
            lines += _block_lines(kernel)
    return _lines(lines)


def _straight(body: BlockGraph) -> Iterator[str]:
    """The statements of what PyTorch computes."""
    (section,) = body.sections
    yield from (f"  {_statement(body, section, n, n)}" for n in section.nodes)


def format_block(ugraph: UGraph, block: BlockGraph) -> str:
    """One kernel, after the device tensors that it touches."""
    touched = [t for n in block.nodes if n.op in ACCESSES for t in n.access.tensors]
    lines = [f"tensor {ugraph.tensors[name]}" for name in dict.fromkeys(touched)]
    return _lines([*lines, *_block_lines(block)])


def format_grid(block: BlockGraph) -> str:
    """The grid axes with their tiles: ``n by 64, d_part by 1 in cluster``."""
    return ", ".join(map(str, block.grid))


def format_node(node: Node) -> str:
    """The right-hand side of a node's line: operator, attribute and operands."""
    if operator(node.op).kind == EFFECT:
        return f"{node.op} {node.access} = %{node.args[0]}"
    args = ", ".join(f"%{a}" for a in node.args)
    if node.op == "read":
        return f"read {args}{node.access}"
    if operator(node.op).kind == LEAF:
        return f"{node.op} {format_number(node.attr) if node.op == 'const' else node.attr}"
    return f"{node.op}{_bracketed(node)} {args}"


def format_number(value: object) -> str:
    """A float so that it reads back exactly."""
    assert isinstance(value, float)
    return "nan" if isnan(value) else repr(value)


def _bracketed(node: Node) -> str:
    attr = node.attr
    if attr is None:
        return ""
    if isinstance(attr, tuple):
        return f"[{', '.join(map(str, attr))}]"
    assert isinstance(attr, str | DType)
    return f"[{attr}]"


def _header(program: Program, intermediates: Sequence[Tensor]) -> Iterator[str]:
    if program.fp32_precision is not Fp32Precision.IEEE:
        yield f"fp32_precision {program.fp32_precision}"
    yield from (f"dim {d.name} = {d.size}" for d in program.dims)
    yield from (f"input {t}" for t in program.inputs)
    yield from (f"output {o.tensor}" for o in program.outputs)
    yield from (f"tensor {t}" for t in intermediates)


def _body(program: Program) -> Iterator[str]:
    for position, node in enumerate(program.nodes):
        yield f"%{position} = {format_node(node)}{_dims_note(node)}"
    for result in program.outputs:
        index = ", ".join(map(str, result.index))
        yield f"return {result.tensor.name}[{index}] = %{result.node}"


def _dims_note(node: Node) -> str:
    if operator(node.op).kind in (LEAF, EFFECT) or not node.dims:
        return ""
    return f" : [{', '.join(node.dims)}]"


def _block_lines(block: BlockGraph) -> Iterator[str]:
    yield f"kernel {block.name} {{"
    if block.grid:
        yield f"  grid {format_grid(block)}"
    line_of = {n: at for at, n in enumerate(n for s in block.sections for n in s.nodes)}
    after_straight = False
    for section in block.sections:
        body = [_statement(block, section, n, line_of[n]) for n in section.nodes]
        if section.loop is not None:
            yield f"  loop {section.loop} by {format_tile(section.tile)} {{"
            yield from (f"    {line}" for line in body)
            yield "  }"
        elif after_straight or not body:
            yield from ("  section {", *(f"    {line}" for line in body), "  }")
        else:
            yield from (f"  {line}" for line in body)
        after_straight = section.loop is None
    for group in block.threads:
        yield f"  thread {{ {' '.join(f'%{n}' for n in group)} }}"
    yield "}"


def _statement(block: BlockGraph, section: Section, position: int, line: int) -> str:
    node = block.nodes[position]
    # A store has no value; its number is that of its line, and shown only where that is not so.
    name = "" if node.op in STORES and position == line else f"%{position} = "
    text = f"{name}{format_node(node)}{_dims_note(node)}"
    return text + _map_note(block, section, node)


def _map_note(block: BlockGraph, section: Section, node: Node) -> str:
    """The imap, fmap or omap of the paper, which names imply: shown as a comment."""
    if operator(node.op).kind == REDUCE:
        shared = [d for d in block.cluster_dims if d in node.reduced]
        return f"  # {', '.join(shared)}: the cluster" if shared else ""
    if node.op not in ACCESSES:
        return ""
    arrow = "<-" if node.op == "load" else "->"
    where = {
        axis.dim: f"{'cluster' if axis.cluster else 'grid'} {number}"
        for number, axis in enumerate(block.grid)
    }
    if section.loop is not None:
        where[section.loop] = "loop"
    dims = _dims_in(node.access.index)
    notes = [f"{d} {arrow} {where[d]}" for d in dims if d in where]
    if node.op in STORES:
        notes += [f"sum over {d}" for d in block.summed_axes(node)]
        notes += [f"first of {d}" for d in block.predicated_axes(node)]
    return f"  # {', '.join(notes)}" if notes else ""


def _dims_in(index: Iterable[IndexExpr]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(d for e in index for d in e.dims()))


def _title(name: str) -> str:
    return name if name.isidentifier() else json.dumps(name)


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"
