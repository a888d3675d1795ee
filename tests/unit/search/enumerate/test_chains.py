"""Two kernels: the values that the first one stores, and the use that the second makes of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from oracles.known_forms.registry import forms_of
from unit.search import programs
from unit.search.kernels import ALL, FACTORED, example, found, of_kind

from mirage_py.search.enumerate.candidates import Candidates
from mirage_py.search.enumerate.chains import TwoKernels
from mirage_py.search.enumerate.draws import Draw
from mirage_py.search.enumerate.jobs import Setting, task_of
from mirage_py.search.enumerate.search import search
from mirage_py.search.extract.family import LIBRARY, SPLIT, TWO_KERNELS
from mirage_py.search.extract.loops import shared_out
from mirage_py.search.extract.work import waves
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.ugraph.ir.dtypes import F16
from mirage_py.ugraph.ir.ugraph import LibraryCall

NAMES = ("rmsnorm_matmul", "lora", "attention", "norm_gated_mlp", "row_statistics", "softmax")


def chain(b=16, d=512, k=512, n=512):
    """Y = (X @ A) @ B, through something that keeps them apart."""
    s = programs.Spec("chain", b=b, d=d, k=k, n=n)
    hidden = s.b.apply("relu", s.contract(s.load("X", "bd"), s.load("A", "dk"), "d"))
    s.output("Y", s.contract(hidden, s.load("B", "kn"), "k"), "bn")
    return s.b.build()


def two_outputs():
    """H is needed for Y, and is an output itself."""
    s = programs.Spec("two_outputs", b=16, d=512, k=512, n=512)
    hidden = s.b.apply("relu", s.contract(s.load("X", "bd"), s.load("A", "dk"), "d"))
    s.output("H", hidden, "bk")
    s.output("Y", s.contract(hidden, s.load("B", "kn"), "k"), "bn")
    return s.b.build()


def reads(kernel):
    return {n.access.tensor for _, n in kernel.loads()}


def writes(kernel):
    return {n.access.tensor for _, n in kernel.stores()}


def test_a_chain_of_products_is_a_product_a_kernel():
    families = of_kind(found(chain()), TWO_KERNELS)
    for family in families:
        first, last = family.ugraph.kernels
        (middle,) = family.ugraph.intermediates
        assert reads(first) == {"X", "A"}
        assert writes(first) == {middle.name} <= reads(last)
        assert writes(last) == {"Y"}
    products = [[k.nodes for k in f.ugraph.kernels] for f in families]
    once = [[[n.op for n in nodes].count("matmul") for nodes in f] for f in products]
    assert [1, 1] in once
    # The grid of the first kernel is over the dimension that the second one reduces.
    grids = [[[a.dim for a in k.grid] for k in f.ugraph.kernels] for f in families]
    assert [["b", "k"], ["b", "n"]] in grids


def test_the_reader_applies_what_depends_on_one_intermediate():
    for family in of_kind(found(chain()), TWO_KERNELS):
        first, last = family.ugraph.kernels
        assert all(n.op not in ("relu", "maximum") for n in first.nodes)
        assert any(n.op in ("relu", "maximum") for n in last.nodes)


def test_what_only_products_read_is_stored_in_half():
    s = programs.Spec("chain", b=16, d=512, k=512, n=512)
    scaled = s.b.apply(
        "mul", s.contract(s.load("X", "bd"), s.load("A", "dk"), "d"), s.load("C", "k")
    )
    s.output("Y", s.contract(s.b.apply("exp", scaled), s.load("B", "kn"), "k"), "bn")
    for family in of_kind(found(s.b.build()), TWO_KERNELS):
        (middle,) = family.ugraph.intermediates
        _, last = family.ugraph.kernels
        readers = [
            n.op
            for n in last.nodes
            for a in n.args
            if last.nodes[a].op == "load" and last.nodes[a].access.tensor == middle.name
        ]
        assert (middle.dtype == F16) == (dict.fromkeys(readers) == {"matmul": None})


def test_an_output_that_the_first_kernel_stores_is_read_and_not_stored_again():
    families = of_kind(found(two_outputs()), TWO_KERNELS)
    stored = [f for f in families if writes(f.ugraph.kernels[0]) == {"H"}]
    assert stored
    for family in stored:
        last = family.ugraph.kernels[1]
        assert family.ugraph.intermediates == ()
        assert reads(last) == {"H", "B"}
        assert writes(last) == {"Y"}


def test_a_library_reads_an_output_that_lies_as_it_wants():
    def libraries(dims):
        s = programs.Spec("stored", b=16, d=512, k=512, n=512)
        hidden = s.contract(s.load("X", "bd"), s.load("A", "dk"), "d")
        s.output("H", hidden, dims)
        s.output("Y", s.b.apply("exp", s.contract(hidden, s.load("B", "kn"), "k")), "bn")
        families = of_kind(found(s.b.build()), LIBRARY)
        calls = [k for f in families for k in f.ugraph.kernels if isinstance(k, LibraryCall)]
        assert calls
        for family in families:
            validate_ugraph(family.ugraph)
        return [c.args for c in calls]

    assert ("H", "B") in libraries("bk")
    assert ("H", "B") not in libraries("kb")


@pytest.mark.parametrize("name", NAMES)
def test_no_last_kernel_only_copies(name):
    for family in found(ALL[name]()).families:
        last = family.ugraph.kernels[-1]
        if len(family.ugraph.kernels) > 1 and not isinstance(last, LibraryCall):
            assert any(n.op not in ("load", "store") for n in last.nodes)


@pytest.mark.parametrize("name", NAMES)
def test_every_intermediate_is_read(name):
    for family in found(ALL[name]()).families:
        read = [
            t
            for k in family.ugraph.kernels
            for t in (k.args if isinstance(k, LibraryCall) else sorted(reads(k)))
        ]
        assert all(t.name in read for t in family.ugraph.intermediates)


def test_every_load_is_used():
    for name in NAMES:
        for family in found(ALL[name]()).families:
            for kernel in family.ugraph.kernels:
                if not isinstance(kernel, LibraryCall):
                    used = {a for n in kernel.nodes for a in n.args}
                    assert all(number in used for number, _ in kernel.loads())


def test_a_split_reduction_is_begun_by_the_first_kernel_and_ended_by_the_second():
    families = of_kind(found(programs.rmsnorm_matmul()), SPLIT)
    assert families
    for family in families:
        first, last = family.ugraph.kernels
        assert {a.dim for a in first.grid} == {"b", "n", "d_part"}
        assert all("d_part" not in n.reduced for n in first.nodes if n.op in ("sum", "matmul"))
        assert all(t.name.startswith("part") for t in family.ugraph.intermediates)
        assert "d_part" not in [a.dim for a in last.grid]
        assert reads(last) == {t.name for t in family.ugraph.intermediates}
        ended = [n for n in last.nodes if n.op == "sum" and n.reduced == ("d_part",)]
        assert len(ended) == len(family.ugraph.intermediates)


def test_attention_stores_partial_sums_and_matmuls():
    families = of_kind(found(programs.attention()), SPLIT)
    over_keys = [f for f in families if f.ugraph.program.sizes.get("s_part")]
    shapes = [sorted(len(t.shape) for t in f.ugraph.intermediates) for f in over_keys]
    assert [3, 4] in shapes


def test_one_kernel_is_all_that_is_asked_for():
    limits = replace(FACTORED, max_kernels=1)
    result = search(programs.rmsnorm_matmul(), limits=limits)
    assert all(len(f.ugraph.kernels) == 1 for f in result.families)


@pytest.mark.parametrize("make", [chain, programs.attention])
def test_candidates_and_their_producers(make):
    setting = Setting(make(), 0, FACTORED)
    draw = Draw(task_of(setting, "factored", None), 0, skip_divisions=False)
    candidates = Candidates(draw)
    values = [c.value for c in candidates.by_name.values() if c.call is None]
    assert len(values) == len(dict.fromkeys(values))
    for candidate in candidates.by_name.values():
        made = candidates.to_make([candidate.name])
        able = candidates.producers_of(made)
        if candidate.call is None:
            assert made == (candidate.value,)
            assert able
        costs = [m.alone_us(made) for m in able] if made else [1.0]
        assert costs == sorted(costs)
        assert costs[0] > 0


def test_candidates_have_no_name_of_the_program():
    s = programs.Spec("taken", b=16, d=64, n=64)
    x = s.load("made0", "bd")
    normed = s.b.apply("div", x, s.b.sum(s.b.apply("square", x), "d"))
    s.output("product_1", s.contract(normed, s.load("product1", "dn"), "d"), "bn")
    plain = programs.Spec("free", b=16, d=64, n=64)
    x = plain.load("X", "bd")
    normed = plain.b.apply("div", x, plain.b.sum(plain.b.apply("square", x), "d"))
    plain.output("Y", plain.contract(normed, plain.load("W", "dn"), "d"), "bn")
    taken, free = found(s.b.build()), found(plain.b.build())
    assert not taken.reasons
    assert [f.kind for f in taken.families] == [f.kind for f in free.families]


def first_kernels(program, split, dims):
    """The first kernels kept for intermediates over these dimensions."""
    setting = Setting(program, 0, FACTORED)
    draw = Draw(task_of(setting, "factored", split), 0, skip_divisions=False)
    pairs = TwoKernels(draw)
    candidates = [c for c in pairs.candidates.readable() if c.dims == dims and not c.call]
    return [f for c in candidates for f in pairs._firsts_for((c.value,))]


def test_first_kernels_with_different_loops_are_kept():
    # A block that holds all keys is cheapest as long as nobody asks whether they fit in it.
    firsts = first_kernels(programs.attention(), None, ("h", "q", "e"))
    assert {f.origin.configuration.looped for f in firsts} == {(), ("s",), ("d",)}


def test_a_loop_over_what_others_reduce_takes_no_place():
    firsts = first_kernels(chain(), None, ("b", "k"))
    assert {f.origin.configuration.looped for f in firsts} == {(), ("d",)}


def test_a_kernel_of_many_blocks_is_not_cheap_because_each_is_small():
    setting = Setting(programs.attention(), 0, FACTORED)
    pairs = TwoKernels(Draw(task_of(setting, "factored", None), 0, skip_divisions=False))
    scores = pairs.candidates.readable()[0]
    assert scores.dims == ("h", "q", "s")
    first = pairs._firsts_for((scores.value,))[0]
    assert shared_out(first.origin.derivation) == ("h", "q", "s")
    # The output has 4 blocks of queries; the scores have 64 times as many, more than SMs.
    assert waves(setting.program, ("h", "q", "e")) < 1 < waves(setting.program, ("h", "q", "s"))
    for firsts_for in (pairs._firsts_for, pairs._greedy_firsts):
        assert pairs._making_us(scores.name, firsts_for) > 1.5 * first.cost_us


def test_the_wanted_intermediate_is_read_where_much_else_could_be():
    found_forms = {x for f in example("residual_norm_mlp_down.math").families for x in forms_of(f)}
    assert "gated product, then projection" in found_forms


def test_a_producer_with_loops_that_the_value_does_not_need_is_left_out():
    setting = Setting(chain(), 0, FACTORED)
    candidates = Candidates(Draw(task_of(setting, "factored", None), 0, skip_divisions=False))
    hidden = next(c for c in candidates.readable() if c.dims == ("b", "k"))
    assert len(candidates.producers) == 4
    looped = [m.configuration.looped for m in candidates.producers_of((hidden.value,))]
    assert looped == [(), ("d",)]
