"""The terms of programs and kernels have the values that programs and kernels compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
import samples
from families import stabilize
from unit.search import kernels

from mirage_py.axioms.proof.goal import Claim, Goal, with_whole_axes
from mirage_py.axioms.proof.kernel_terms import goal_of
from mirage_py.axioms.terms.term import REDUCTIONS, Term, apply, leaf, subterms
from mirage_py.errors import MirageError, UnsupportedError, ValidationError
from mirage_py.search.enumerate.search import search
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.interpret.program import evaluate_program
from mirage_py.ugraph.interpret.ugraph import evaluate_ugraph
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.ugraph.operators import operator
from mirage_py.ugraph.text.text_form import parse_ugraph

Array = np.ndarray


def value_of(
    goal: Goal, term: Term, sizes: Mapping[str, int], leaves: Mapping[str, Array]
) -> Array:
    """A term over all axes. A looped dimension is cut in two as its size allows."""
    extents = extents_of(goal, sizes)
    axes = list(goal.axes)
    done: dict[Term, Array] = {}
    for t in subterms(term):
        args = [done[a] for a in t.args]
        if t.op == "leaf":
            done[t] = leaves[t.attr]
        elif t.op == "const":
            done[t] = np.full([1] * len(axes), float(t.attr))
        elif t.op == "size":
            done[t] = np.full([1] * len(axes), float(sizes.get(t.attr) or extents[t.attr]))
        elif t.op in REDUCTIONS:
            axis = axes.index(t.attr)
            shape = [extents[t.attr] if n == axis else s for n, s in enumerate(args[0].shape)]
            over = np.sum if t.op == "sum" else np.max
            done[t] = over(np.broadcast_to(args[0], shape), axis=axis, keepdims=True)
        elif t.op == "pow":
            done[t] = args[0] ** args[1]
        else:
            meaning = operator({"maximum": "maximum"}.get(t.op, t.op)).over_floats
            assert meaning is not None, t.op
            done[t] = np.asarray(meaning(*args))
    return done[term]


def extents_of(goal: Goal, sizes: Mapping[str, int]) -> dict[str, int]:
    extents = {}
    for axis in goal.axes:
        dim, _, part = axis.rpartition(".")
        whole = sizes[dim or part]
        outer = next((n for n in range(2, whole) if whole % n == 0), 1)
        extents[axis] = whole if not dim else outer if part == "l" else whole // outer
    return extents


def leaves_of(
    goal: Goal, nodes: Sequence[Node], sizes: Mapping[str, int], inputs: Mapping[str, Array]
) -> dict[str, Array]:
    """Every load, index and mask, over all axes."""
    extents = extents_of(goal, sizes)
    dims = list(sizes)
    grid = dict(zip(dims, np.ogrid[tuple(slice(n) for n in sizes.values())], strict=True))
    found: dict[str, Array] = {}
    for node in nodes:
        if node.op == "load":
            access = node.access
            if access.tensor not in inputs:
                continue
            name, value = (
                str(access),
                inputs[access.tensor][tuple(e.evaluate(grid) for e in access.index)],
            )
        elif node.op in ("index", "mask"):
            name, value = f"{node.op} {node.attr}", np.asarray(node.attr.evaluate(grid), float)
        else:
            continue
        value = np.reshape(value, [1] * (len(dims) - np.ndim(value)) + list(np.shape(value)))
        shape = [
            extents[a] if value.shape[dims.index(a.rpartition(".")[0] or a)] > 1 else 1
            for a in goal.axes
        ]
        found[name] = value.reshape(shape)
    return found


def check(program: Program, ugraph: UGraph, expected: Mapping[str, Array] | None = None) -> None:
    """Both terms of each output against what is computed; float64, random inputs."""
    goal = goal_of(program, ugraph)
    sizes = ugraph.program.sizes
    inputs = samples.float_inputs(program, seed=3)
    blocks = [k for k in ugraph.kernels if isinstance(k, BlockGraph)]
    nodes = [n for b in blocks for n in b.nodes] + list(ugraph.program.nodes)
    leaves = leaves_of(goal, nodes, sizes, inputs)
    asked = evaluate_program(program, inputs, FloatMeaning())
    expected = asked if expected is None else expected
    for number, claim in enumerate(goal.claims):
        index = ugraph.program.outputs[number].index
        for term, value in ((claim.program, asked), (claim.ugraph, expected)):
            found = value_of(goal, term, sizes, leaves)
            np.testing.assert_allclose(
                placed(goal, sizes, found, index, value[claim.output].shape),
                value[claim.output],
                rtol=1e-9,
                atol=1e-9,
            )


def placed(
    goal: Goal, sizes: Mapping[str, int], value: Array, index: Sequence, shape: Sequence[int]
) -> Array:
    """The value where the output's indices say."""
    extents = extents_of(goal, sizes)
    named = [d for e in index for d in e.dims()]
    full = [
        extents[a] if (a.rpartition(".")[0] or a) in named else value.shape[n]
        for n, a in enumerate(goal.axes)
    ]
    flat = np.broadcast_to(value, full).reshape([sizes[d] if d in named else 1 for d in sizes])
    grid = np.ogrid[tuple(slice(sizes[d] if d in named else 1) for d in sizes)]
    at = tuple(e.evaluate(dict(zip(sizes, grid, strict=True))) for e in index)
    out = np.full(shape, np.nan)
    out[np.broadcast_arrays(*at, flat)[:-1] if at else ()] = flat if at else flat.item()
    return out


@pytest.mark.parametrize("name", samples.TEXTS)
def test_kernels_written_by_hand(name: str):
    ugraph = samples.ugraph(name)
    inputs = samples.float_inputs(ugraph.program, seed=3)
    check(ugraph.program, ugraph, evaluate_ugraph(ugraph, inputs, FloatMeaning()))


@pytest.mark.parametrize("name", ["rmsnorm_matmul", "attention", "causal_attention", "lora"])
def test_families_of_every_kind(name: str):
    program = kernels.ALL[name](*kernels.programs.SMALL_SIZES[name])
    first: dict[str, UGraph] = {}
    for family in search(program, limits=kernels.FACTORED).families:
        first.setdefault(family.kind, stabilize(family.ugraph))
    assert len(first) >= 3
    for ugraph in first.values():
        check(program, ugraph)


@pytest.mark.parametrize("op", ["abs", "exp", "sigmoid"])
def test_a_wrong_kernel_has_the_term_of_what_it_computes(op: str):
    wrong = samples.edited("rms_norm_matmul", ("%6 = square %0", f"%6 = {op} %0"))
    inputs = samples.float_inputs(wrong.program, seed=3)
    check(wrong.program, wrong, evaluate_ugraph(wrong, inputs, FloatMeaning()))


# --- tiles and iterations ------------------------------------------------------------------------


def test_a_sum_over_tiles_and_iterations_is_one_over_the_dimension():
    goal = goal_of(samples.ugraph("rms_norm_matmul").program, samples.ugraph("rms_norm_matmul"))
    assert "d" in goal.axes
    assert "sum[d](mul(mul(X[b, d], G[d]), W[d, n]))" in str(goal.claims[0].ugraph)


X = leaf("X")
TILE = Term("sum", "d.t", (X,))
BOTH = Term("sum", "d.l", (TILE,))


@pytest.mark.parametrize(
    "term",
    [
        TILE,
        Term("sum", "d.l", (X,)),
        Term("max", "d.l", (TILE,)),
        Term("sum", "d.l", (apply("exp", TILE),)),
        BOTH + Term("sum", "b", (TILE,)),
        Term("sum", "d.t", (Term("sum", "d.l", (X,)),)),
    ],
)
def test_other_reductions_keep_both_axes(term: Term):
    goal = Goal((Claim("Y", BOTH, term),), ("b", "d.l", "d.t"), {"X": ("b", "d.l", "d.t")})
    assert with_whole_axes(goal, ("d",)) == goal


def test_axes_become_one():
    goal = Goal((Claim("Y", BOTH, BOTH),), ("b", "d.l", "d.t"), {"X": ("b", "d.l", "d.t")})
    whole = with_whole_axes(goal, ("d",))
    assert (str(whole.claims[0].program), whole.axes) == ("sum[d](X)", ("b", "d"))
    assert whole.leaf_axes == {"X": ("b", "d")}


# --- what cannot be written as terms -------------------------------------------------------------


def refused(ugraph: UGraph, program: Program | None = None) -> str:
    with pytest.raises(MirageError) as error:
        goal_of(program or ugraph.program, ugraph)
    assert isinstance(error.value, UnsupportedError | ValidationError)
    return error.value.what


def test_a_program_with_other_tensors_or_dimensions():
    ugraph = samples.ugraph("softmax")
    other = samples.ugraph("rms_norm_matmul").program
    assert "of another program" in refused(ugraph, other)
    dims = tuple(replace(d, size=d.size + 1) for d in ugraph.program.dims)
    assert "is another in the µGraph" in refused(ugraph, replace(ugraph.program, dims=dims))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("%10 = div", "%10 = mul"), "in which a shift is left"),
        (("%8 = sub %7, %2", "%8 = add %7, %2"), "in which a shift is left"),
        (("%9 = exp %8", "%9 = exp %7"), "in which a shift is left"),
        (("accum_rescaled[1]", "accum_rescaled[2]"), "rescaled by another power"),
        (("accum_rescaled[1] %5, %2", "accum_sum %5"), "whose shifts vary there"),
        (("%4 = exp %3", "%4 = square %3"), "'square' of a shifted value"),
        (("%5 = sum[s] %4", "%5 = sum[s] %3"), "a sum of values less a shift"),
    ],
)
def test_a_shift_that_does_not_cancel(change: tuple[str, str], says: str):
    assert says in refused(samples.edited("softmax", change))


def test_parts_that_are_read_with_other_indices():
    text = samples.SPLIT_ATTENTION.replace("dim h = 2", "dim h = 3")
    for shape in ("[2, 3, 4]", "[2, 15, 4]", "[2, 15, 6]", "[2, 3, 3]", "[2, 3, 3, 6]"):
        text = text.replace(shape, shape.replace("[2", "[3"))
    text = text.replace("[3, 12]", "[3, 18]").replace("load L[h, p, t]", "load L[p, h, t]")
    assert "stored with other indices" in refused(parse_ugraph(text, "wrong"))


@pytest.mark.parametrize("dtype", ["i32", "bool"])
def test_what_becomes_a_whole_number(dtype: str):
    held = samples.SPLIT_ATTENTION.replace("L[2, 3, 3] : f32", f"L[2, 3, 3] : {dtype}")
    assert "no floating-point numbers" in refused(parse_ugraph(held, "wrong"))
    assert f"'cast' to {dtype}" in refused(
        samples.edited("rotary", ("cast[bf16]", f"cast[{dtype}]"))
    )
