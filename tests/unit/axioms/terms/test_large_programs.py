"""The tables of all examples, the large ones among them, whole and with one dimension split."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from nightly import NIGHTLY
from unit.frontend.spec.large_references import REFERENCES

from mirage_py.axioms.saturation.saturate import saturate
from mirage_py.axioms.terms.law import Ring
from mirage_py.axioms.terms.term import Term, apply, const, leaf, reduce, size
from mirage_py.frontend.spec import parse_file
from mirage_py.pipeline.pipeline import normalise
from mirage_py.search.space.abstraction import Abstraction, abstract, reduced_dims
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.rewrite.split_dim import outer_dim, split_dim

FOLDER = Path(__file__).parents[4] / "examples"
SPECS = {p.stem: p for p in sorted(FOLDER.glob("*.math"))} | {
    name: FOLDER / "large" / f"{name}.math" for name in REFERENCES
}


@cache
def program_of(name: str) -> Program:
    return normalise(parse_file(SPECS[name]))


def table_of(terms: Abstraction, **options: object):
    return saturate(terms.roots, terms.leaf_axes, axes=terms.axes, **options)


@pytest.mark.covering(1)
@pytest.mark.parametrize(("ring", "most"), [("factored", 3000), ("expanded", 4000)])
@pytest.mark.parametrize("name", SPECS)
def test_rings_are_exhausted_whole_and_split(name: str, ring: Ring, most: int):
    program = program_of(name)
    even = [dim for dim in reduced_dims(program) if program.sizes[dim] % 2 == 0]
    # The expanded ring of each split at night.
    chosen = even if ring == "factored" or NIGHTLY else even[:1]
    splits = [abstract(split_dim(program, dim, 2), (outer_dim(dim),)) for dim in chosen]
    for terms in (abstract(program), *splits):
        table = table_of(terms, ring=ring)
        assert table.saturated
        assert table.size < most


# --- forms that the search must be able to reach -----------------------------------------------


class Form:
    """Leaves by their tensors, and sums over whole dimensions."""

    def __init__(self, name: str, split: str = "") -> None:
        program = program_of(name)
        self.parts = (outer_dim(split),) if split else ()
        self.terms = abstract(split_dim(program, split, 2) if split else program, self.parts)
        self.table = table_of(self.terms)

    def __getattr__(self, tensor: str) -> Term:
        (name,) = [n for n in self.terms.leaf_axes if n.startswith(f"{tensor}[")]
        return leaf(name)

    def sum(self, dim: str, x: Term) -> Term:
        own = (outer_dim(dim), dim) if outer_dim(dim) in self.parts else (dim,)
        axes = tuple(a for a in self.terms.axes if a.rpartition(".")[0] in own)
        return reduce("sum", axes, x)

    def size(self, dim: str) -> Term:
        return size(outer_dim(dim)) * size(dim) if outer_dim(dim) in self.parts else size(dim)

    def reaches(self, form: Term, output: int = 0) -> bool:
        return self.table.class_of(form) == self.table.roots[output]


@pytest.mark.parametrize("split", ["", "d"])
def test_layer_norm_is_applied_after_the_matmul(split: str):
    f = Form("layernorm_linear_gelu", split)
    mean = f.sum("d", f.X) / f.size("d")
    variance = f.sum("d", apply("square", f.X - mean)) / f.size("d")
    norm = apply("sqrt", variance + const("1e-05"))
    gains = f.G * f.W
    normed = (f.sum("d", f.X * gains) - mean * f.sum("d", gains)) / norm
    assert f.reaches(apply("gelu", normed + f.sum("d", f.Z * f.W) + f.C))


@pytest.mark.parametrize("split", ["", "d"])
def test_residual_norm_is_applied_after_both_matmuls(split: str):
    f = Form("residual_norm_mlp", split)
    h = f.X + f.R
    norm = apply("sqrt", f.sum("d", apply("square", h)) / f.size("d") + const("1e-06"))
    gate, up = (f.sum("d", h * (f.G * w)) / norm for w in (f.W1, f.W2))
    assert f.reaches(h)
    assert f.reaches(apply("silu", gate) * up, 1)


@pytest.mark.parametrize("split", ["", "h", "e", "s"])
def test_the_softmax_of_each_head_is_divided_after_its_part_of_the_projection(split: str):
    f = Form("qknorm_attention_out", split)
    norms = [
        apply("sqrt", f.sum("d", apply("square", x)) / f.size("d") + const("1e-06"))
        for x in (f.Q, f.K)
    ]
    scores = f.sum("d", f.Q * (f.GQ * f.GK) * f.K) / (norms[0] * norms[1])
    e = apply("exp", scores / const(repr(128**0.5)))
    weighted = f.sum("s", e * f.V)
    projected = f.sum("e", weighted * f.W) / f.sum("s", e)
    assert f.reaches(f.sum("h", projected))


def lora_in_one_loop(f: Form, weight: Term, down: Term, up: Term) -> Term:
    return f.sum("d", f.X * weight + f.sum("r", (f.X * down) * up))


def lora_in_two_contractions(f: Form, weight: Term, down: Term, up: Term) -> Term:
    return f.sum("d", f.X * weight) + f.sum("r", f.sum("d", f.X * down) * up)


def lora_merged(f: Form, weight: Term, down: Term, up: Term) -> Term:
    return f.sum("d", f.X * (weight + f.sum("r", down * up)))


@pytest.mark.parametrize("split", ["", "d", "r"])
@pytest.mark.parametrize("lora", [lora_in_one_loop, lora_in_two_contractions, lora_merged])
def test_lora_is_merged_or_accumulated_jointly(lora, split: str):
    f = Form("lora_gated_mlp", split)
    gate = lora(f, f.W1, f.A1, f.C1)
    assert f.reaches(apply("silu", gate) * lora(f, f.W2, f.A2, f.C2))


def test_the_label_of_a_token_is_a_factor_of_its_logits():
    f = Form("cross_entropy")
    (vocabulary,) = [leaf(n) for n in f.terms.leaf_axes if n.startswith("index")]
    hit = apply("eq", vocabulary, f.L)
    largest = apply("log", f.sum("v", apply("exp", f.sum("d", f.X * f.W))))
    assert f.reaches(largest - f.sum("v", hit * f.sum("d", f.X * f.W)))
    # The column of the label first, as a gather would: worth it where the vocabulary is small.
    assert f.reaches(largest - f.sum("d", f.X * f.sum("v", hit * f.W)))
