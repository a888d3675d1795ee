from __future__ import annotations

from dataclasses import replace

import pytest
import samples

from mirage_py.errors import ValidationError
from mirage_py.ugraph.checks.validate import validate_program, validate_ugraph
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.node import Access, Node
from mirage_py.ugraph.ir.program import Dim, Tensor
from mirage_py.ugraph.ir.ugraph import LibraryCall, Section
from mirage_py.ugraph.text.text_form import parse_program


@pytest.mark.parametrize("name", sorted(samples.TEXTS))
def test_samples_are_valid(name):
    validate_ugraph(samples.ugraph(name))


def test_a_family_with_open_tiles_is_valid():
    validate_ugraph(
        samples.edited("attention", ("t by 4", "t by ?"), ("loop s by 4", "loop s by ?"))
    )


def rejects(ugraph, *words):
    with pytest.raises(ValidationError) as caught:
        validate_ugraph(ugraph)
    for word in words:
        assert word in str(caught.value)


EDITS = {
    "no such grid dimension": ("softmax", ("grid b by 4", "grid q by 4"), "no dimension"),
    "tile of zero": ("softmax", ("grid b by 4", "grid b by 0"), "tile 0"),
    "a dimension gridded and looped": ("softmax", ("grid b", "grid s"), "grid axis and a loop"),
    "a dimension gridded twice": ("softmax", ("grid b by 4", "grid b by 4, b by 2"), "twice"),
    "reduction over the grid": (
        "softmax_whole_row",
        ("grid b by 3", "grid s by 3"),
        "it reduces s, which the grid splits",
    ),
    "loop value used after the loop": ("attention", ("div %17, %14", "div %16, %14"), "dies with"),
    "accumulator outside a loop": (
        "softmax_whole_row",
        ("%6 = div %4, %5", "%6 = accum_sum %5"),
        "outside of a loop",
    ),
    "accumulator over an open tile": (
        "softmax",
        ("accum_rescaled[1] %5, %2", "accum_sum %4"),
        "still depends on the loop's dimension 's'",
    ),
    "accumulator of a constant": (
        "attention",
        ("accum_rescaled[1] %13, %9", "accum_sum %1"),
        "the same in every iteration",
    ),
    "accumulator read too early": (
        "attention",
        ("%16 = matmul[s] %12, %15", "%16 = mul %14, %13"),
        "read inside its own loop",
    ),
    "genuine maximum read too early": (
        "softmax",
        ("accum_max[shift] %1", "accum_max %1"),
        "accum_max %2 is read inside its own loop",
    ),
    "rescaled by what is no maximum": (
        "attention",
        ("accum_rescaled[1] %16, %9", "accum_rescaled[1] %16, %8"),
        "no running maximum",
    ),
    "wrong number of degrees": (
        "attention",
        ("accum_rescaled[1] %16, %9", "accum_rescaled[1, 1] %16, %9"),
        "tuple of integers",
    ),
    "whole value inside the loop that tiles it": (
        "softmax",
        ("loop s by 4 {\n    %0 = load X[b, s]", "%0 = load X[b, s]\n  loop s by 4 {"),
        "holds all of 's'",
    ),
    "addition that loses a dimension": (
        "split_matmul_added",
        ("grid n by 4, p by 2, b by 4", "grid n by 4, b by 4"),
        "do not say where p goes",
    ),
    "addition in a loop that is over one place": (
        "split_matmul_added",
        ("  }\n  store_add Y[b, n] = %3", "    store_add Y[b, n] = %2\n  }"),
        "writes the same place each time",
    ),
    "addition to whole numbers": (
        "split_matmul_added",
        ("output S[7] : f32", "output S[7] : i32"),
        "which holds i32",
    ),
    "addition and writing": (
        "split_matmul_added",
        ("store_add S[b] = %7", "store_add S[b] = %7\n  %9 = const 0.0\n  store S[b] = %9"),
        "'S' is written by store_add in split_k, store in split_k",
    ),
    "addition that misses elements": (
        "split_matmul_added",
        ("store_add S[b] = %7", "%8 = const 0.0\n  store_add S[0] = %8"),
        "1 writes to 7",
    ),
    "store that lacks a dimension": (
        "softmax",
        ("store Y[b, s] = %10", "store Y[b, 0] = %10"),
        "do not say where s goes",
    ),
    "writes too few": (
        "softmax",
        ("store Y[b, s] = %10", "store Y[b, s] = %10\n store Y[b, s] = %10"),
        "182 writes to 91 elements",
    ),
    "writes twice, by quotients": (
        "rotary",
        ("store Y[b, r, x]", "store Y[b, r, (x // 2) * 2]"),
        "written more than once",
    ),
    "index out of bounds": ("rotary", ("load C[x % 5]", "load C[x % 6]"), "from 0 to 5"),
    "too few indices": ("softmax", ("%7 = load X[b, s]", "%7 = load X[b]"), "1 indices into X"),
    "tensor read before written": (
        "split_attention",
        ("%9 = load V[h, p * 5 + s, e]\n    %10", "%9 = load A[h, p, s % 3, e]\n    %10"),
        "no earlier kernel writes it",
    ),
    "store to an input": ("softmax", ("store Y[b, s]", "store X[b, s]"), "cannot be written"),
    "matmul with a lone operand": (
        "attention",
        ("matmul[s] %12, %15", "matmul[s] %13, %15"),
        "%13 does not depend on s",
    ),
    "thread graph across sections": (
        "rms_norm_matmul",
        ("thread { %10 %12 %13 }", "thread { %2 %10 }"),
        "several sections",
    ),
    "thread graph with an escaping value": (
        "attention",
        ("store O", "thread { %4 %10 }\n  store O"),
        "used outside",
    ),
    "thread graph with a contraction": (
        "attention",
        ("store O", "thread { %16 %17 }\n  store O"),
        "more than elementwise",
    ),
    "library call of wrong shape": (
        "rms_norm_matmul_library",
        ("matmul(S, W)", "matmul(W, S)"),
        "do not fit",
    ),
    "library call without meaning": (
        "rms_norm_matmul_library",
        ("matmul(S, W)", "sum(S)"),
        "no library call",
    ),
}


@pytest.mark.parametrize("case", sorted(EDITS))
def test_broken_graphs_are_rejected(case):
    name, change, word = EDITS[case]
    rejects(samples.edited(name, change), word)


def changed(name, position, **fields):
    graph = samples.ugraph(name)
    block = graph.kernels[0]
    nodes = list(block.nodes)
    nodes[position] = replace(nodes[position], **fields)
    return replace(graph, kernels=(replace(block, nodes=tuple(nodes)), *graph.kernels[1:]))


def test_wrong_dims_name_the_right_ones():
    rejects(changed("attention", 3, dims=("t", "h", "s")), "[t, h, s]", "they are [h, t, s]", "%3")


def test_unknown_operators_are_named():
    rejects(changed("attention", 4, op="frobnicate"), "unknown operator 'frobnicate'", "%4")


def test_operands_must_come_first():
    rejects(changed("attention", 4, args=(9, 1)), "%9 does not come before it")


def test_arity():
    rejects(changed("attention", 4, args=(3,)), "1 operands", "takes 2")


@pytest.mark.parametrize(
    ("name", "position", "attr", "word"),
    [
        ("attention", 1, 3, "a float"),
        ("attention", 1, float("nan"), "other than NaN"),
        ("attention", 2, None, "an Access"),
        ("attention", 3, (), "at least one"),
        ("attention", 3, ("c", "c"), "distinct"),
        ("attention", 3, ("z",), "distinct dimensions"),
        ("attention", 9, "shifty", "'shift'"),
        ("attention", 11, "x", "None"),
        ("attention", 5, ix.dim("s"), "a Predicate"),
        ("rms_norm_matmul", 9, "z", "name of a dimension"),
        ("rotary", 11, "bf16", "a DType"),
        ("rotary", 9, ix.IndexExpr("floordiv", value=0, args=(ix.dim("x"),)), "a division by 0"),
        ("rotary", 9, ix.dim("q"), "which the program does not have"),
        ("rotary", 9, ix.IndexExpr("pow", args=(ix.dim("x"),)), "'pow' with 1 parts"),
        ("rotary", 3, ix.Predicate("xor"), "ill-formed condition"),
    ],
)
def test_attributes(name, position, attr, word):
    rejects(changed(name, position, attr=attr), word, f"%{position}")


def test_sections_partition_the_nodes():
    graph = samples.ugraph("softmax_whole_row")
    block = graph.kernels[0]

    def with_sections(*nodes):
        sections = tuple(Section(n) for n in nodes)
        return replace(graph, kernels=(replace(block, sections=sections),))

    rejects(with_sections((0, 1, 2, 3, 4, 5, 6)), "do not hold every node once")
    rejects(with_sections(tuple(range(8)), (0,)), "do not hold every node once")
    rejects(with_sections(tuple(range(8)), ()), "a section is empty")
    rejects(with_sections((0, 1, 2, 3, 5, 4, 6, 7)), "%4 runs later")


def test_a_kernel_stores_something():
    graph = samples.ugraph("softmax_whole_row")
    block = graph.kernels[0]
    bare = replace(block, nodes=block.nodes[:-1], sections=(Section(tuple(range(7))),))
    rejects(replace(graph, kernels=(bare,)), "it stores nothing")


def test_a_store_in_a_loop_moves_with_it():
    graph = samples.ugraph("row_maximum")
    block = graph.kernels[0]
    nodes = (*block.nodes[:3], replace(block.nodes[4], args=(2,)))
    sections = (replace(block.sections[0], nodes=(0, 1, 2, 3)),)
    moved = replace(block, nodes=nodes, sections=sections)
    rejects(replace(graph, kernels=(moved,)), "writes the same place each time")


def test_outputs_are_written():
    graph = samples.ugraph("split_attention")
    rejects(replace(graph, kernels=graph.kernels[:1]), "tensor O", "0 writes to 36")


def test_kernels_have_distinct_names():
    graph = samples.ugraph("split_attention")
    kernels = tuple(replace(k, name="k") for k in graph.kernels)
    rejects(replace(graph, kernels=kernels), "two kernels are called 'k'")


def test_names_cannot_carry_code():
    graph = samples.ugraph("softmax")
    evil = replace(graph.kernels[0], name="k(): pass #")
    rejects(replace(graph, kernels=(evil,)), "cannot be the name of a kernel")


def test_library_results_are_written_once():
    graph = samples.ugraph("rms_norm_matmul_library")
    call = graph.kernels[1]
    rejects(replace(graph, kernels=(*graph.kernels, replace(call, name="p2"))), "two library calls")
    rejects(
        replace(graph, kernels=(graph.kernels[1], graph.kernels[0])), "read before it is written"
    )
    again = LibraryCall("p2", "silu", ("S",), "S")
    rejects(replace(graph, kernels=(*graph.kernels, again)), "a library call and a store")
    elsewhere = replace(call, result="X")
    rejects(replace(graph, kernels=(graph.kernels[0], elsewhere)), "neither an output nor")


PROGRAM = """
program p
dim b = 4
dim s = 6
input X[4, 6] : f32
output Y[4] : f32
%0 = load X[b, s]
%1 = sum[s] %0
return Y[b] = %1
"""


def test_programs():
    program = parse_program(PROGRAM)
    validate_program(program)

    def fails(word, **fields):
        with pytest.raises(ValidationError, match=word):
            validate_program(replace(program, **fields))

    fails("size 0", dims=(Dim("b", 4), Dim("s", 0)))
    fails("two dimensions are called", dims=(*program.dims, Dim("b", 4)))
    fails("cannot be the name of a dimension", dims=(Dim("b c", 4), Dim("s", 6)))
    fails("two tensors are called", inputs=(*program.inputs, Tensor("Y", (1,), F32)))
    fails(r"1 strides", inputs=(Tensor("X", (4, 6), F32, (1,)),))
    fails(r"shape \[0\]", inputs=(*program.inputs, Tensor("Z", (0,), F32)))
    fails("no output", outputs=())
    accumulated = Node("accum_sum", (1,), None, ("b",))
    fails("in a program", nodes=(*program.nodes, accumulated))
    store = Node("store", (1,), Access("Y", (ix.dim("b"),)), ("b",))
    fails("Y", nodes=(*program.nodes, store))
    fails("no node %7", outputs=(replace(program.outputs[0], node=7),))
    fails("do not say where s goes", outputs=(replace(program.outputs[0], node=0),))
    fails("4 writes to 5", outputs=(replace(program.outputs[0], tensor=Tensor("Y", (5,), F32)),))
    fails("outside axis 0", outputs=(replace(program.outputs[0], index=(ix.dim("s"),)),))


def test_large_tensors_are_checked_by_structure():
    program = parse_program(
        """
        program p
        dim i = 4096
        dim j = 4096
        input X[4096, 4096] : f32
        output Y[16777216] : f32
        %0 = load X[i, j]
        return Y[i + j * 4096] = %0
        """
    )
    validate_program(program)
