"""Whatever names a program has, its kernels are the same text but for these."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from keyword import iskeyword

import cuda_plans
import pytest
from plans import (
    attention_plan,
    random_inputs,
    relative_error,
    rms_plan,
    rms_reference,
    two_kernel_plan,
)

from mirage_py.codegen.cuda.kernel.module import emit_cuda
from mirage_py.codegen.text.names import TRITON, EmittedNames, emitted_names, renamed_plan
from mirage_py.codegen.triton.module import emit_triton
from mirage_py.runtime.cpu.cuda_emulation import run_emulated
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph

PLANS: dict[str, Callable[[], Plan]] = {
    "rms": rms_plan,
    "attention": attention_plan,
    "two kernels": two_kernel_plan,
}
WORD = re.compile(r"[A-Za-z_]\w*")
# Loops over registers, in which CUDA kernels mention neither tensors nor positions.
SHADOWS = ("m", "n", "w")
NUMBER = re.compile(r"_\d+$")
# Words that no emitter has anything to do with.
NEUTRAL = "zebra"


def called(plan: Plan, **names: str) -> Plan:
    """The plan with some of its tensors, dimensions and kernels called otherwise."""
    graph = plan.ugraph
    blocks = [k.name for k in graph.kernels if isinstance(k, BlockGraph)]
    kinds = (graph.tensors, graph.program.dim_names, blocks)
    maps = [{old: names.get(f"{kind}:{old}", old) for old in all_of}
            for kind, all_of in zip(("tensor", "dim", "kernel"), kinds, strict=True)]  # fmt: skip
    found = renamed_plan(plan, EmittedNames(*maps))
    validate_ugraph(found.ugraph)
    return found


def entities(plan: Plan) -> list[str]:
    graph = plan.ugraph
    blocks = [k.name for k in graph.kernels if isinstance(k, BlockGraph)]
    found = [f"tensor:{name}" for name in graph.tensors]
    return [
        *found,
        *(f"dim:{d}" for d in graph.program.dim_names),
        *(f"kernel:{b}" for b in blocks),
    ]


def neutral(plan: Plan) -> Plan:
    numbers = zip(entities(plan), count())
    return called(plan, **{entity: f"{NEUTRAL}{number}q" for entity, number in numbers})


def words(plan: Plan) -> list[str]:
    """The words of all kernels that are names there: no comments, texts, numbers, attributes of
    modules and keywords of calls.
    """
    if plan.backend == "cuda":
        body = "\n".join(k.body for k in emit_cuda(plan))
        others = r"//.*|#.*|\.[A-Za-z_]\w*"
    else:
        body = "\n".join(re.sub(r'^"""[\s\S]*?"""', "", k.source) for k in emit_triton(plan))
        others = r'""".*"""|import .*|from .*|\w+=(?!=)|\.[A-Za-z_]\w*'
    return WORD.findall(re.sub(rf'{others}|"[^"]*"|(?<!\w)\d[\w.]*', "", body))


def check_same(expected: list[str], found: list[str], what: str) -> None:
    """The texts differ by names alone: two things that differ in one differ in the other."""
    assert len(expected) == len(found), what
    there: dict[str, str] = {}
    back: dict[str, str] = {}
    for one, other in zip(expected, found, strict=True):
        assert there.setdefault(one, other) == other, f"{what}: {one} is {there[one]} and {other}"
        assert back.setdefault(other, one) == one, f"{what}: {other} is {back[other]} and {one}"
        # Variables may be numbered otherwise.
        assert NEUTRAL in one or NUMBER.sub("", one) == NUMBER.sub("", other), f"{what}: {other}"


@pytest.mark.parametrize("backend", ["triton", "cuda"])
@pytest.mark.parametrize("name", PLANS)
def test_no_word_of_the_text_is_taken_by_a_name(name, backend):
    plan = PLANS[name]()
    if backend == "cuda":
        plan = cuda_plans.for_cuda(plan)
    quiet = neutral(plan)
    expected = words(quiet)
    check_same(words(plan), words(plan), name)
    # Words of the text, and what follows from the names that are there.
    hostile = dict.fromkeys(w.replace(f"{NEUTRAL}0q", f"{NEUTRAL}1q") for w in expected)
    victims = entities(quiet)
    for number, word in enumerate(hostile):
        victim = victims[number % len(victims)]
        taken = [v.partition(":")[2] for v in victims]
        if iskeyword(word) or word in taken or word in SHADOWS:
            continue
        check_same(expected, words(called(quiet, **{victim: word})), f"{victim} is {word}")


RESERVED = [
    "threadIdx",
    "extern",
    "asm",
    "NULL",
    "INFINITY",
    "tl",
    "tl_",
    "torch",
    "pid",
    "lane",
    "register",
    "template",
    "printf",
    "exp",
    "norm",
    "index",
    "NAN",
    "main",
    "launch",
    "float",
    "_X",
    "__shared__",
    "bfloat16",
    "X_ptr",
    "X_tile",
    "exp5",
    "acc7",
    "named_tl",
    "triton",
    "π",
    "W_in",
    "d_start",
    "num_warps",
    "self",
    "num_stages",
    "linux",
    "EOF",
    "stdin",
    "M_PI",
    "time",
    "clock",
    "y0",
    "gamma",
]


@pytest.mark.parametrize("backend", ["triton", "cuda"])
def test_kernels_with_such_names_compute_the_same(backend):
    plan = rms_plan()
    if backend == "cuda":
        plan = cuda_plans.for_cuda(plan)
    run = run_emulated if backend == "cuda" else run_interpreted
    arrays = random_inputs(plan.ugraph.program)
    expected = rms_reference(arrays)
    victims = entities(plan)
    for start in range(0, len(RESERVED), len(victims)):
        chosen = dict(zip(victims, RESERVED[start:], strict=False))
        odd = called(plan, **chosen)
        given = {chosen.get(f"tensor:{n}", n): values for n, values in arrays.items()}
        (found,) = run(odd, given).values()
        assert relative_error(found, expected) < 2e-3, chosen


def test_ordinary_names_are_kept():
    for make in PLANS.values():
        assert emitted_names(make().ugraph, TRITON).keep_all
    usual = [
        "hidden_states",
        "q_proj_weight",
        "X",
        "W",
        "input",
        "bias",
        "x",
        "out",
        "gate_up_w",
        "W_in",
        "attn_mask",
        "lora_A",
        "scores",
        "w1",
        "n_1",
        "d_part",
        "product0",
        "mid0",
        "K_cache",
        "beta",
        "eps",
        "logits",
        "alpha2",
        "weight_norm",
    ]
    plan = rms_plan()
    victims = [v for v in entities(plan) if not v.startswith("kernel")]
    for name in usual:
        for victim in victims:
            if f"tensor:{name}" not in victims and f"dim:{name}" not in victims:
                assert emitted_names(called(plan, **{victim: name}).ugraph, TRITON).keep_all, name


def test_names_stay_distinct():
    """Two names never become one, in whatever order they come."""
    plan = rms_plan()
    first, second, *_ = plan.ugraph.program.dim_names
    for pair in (("tl", "tl_"), ("tl_", "tl"), ("named_tl", "tl"), ("pid", "Pid"), ("é", "è")):
        odd = called(plan, **{f"dim:{first}": pair[0], f"dim:{second}": pair[1]})
        names = emitted_names(odd.ugraph, TRITON)
        found = [*names.tensors.values(), *names.dims.values(), *names.kernels.values()]
        assert len({*found}) == len(found)
        assert all(name.isascii() and name.isidentifier() and not iskeyword(name) for name in found)


def test_a_program_that_reads_what_it_computed_is_renamed():
    b = ProgramBuilder("read")
    b.dim("i", 6), b.dim("j", 5)
    b.input("X", (6, 5), F32)
    held = b.stored(b.apply("exp", b.load("X", ("i", "j"))))
    b.output("Y", b.read(held, (ix.dim("i") * -1 + 5, ix.dim("j"))), ("i", "j"), F32)
    plan = Plan(UGraph(b.build(), ()), ())
    names = replace(emitted_names(plan.ugraph, TRITON), tensors={"X": "x", "Y": "y"})
    program = renamed_plan(plan, names).ugraph.program
    assert [n.access.tensor for n in program.nodes if n.op in ("load", "read")] == ["x", ""]


def test_what_the_launcher_needs_has_the_names_of_the_plan():
    plan = rms_plan()
    tensor = next(iter(plan.ugraph.tensors))
    odd = called(plan, **{f"tensor:{tensor}": "threadIdx"})
    (kernel,) = emit_cuda(cuda_plans.for_cuda(odd))
    assert kernel.pointers[0].name == "threadIdx"
    (kernel,) = emit_triton(called(plan, **{f"tensor:{tensor}": "torch"}))
    assert kernel.pointers[0].name == kernel.text.pointers[0] == "torch"
    assert "def launch(torch_," in kernel.source
