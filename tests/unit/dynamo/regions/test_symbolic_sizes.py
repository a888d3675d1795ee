"""Names of symbolic sizes, and layouts at other sizes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._dynamo.source import ConstantSource
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
)

from mirage_py.dynamo.regions.symbolic_sizes import (
    has_symbols,
    is_row_major,
    is_same,
    size_texts,
    symbolic_sizes,
)
from mirage_py.dynamo.serve.region_call import layouts_of

Symbolic = Callable[..., torch.Tensor]


@pytest.fixture
def symbolic() -> Iterator[Symbolic]:
    """``symbolic(6, 4)``: a tensor without data, of so many rows, a symbol, and 4 columns."""
    mode = FakeTensorMode(shape_env=ShapeEnv(), static_shapes=False)
    number = itertools.count()

    def made(rows: int, columns: int) -> torch.Tensor:
        kinds = [DimDynamic.DYNAMIC, DimDynamic.STATIC]
        context = StatelessSymbolicContext(dynamic_sizes=kinds, constraint_sizes=[None, None])
        source = ConstantSource(f"x{next(number)}")
        with unset_fake_temporarily():
            given = torch.empty(rows, columns)
        return mode.from_tensor(given, symbolic_context=context, source=source)

    with mode:
        yield made


def test_an_expression_alone_is_a_size(symbolic: Symbolic):
    x = symbolic(6, 4)
    grown = torch.cat([x, x[:1]])
    found = symbolic_sizes([grown, grown.shape[0]], [grown.T])
    assert found is not None
    assert (found.names, found.sources) == (("n0",), ((0, 0),))
    layout, number = found.layouts((9,))
    assert (layout.shape, layout.strides, number) == ((9, 4), (4, 1), 9)
    assert (found.result_shapes((9,)), found.result_strides((9,))) == ([(4, 9)], [(1, 4)])


def test_a_stride_of_one_element_says_nothing(symbolic: Symbolic):
    """As of a token that was cut from a batch of long prompts."""
    token = symbolic(6, 4).t()[:, :1]
    assert not has_symbols([token[:1]])
    assert has_symbols([token.t().expand(2, 4), symbolic(6, 4)])
    assert has_symbols([symbolic(6, 4).shape[0]])
    column = symbolic(6, 4).t().contiguous()[:, :1]
    assert not has_symbols([column[:1]])
    assert has_symbols([column])


def test_sizes_follow_from_those_that_have_a_name(symbolic: Symbolic):
    x, y = symbolic(6, 4), symbolic(5, 4)
    values = [torch.cat([x, x[:1]]), x, torch.cat([y, y]), x.new_empty(2, 2 * x.shape[0])]
    found = symbolic_sizes(values)
    assert found is not None
    assert found.sources == ((1, 0), (2, 0))
    assert found.of(layouts_of(values)) == (6, 10)
    assert [x.shape for x in found.layouts((8, 3))] == [(9, 4), (8, 4), (3, 4), (2, 16)]
    assert found.layouts((8, 3))[3].strides == (16, 1)


def test_a_product_of_two_symbols_is_one_size(symbolic: Symbolic):
    x, y = symbolic(6, 4), symbolic(5, 4)
    flat = x.new_empty(x.shape[0] * y.shape[0], 3)
    alone = symbolic_sizes([flat])
    assert alone is not None
    assert (alone.names, alone.axes()) == (("n0",), {(0, 0): "n0"})
    both = symbolic_sizes([flat, x])
    assert both is not None
    assert both.of([flat.new_empty(30, 3), torch.empty(6, 4)]) == (6, 30)


def test_two_axes_as_one(symbolic: Symbolic):
    """One of them is 1, and the other all of their product."""
    x = symbolic(6, 4)
    rows, columns = x.shape[0], symbolic(5, 4).shape[0]
    values = [x.new_empty(rows, columns, 3), rows * columns, x.new_empty(rows**2 * columns)]
    found = symbolic_sizes(values)
    assert found is not None
    assert found.layouts((6, 5))[1:] == [30, layouts_of([torch.empty(180)])[0]]
    merged = found.where_one_is_1("n0", "n1")
    assert merged is not None
    assert (merged.names, merged.sources) == (("n1",), ((0, 1),))
    first, second, third = merged.layouts((30,))
    assert (first.shape, first.strides, second, third.shape) == ((1, 30, 3), (90, 3, 1), 30, (30,))
    assert merged.axes()[0, 1] == "n1"


def test_what_no_input_says_has_no_name(symbolic: Symbolic):
    x = symbolic(6, 4)
    assert symbolic_sizes([x.new_empty(x.shape[0] // 2, 4)]) is None
    assert symbolic_sizes([torch.empty(3)], [x]) is None
    assert symbolic_sizes([torch.empty(3), 4]) is None


def test_equal_regions_have_equal_texts(symbolic: Symbolic):
    x, y = symbolic(6, 4), symbolic(5, 4)
    grown = torch.cat([y, y[:1]])
    assert size_texts([x, x.shape[0]]) == size_texts([grown, grown.shape[0]])
    assert size_texts([x, x]) != size_texts([x, y])
    assert size_texts([x, x.shape[0] + 1]) != size_texts([x, x.shape[0] * 2])


def test_row_major_whatever_the_size(symbolic: Symbolic):
    x, y = symbolic(6, 4), symbolic(6, 4)
    assert is_row_major(x)
    assert is_row_major(x.unsqueeze(0))
    assert not is_row_major(x.T)
    assert not is_row_major(x[:, :3])
    assert is_same(x.shape[0] * 4, x.numel())
    assert not is_same(x.shape[0], y.shape[0])
    assert not is_same(x.shape[0], 6)


def test_torchs_expressions_are_evaluated(symbolic: Symbolic):
    x: Any = symbolic(6, 4)
    half = x.new_empty(x.shape[0] // 2 + x.shape[0] % 4, 4)
    found = symbolic_sizes([x, half])
    assert found is not None
    assert [t.shape for t in found.layouts((11,))] == [(11, 4), (8, 4)]
