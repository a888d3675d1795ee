from __future__ import annotations

import math
from dataclasses import replace

import pytest
import samples

from mirage_py.errors import FormatError
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.ugraph import Section
from mirage_py.ugraph.text.text_form import (
    format_block,
    format_program,
    format_ugraph,
    parse_index,
    parse_predicate,
    parse_program,
    parse_ugraph,
)

NAMES = sorted(samples.TEXTS)


@pytest.mark.parametrize("name", NAMES)
def test_samples_read_back(name):
    graph = samples.ugraph(name)
    assert parse_ugraph(format_ugraph(graph)) == graph
    assert parse_program(format_program(graph.program)) == graph.program


def test_the_form():
    text = format_ugraph(samples.ugraph("rms_norm_matmul"))
    assert (
        """
kernel fused {
  grid n by 4, b by 4
  loop d by 5 {
    %0 = load X[b, d]  # b <- grid 1, d <- loop
    %1 = load G[d]  # d <- loop
    %2 = mul %0, %1 : [b, d]
    %3 = load W[d, n]  # d <- loop, n <- grid 0
    %4 = matmul[d] %2, %3 : [b, n]
    %5 = accum_sum %4 : [b, n]
    %6 = square %0 : [b, d]
    %7 = sum[d] %6 : [b]
    %8 = accum_sum %7 : [b]
  }
  %9 = size d
  %10 = div %8, %9 : [b]
  %11 = const 1e-06
  %12 = add %10, %11 : [b]
  %13 = sqrt %12 : [b]
  %14 = div %5, %13 : [b, n]
  store Y[b, n] = %14  # b -> grid 1, n -> grid 0
  thread { %10 %12 %13 }
}
"""
        in text
    )


def test_a_block_alone_names_its_tensors():
    graph = samples.ugraph("split_attention")
    text = format_block(graph, graph.kernels[1])
    assert text.startswith("tensor M[2, 3, 3] : f32\n")
    assert "kernel combine {" in text
    assert "tensor K" not in text


@pytest.mark.parametrize(
    "value", [0.1, -0.0, 1e300, 5e-324, 3.0, -2.5e-7, math.inf, -math.inf, 1 / 3]
)
def test_constants_are_exact(value):
    program = samples.ugraph("rms_norm_matmul").program
    nodes = list(program.nodes)
    nodes[9] = Node("const", (), value)
    changed = replace(program, nodes=tuple(nodes))
    found = parse_program(format_program(changed)).nodes[9].attr
    assert found == value
    assert math.copysign(1, found) == math.copysign(1, value)


def test_names_that_are_no_words_are_quoted():
    program = samples.ugraph("softmax").program.renamed('my "rms-norm" \n v2')
    assert parse_program(format_program(program)) == program


def test_keywords_may_name_dimensions_and_tensors():
    text = """
    program program
    dim by = 4
    dim loop = 3
    input load[4, 3] : f32
    output store[4] : f32
    %0 = load load[by, loop]
    %1 = sum[loop] %0
    return store[by] = %1
    """
    program = parse_program(text)
    assert program.dim_names == ("by", "loop")
    assert parse_program(format_program(program)) == program


def test_sections_that_follow_each_other_stay_apart():
    graph = samples.ugraph("softmax_whole_row")
    block = graph.kernels[0]
    sections = (Section((0, 1)), Section((2, 3)), Section((4, 5, 6, 7)))
    cut = replace(graph, kernels=(replace(block, sections=sections),))
    assert parse_ugraph(format_ugraph(cut)) == cut


def test_nodes_out_of_order_keep_their_numbers():
    graph = samples.ugraph("rms_norm_matmul_two_loops")
    block = graph.kernels[0]
    first = block.sections[0]
    sections = (replace(first, nodes=(0, 1, 2, 3)), Section((6, 4, 5, 7, 8)), *block.sections[2:])
    turned = replace(graph, kernels=(replace(block, sections=sections),))
    assert parse_ugraph(format_ugraph(turned)) == turned


def test_comments_blank_lines_and_line_ends():
    text = samples.SOFTMAX.replace("\n", "  # note\r\n\r\n   \r\n# more\r\n")
    assert parse_ugraph(text) == samples.ugraph("softmax")
    assert parse_ugraph(samples.SOFTMAX.strip()) == samples.ugraph("softmax")


def test_subtraction_is_addition_of_the_negated():
    assert parse_index("a - 3") == ix.dim("a") + -3
    assert parse_index("a - b") == ix.dim("a") - ix.dim("b")
    assert parse_index("a + (b + 1)") != parse_index("a + b + 1")


BAD = {
    "program": ("program text:1:8", "unexpected end of line"),
    "program p\ndim b = 4\ndim b = 5\n": (":3:", "dimension 'b' is declared twice"),
    "program p\ndim b 4\n": ("program text:2:7", "unexpected '4'"),
    "program p\ninput X[4] : f33\n": (":2:14", "unknown element type 'f33'"),
    "program p\ninput X[4] : f32\noutput X[4] : f32\n": (":3:", "'X' is declared twice"),
    "program p\n%0 = const 1.0\n%2 = neg %0\n": (":3:1", "%2 is no free number"),
    "program p\n%0 = neg %1\n%1 = const 1.0\n": (":2:1", "%1 is not defined"),
    "program p\n%0 = const 1.0\n%1 = bogus %0\n": (":3:1", "unknown operator 'bogus'"),
    "program p\n%0 = const 1.0\n%1 = sum %0\n": (":3:1", "'sum' lacks its attribute"),
    "program p\n%0 = const 1.0\n%1 = accum_rescaled[x] %0\n": (":3:", "'x' is no integer"),
    "program p\n%0 = const 1.0\n%1 = cast[f9] %0\n": (":3:11", "unknown element type"),
    "program p\noutput Y[4] : f32\n": ("program text", "output Y is never returned"),
    "program p\noutput Y[4] : f32\nreturn Z[0] = %0": (":3:1", "'Z' is no output"),
    "program p\noutput Y[1] : f32\nreturn Y[0] = %0": (":3:", "%0 is not defined"),
    "program p\n%0 = const one\n": (":2:12", "unexpected 'one'"),
    "program p\n%0 = load X[b // 0]\n": (":2:13", "division by 0"),
    'program "\\x"\n': (":1:9", "no quoted name"),
    "program p\n%0 = load X[b\n": (":2:14", "unexpected end of line"),
    "program p\n%0 = const 1.0 $\n": (":2:16", "unexpected character '$'"),
    "\n\n# hm\nprogram p\n?": (":5:1", "unexpected"),
}


@pytest.mark.parametrize("text", sorted(BAD))
def test_errors_say_where(text):
    where, what = BAD[text]
    with pytest.raises(FormatError) as caught:
        parse_program(text)
    assert where in caught.value.where + ":"
    assert what in caught.value.what


def test_what_is_too_deep_is_refused():
    with pytest.raises(FormatError, match="deeper than 64"):
        parse_index(" + ".join("a" * 200))
    with pytest.raises(FormatError, match="deeper than 64"):
        parse_predicate("(~" * 200 + "(a < b)" + ")" * 200)
    assert parse_index("(" * 5000 + "a" + ")" * 5000) == ix.dim("a")


def test_huge_numbers_are_refused():
    with pytest.raises(FormatError):
        parse_index("9" * 5000)
