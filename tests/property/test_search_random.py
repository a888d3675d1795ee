"""Programs nobody wrote: the search does not fail, and what it finds is the program."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.known_forms.registry import forms_of

from mirage_py.search.enumerate.search import SearchLimits, search
from mirage_py.search.extract.family import ONE_KERNEL
from mirage_py.search.space import variants
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.ugraph.field import FIELDS, DivisionByZero, FieldOps
from mirage_py.ugraph.interpret import evaluate_program, evaluate_ugraph
from mirage_py.ugraph.interpret.meaning import FieldMeaning
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.ugraph import BlockGraph

# Of these only d can be split, into 3 splits.
SIZES = {"b": 3, "d": 9, "k": 4, "n": 3}
INPUTS = {"X": "bd", "W": "dn", "Z": "bk", "U": "kn", "C": "b", "G": "d"}
UNARY = ("exp", "square", "sqrt", "neg", "relu", "silu")
BINARY = ("add", "sub", "mul", "div", "maximum")
FEW = SearchLimits(rings=("factored",), max_nodes=2_000, max_tensors=400)


@st.composite
def programs(draw):
    """A few operators on a few inputs; one or two outputs."""
    b = ProgramBuilder("random")
    for dim, size in SIZES.items():
        b.dim(dim, size)
    names = draw(st.lists(st.sampled_from(sorted(INPUTS)), min_size=1, max_size=4, unique=True))
    nodes = []
    for name in names:
        b.input(name, [SIZES[d] for d in INPUTS[name]], F32)
        nodes.append(b.load(name, list(INPUTS[name])))
    for _ in range(draw(st.integers(1, 6))):
        x, y = draw(st.sampled_from(nodes)), draw(st.sampled_from(nodes))
        shared = [d for d in b.nodes[x].dims if d in b.nodes[y].dims]
        kind = draw(st.sampled_from(["unary", "binary", "reduce", "contract"]))
        if kind == "contract" and shared:
            over = draw(st.lists(st.sampled_from(shared), min_size=1, unique=True))
            nodes.append(b.sum(b.apply("mul", x, y), over))
        elif kind == "reduce" and b.nodes[x].dims:
            dim = draw(st.sampled_from(b.nodes[x].dims))
            reduction = draw(st.sampled_from([b.sum, b.max, b.mean]))
            nodes.append(reduction(x, [dim]))
        elif kind == "binary":
            nodes.append(b.apply(draw(st.sampled_from(BINARY)), x, y))
        else:
            nodes.append(b.apply(draw(st.sampled_from(UNARY)), x))
    outputs = [nodes[-1]]
    if draw(st.booleans()):
        outputs.append(draw(st.sampled_from(nodes)))
    for number, node in enumerate(outputs):
        b.output(f"Y{number}", node, list(b.nodes[node].dims), F32)
    read = _read(b, outputs)
    b.inputs = {name: t for name, t in b.inputs.items() if name in read}
    return b.build()


def _read(b, outputs):
    todo, found = list(outputs), []
    while todo:
        node = b.nodes[todo.pop()]
        todo.extend(node.args)
        if node.op == "load":
            found.append(node.access.tensor)
    return found


def tiled(kernel):
    """With tiles that leave a shorter last one."""
    if not isinstance(kernel, BlockGraph):
        return kernel
    grid = tuple(replace(axis, tile=2) for axis in kernel.grid)
    sections = tuple(replace(s, tile=2 if s.loop else None) for s in kernel.sections)
    return replace(kernel, grid=grid, sections=sections)


def chosen(families):
    """A few families of every kind."""
    kinds = dict.fromkeys(f.kind for f in families)
    return [f for kind in kinds for f in [g for g in families if g.kind == kind][:5]]


@settings(max_examples=60)
@given(programs())
def test_families_of_random_programs(program):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(variants, "MIN_SPLIT_EXTENT", SIZES["d"])
        result = search(program, limits=FEW)
    meaning = FieldMeaning(FieldOps(FIELDS[1], 11))
    inputs = {t.name: meaning.ops.random(t.shape, t.name) for t in program.inputs}
    try:
        expected = evaluate_program(program, inputs, meaning)
    except DivisionByZero:
        return
    # The whole program in one block is a family of any program.
    assert ONE_KERNEL in {f.kind for f in result.families}, result.reasons
    for family in chosen(result.families):
        validate_ugraph(family.ugraph)
        forms_of(family)
        instance = replace(family.ugraph, kernels=tuple(map(tiled, family.ugraph.kernels)))
        found = evaluate_ugraph(instance, inputs, meaning)
        for name, value in expected.items():
            assert meaning.ops.equal(found[name], value), str(family.origins)
