"""Evaluation of one node on given operands, shared by programs and block graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from mirage_py.errors import UnsupportedError
from mirage_py.ugraph.interpret.frame import Frame
from mirage_py.ugraph.interpret.meaning import Meaning
from mirage_py.ugraph.interpret.memory import Window
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import Access, Node
from mirage_py.ugraph.operators import ELEMENTWISE, LEAF, operator

A = TypeVar("A")

# Operand values and the frame to the node's value, full-rank.
Step = Callable[[Sequence[A], Frame], A]


def node_step(
    nodes: Sequence[Node],
    position: int,
    tensors: Mapping[str, A],
    sizes: Mapping[str, int],
    meaning: Meaning[A],
    owner: str = "",
) -> Step[A]:
    """The step of a node that needs nothing but its operands and the frame.

    Accumulators and stores, which have state, belong to the block interpreter. ``owner`` names the
    kernel: shifts differ from one to the other, and from tile to tile.
    """
    node = nodes[position]
    row = operator(node.op)
    if node.op == "read":
        return _read(nodes, node, sizes, meaning)
    if row.kind == LEAF:
        return _leaf(node, tensors, sizes, meaning)
    if node.op == "shift":
        return lambda args, frame: meaning.shift(args[0], shift_key(owner, node, position, frame))
    if row.kind == ELEMENTWISE:
        return _elementwise(nodes, node, meaning)
    if node.op == "sum":
        return lambda args, frame: meaning.sum(args[0], frame.axes(node.reduced))
    if node.op == "max":
        return lambda args, frame: meaning.max(args[0], frame.axes(node.reduced))
    if node.op == "matmul":
        return lambda args, frame: meaning.contract(args[0], args[1], frame.axes(node.reduced))
    raise UnsupportedError(
        f"%{position} = {node.op} has no meaning outside a block graph",
        repair="accumulators and stores stand in block graphs only",
    )


def shift_key(owner: str, node: Node, position: int, frame: Frame) -> str:
    """Equal for shifts that a device computes from the same values in the same way."""
    return f"{owner} %{position} {frame.label(node.dims)}"


def _elementwise(nodes: Sequence[Node], node: Node, meaning: Meaning[A]) -> Step[A]:
    op, attr = node.op, node.attr
    producers = [nodes[a] for a in node.args]
    if op == "mul" and producers[0].op == "mask":
        return lambda args, frame: meaning.select(args[0], args[1])
    if op == "mul" and producers[1].op == "mask":
        return lambda args, frame: meaning.select(args[1], args[0])
    if op == "pow" and producers[1].op == "const":
        exponent = producers[1].attr
        assert isinstance(exponent, float)
        return lambda args, frame: meaning.power(args[0], exponent)
    return lambda args, frame: meaning.apply(op, attr, args)


def _leaf(
    node: Node, tensors: Mapping[str, A], sizes: Mapping[str, int], meaning: Meaning[A]
) -> Step[A]:
    attr = node.attr
    if isinstance(attr, Access):
        window: Window[A] = Window(attr.index, tuple(sizes), meaning, tensors)
        return lambda args, frame: window.read(tensors[attr.tensor], frame)
    if isinstance(attr, IndexExpr):
        return lambda args, frame: _numbers(attr, frame, meaning)
    if isinstance(attr, Predicate):
        return lambda args, frame: _truth(attr, frame, meaning)
    scalar = meaning.const(attr) if isinstance(attr, float) else meaning.size(sizes[str(attr)])
    value = meaning.reshape(scalar, (1,) * len(sizes))
    return lambda args, frame: value


def _read(
    nodes: Sequence[Node], node: Node, sizes: Mapping[str, int], meaning: Meaning[A]
) -> Step[A]:
    """The operand is a tensor with an axis for each of its dimensions: all of it, or what there is
    at the points of dimensions that are read in place, which the frame counts from 0.
    """
    dims = nodes[node.args[0]].dims
    window: Window[A] = Window(node.access.index, tuple(sizes), meaning)

    def read(args: Sequence[A], frame: Frame) -> A:
        there = meaning.shape(args[0])
        shape = [there[place] for place in frame.axes(dims)]
        return window.read(meaning.reshape(args[0], shape), frame)

    return read


def _numbers(expr: IndexExpr, frame: Frame, meaning: Meaning[A]) -> A:
    dims = expr.dims()
    values = np.asarray(expr.evaluate(frame.coordinates(dims)), dtype=np.int64)
    return meaning.reshape(meaning.index(values), frame.shape(dims))


def _truth(predicate: Predicate, frame: Frame, meaning: Meaning[A]) -> A:
    dims = predicate.dims()
    truth = np.asarray(predicate.evaluate(frame.coordinates(dims)), dtype=np.bool_)
    return meaning.reshape(meaning.mask(truth), frame.shape(dims))
