"""The proof tier on results of the search: families with a derivation, and families without."""

from __future__ import annotations

from dataclasses import replace

import pytest
import samples
import several_kernels
from families import stabilize
from nightly import NIGHTLY
from replayed import fault_of
from unit.search import kernels

from mirage_py.axioms.proof.prove import prove
from mirage_py.pipeline.pipeline import normalise
from mirage_py.search.enumerate.search import search
from mirage_py.search.extract.family import Family
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph

# The forms that people know; every family that the factored laws find has one or none of these.
EXAMPLES = {
    "rmsnorm_matmul": ("normalise, then matmul", "split-K with combining kernel"),
    "gated_mlp": ("both products in one loop", "library matmul, fused epilogue"),
    "lora": ("one-kernel LoRA", "merged low-rank weights", "split-K with atomic sum"),
    "attention": ("fused attention", "split-KV attention with combining kernel"),
    "ntrans": ("one-kernel nTrans",),
    "softmax": (),
    "qknorm_attention": ("QK-norm folded into attention", "fused prologue, library matmul"),
    "layernorm_linear": ("normalisation folded behind the product",),
}


def first_of_each(name: str) -> dict[tuple[str, str], Family]:
    """The cheapest family of every form and kind."""
    found: dict[tuple[str, str], Family] = {}
    for family, forms in kernels.named(name):
        for form in (*forms, ""):
            found.setdefault((form, family.kind), family)
    return found


# Of normalised keys and queries what layernorm_linear and attention have, in more forms.
@pytest.mark.parametrize(
    "name", [name for name in EXAMPLES if NIGHTLY or name != "qknorm_attention"]
)
def test_every_form_of_an_example_is_proved(name: str):
    families = first_of_each(name)
    forms = [form for form, _ in families]
    assert [form for form in EXAMPLES[name] if form not in forms] == []
    # Those of a split dimension are proved of the program in which it is whole.
    programs = (family.ugraph.program for family, _ in kernels.named(name))
    program = min(programs, key=lambda p: len(p.dims))
    unproved = [
        key for key, family in families.items() if prove(program, stabilize(family.ugraph)) is None
    ]
    assert unproved == []


@pytest.mark.parametrize("name", several_kernels.NAMES)
def test_kernels_written_by_hand_are_proved_of_the_whole_program(name: str):
    program, ugraph = normalise(several_kernels.program(name)), several_kernels.ugraph(name)
    proof = prove(program, ugraph)
    assert proof is not None
    assert fault_of(program, ugraph, proof) == ""


@pytest.mark.parametrize("name", ["norm_gated_mlp", "causal_attention"])
def test_several_outputs_and_masks_are_proved(name: str):
    program = kernels.ALL[name]()
    first: dict[str, UGraph] = {}
    for family in kernels.found(program).families:
        first.setdefault(family.kind, stabilize(family.ugraph))
    assert len(first) >= 4
    for ugraph in first.values():
        proof = prove(program, ugraph)
        assert proof is not None
        assert [d.output for d in proof.derivations] == [o.tensor.name for o in program.outputs]


def test_a_variance_in_one_pass_is_proved():
    program = kernels.ALL["row_statistics"]()
    families = [f for f in search(program).families if f.kind == "one kernel"]
    longest = 0
    for family in families[:2]:
        proof = prove(program, stabilize(family.ugraph))
        assert proof is not None
        longest = max(longest, proof.length)
    assert longest > 10


def changed(family: UGraph, op: str, into: str) -> UGraph:
    (block,) = family.kernels
    assert isinstance(block, BlockGraph)
    nodes = tuple(replace(n, op=into) if n.op == op else n for n in block.nodes)
    return replace(family, kernels=(replace(block, nodes=nodes),))


@pytest.mark.parametrize(("op", "into"), [("div", "mul"), ("sqrt", "exp"), ("square", "neg")])
def test_a_wrong_family_is_not(op: str, into: str):
    program = kernels.ALL["rmsnorm_matmul"]()
    family = kernels.alone("rmsnorm_matmul").families[0].ugraph
    proof = prove(program, family)
    assert proof is not None
    wrong = changed(family, op, into)
    assert wrong != family
    assert prove(program, wrong) is None
    assert "does not end with the µGraph's" in fault_of(program, wrong, proof)


def test_a_derivation_is_of_one_program():
    program, ugraph = samples.ugraph("attention").program, samples.ugraph("attention")
    proof = prove(program, ugraph)
    assert proof is not None
    other = samples.ugraph("softmax")
    assert "is of another program" in fault_of(other.program, ugraph, proof)
    assert "is about the outputs O" in fault_of(other.program, other, proof)
