"""Numbers of splits: the dimensions that are split, and the numbers that are tried."""

from __future__ import annotations

from dataclasses import replace

import pytest
import several_kernels
from unit.search import programs

from mirage_py.errors import InputError
from mirage_py.search.space.splits import at_splits, split_choices, split_counts, split_dims
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import F16
from mirage_py.ugraph.ir.program import Dim, Program
from mirage_py.ugraph.rewrite.split_dim import split_dim, splits_of


@pytest.mark.parametrize(
    ("program", "dim"),
    [
        (programs.rmsnorm_matmul(), "d"),
        (programs.attention(), "s"),
        (programs.causal_attention(), "s"),
        (programs.alibi_attention(), "s"),
        (programs.layernorm_linear(), "d"),
    ],
    ids=lambda x: x.name if isinstance(x, Program) else x,
)
def test_what_split_dim_made_is_recognised(program: Program, dim: str) -> None:
    assert split_dims(program) == ()
    assert split_dims(split_dim(program, dim, 8)) == (dim,)


def grouped_sum(reduced: str) -> Program:
    """Dimensions that somebody called x and x_part: X is [x_part, x] in memory."""
    builder = ProgramBuilder("grouped")
    builder.dim("x_part", 4)
    builder.dim("x", 64)
    builder.input("X", (256,), F16)
    x = builder.load("X", [ix.dim("x_part") * 64 + ix.dim("x")])
    total = builder.sum(x, (reduced,))
    kept = {"x": "x_part", "x_part": "x"}[reduced]
    builder.output("Y", total, [kept], F16)
    return builder.build()


@pytest.mark.parametrize("reduced", ["x", "x_part"])
def test_a_name_is_no_split(reduced: str) -> None:
    assert split_dims(grouped_sum(reduced)) == ()


def test_an_index_that_knows_the_halves_is_no_split() -> None:
    program = split_dim(programs.rmsnorm_matmul(), "d", 8)
    apart = ix.dim("d_part") * 500 + ix.dim("d")
    nodes = tuple(
        replace(n, attr=replace(n.access, index=(apart,)))
        if n.op == "load" and n.access.tensor == "G"
        else n
        for n in program.nodes
    )
    assert split_dims(replace(program, nodes=nodes)) == ()


def test_an_extent_of_one_half_is_no_split() -> None:
    program = split_dim(programs.rmsnorm_matmul(), "d", 8)
    (whole,) = (i for i, n in enumerate(program.nodes) if n.op == "mul" and not n.dims)
    halved = tuple(
        replace(n, args=tuple(program.nodes[whole].args[0] if a == whole else a for a in n.args))
        for n in program.nodes
    )
    assert split_dims(replace(program, nodes=halved)) == ()


@pytest.mark.parametrize(
    ("size", "nominal", "counts"),
    [
        (4096, 8, (2, 4, 8, 16, 32, 64)),
        (256, 8, (2, 4, 8, 16)),
        (960, 4, (2, 4, 8, 16, 32)),
        (1000, 8, (2, 4, 8)),
        (81, 9, (9,)),
    ],
)
def test_parts_are_powers_of_two_that_divide(
    size: int, nominal: int, counts: tuple[int, ...]
) -> None:
    program = split_dim(programs.rmsnorm_matmul(d=size), "d", nominal)
    assert split_counts(program, "d") == counts
    choices = split_choices(program)
    assert choices[0] == {"d": nominal}
    assert sorted(c["d"] for c in choices) == list(counts)


@pytest.mark.parametrize(
    ("volumes", "counts"), [(64, (2, 4, 8, 16, 32, 64)), (56, (2, 4, 7, 8, 14, 28, 56))]
)
def test_a_split_is_whole_rows_of_all_axes(volumes: int, counts: tuple[int, ...]) -> None:
    """Of positions in rows of rows, x[p // 1536, p // 48 % 32, p % 48]."""
    builder = ProgramBuilder("volumes")
    builder.dim("p", volumes * 32 * 48)
    builder.input("X", (volumes, 32, 48), F16)
    p = ix.dim("p")
    x = builder.load("X", [p // (32 * 48), p // 48 % 32, p % 48])
    builder.output("Y", builder.sum(x, ["p"]), [], F16)
    program = split_dim(builder.build(), "p", 4)
    assert split_dims(program) == ("p",)
    assert split_counts(program, "p") == counts


def test_two_splits_vary_one_at_a_time() -> None:
    program = split_dim(split_dim(programs.two_contractions(), "d", 8), "k", 4)
    choices = split_choices(program)
    assert choices[0] == {"d": 8, "k": 4}
    assert all(c["d"] == 8 or c["k"] == 4 for c in choices)
    assert len(choices) == 1 + 5 + 5


def test_nothing_to_choose_where_nothing_is_split() -> None:
    assert split_choices(programs.rmsnorm_matmul()) == ({},)


@pytest.mark.parametrize("splits", [2, 4, 16])
def test_a_family_at_another_number_of_splits(splits: int) -> None:
    graph = several_kernels.ugraph("split_rms_norm_matmul")
    other = at_splits(graph, {"d": splits})
    validate_ugraph(other)
    assert splits_of(other.program, "d") == splits
    assert other.tensors["P0"].shape == (splits, 20, 200)
    assert (other is graph) == (splits == several_kernels.PARTS)
    with pytest.raises(InputError, match="no 7 equal parts"):
        at_splits(graph, {"d": 7})


def test_dims_of_a_split_program_are_the_two_halves() -> None:
    graph = at_splits(several_kernels.ugraph("split_attention"), {"s": 8})
    assert Dim("s_part", 8) in graph.program.dims
    assert Dim("s", 60) in graph.program.dims
