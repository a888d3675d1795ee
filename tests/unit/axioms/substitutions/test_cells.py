"""Cells are what expressions are: their Programs agree with networks, padding and all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from unit.axioms.substitutions.expressions import (
    a,
    add,
    b,
    concat,
    conv,
    enlarge,
    matmul,
    pieces,
    relu,
    sides,
    transpose,
    x,
    y,
)

from mirage_py.axioms.substitutions.cells import Lowering
from mirage_py.axioms.substitutions.expression import Expr, inputs, window_parts
from mirage_py.networks.ir.evaluation import over_torch
from mirage_py.search.substitutions.instances import Sizes, drawn, graph_of
from mirage_py.ugraph.building.builder import ProgramBuilder

CASES = (
    [matmul(transpose(concat(1, x, y)), add(a, b))],
    pieces(1, matmul(x, concat(1, a, b))),
    [conv(concat(1, x, y), concat(1, a, b), window) for window in ("any",)],
    [relu(conv(concat(1, x, y), concat(0, a, b), "any", 2))],
    [conv(conv(x, a, "same"), b, "any")],
    [conv(x, concat(0, enlarge(a), b), "same")],
)


class _Sized(dict[str, int]):
    """Sizes of a Program, those of windows by what the window is in numbers."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes.numbers)
        self.of = sizes

    def __missing__(self, name: str) -> int:
        return self.of.of((name,))


def tables(builder: ProgramBuilder, sizes: Sizes) -> dict[str, Any]:
    """The tables of windows: positions and what lies inside, by their names."""
    found = {}
    for name, tensor in builder.inputs.items():
        kind, _, rest = name.partition("_")
        if kind not in ("at", "in") or not rest.startswith(("any", "same", "unit")):
            continue
        window, image, taps, before, after = ("".join(_plain(part)) for part in rest.split("__"))
        length, count = (
            sizes.of(tuple(image.split("+"))) if "(" not in image else sizes.of((image,)),
            tensor.shape[1],
        )
        own = sizes.windows[window]
        whole = count + sum(sizes.of(tuple(t.split("+"))) for t in (before, after) if t)
        h, r = np.indices(tensor.shape)
        start = sizes.of(tuple(before.split("+"))) if before else 0
        position = h * own.stride + (r + start) * own.dilation - own.border(whole)
        inside = (0 <= position) & (position < length)
        found[name] = np.where(inside, position, 0) if kind == "at" else inside.astype(float)
        del taps
    return found


def _plain(word: str) -> str:
    for code in ("28", "29", "2c", "2b"):
        word = word.replace(f"_{code}", chr(int(code, 16)))
    return word


def evaluated(
    builder: ProgramBuilder, given: Mapping[str, Any], node: int, at: Mapping[str, int]
) -> Any:
    """The value of a node at one point, by its definition."""
    n = builder.nodes[node]
    if n.op == "load":
        env = {**at, **{f"{name}[]": value for name, value in given.items()}}
        return given[n.access.tensor][tuple(e.evaluate(env) for e in n.access.index)]
    if n.op in ("sum", "matmul"):
        points = product(*(range(builder.sizes[d]) for d in n.reduced))
        total = 0.0
        for point in points:
            here = {**at, **dict(zip(n.reduced, point, strict=True))}
            total += np.prod([evaluated(builder, given, arg, here) for arg in n.args])
        return total
    of = [evaluated(builder, given, arg, at) for arg in n.args]
    return {"add": sum, "mul": np.prod, "relu": lambda v: max(v[0], 0.0)}[n.op](of)


@pytest.mark.parametrize("number", range(len(CASES)))
def test_cells_agree_with_networks(number: int) -> None:
    torch = pytest.importorskip("torch")
    roots: Sequence[Expr] = sides(CASES[number], CASES[number])[0]
    sizes = drawn(roots, 5)
    lowering = Lowering("cells", _Sized(sizes))
    cells = lowering.outputs(roots)
    graph = graph_of(roots, sizes, inputs(*roots))
    random = np.random.default_rng(number)
    arrays = [random.normal(size=entry.type.shape) for entry in graph.inputs]
    wanted = over_torch(graph, [torch.from_numpy(v) for v in arrays])
    given = tables(lowering.builder, sizes)
    for entry, array in zip(inputs(*roots), arrays, strict=True):
        for parts in product(*(range(len(axis)) for axis in entry.type)):
            name = "_".join(map(str, (entry.name, *parts)))
            given[name] = array[where(entry.type, parts, sizes)]
    for output, root in enumerate(roots):
        for parts in product(*(range(len(axis)) for axis in root.type)):
            node, dims = cells["_".join(map(str, (f"Y{output}", *parts)))]
            block = wanted[output].numpy()[where(root.type, parts, sizes)]
            for point in {(0,) * block.ndim, tuple(n - 1 for n in block.shape)}:
                value = evaluated(
                    lowering.builder, given, node, dict(zip(dims, point, strict=True))
                )
                assert value == pytest.approx(block[point], rel=1e-9, abs=1e-9)


def where(shape: Any, parts: Sequence[int], sizes: Sizes) -> tuple[slice, ...]:
    """The place of a part of each axis."""
    found = []
    for axis, part in zip(shape, parts, strict=True):
        begin = sizes.of(axis[:part])
        found.append(slice(begin, begin + sizes.of(axis[part : part + 1])))
    return tuple(found)


def test_a_window_says_what_it_is_made_of() -> None:
    assert window_parts("any(any(a+b,c),d+e)") == ("any", ("any(a+b,c)",), ("d", "e"))
    assert window_parts("same(h)") == ("same", ("h",), ())
    assert window_parts("h") is None
