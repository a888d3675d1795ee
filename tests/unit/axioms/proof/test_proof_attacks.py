"""Attacks on proofs: wrong kernels that once had a derivation, and steps that should not hold."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice

import pytest
import samples
from adversarial.corpus import mutant, originals, sites
from adversarial.judge import DIFFERENT, verdict
from nightly import NIGHTLY
from replayed import fault_of, goal_fault

from mirage_py.axioms.proof.find import find_proof
from mirage_py.axioms.proof.goal import Claim, Goal
from mirage_py.axioms.proof.kernel_terms import goal_of
from mirage_py.axioms.proof.proof_laws import laws_of_proofs
from mirage_py.axioms.proof.prove import prove
from mirage_py.axioms.proof.steps import (
    EXTENTS,
    Derivation,
    Proof,
    Step,
    read_proof,
    with_term_at,
)
from mirage_py.axioms.terms.term import Term, apply, const, leaf, size
from mirage_py.errors import MirageError, UnsupportedError
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.ugraph.text.text_form import parse_ugraph

COPY = """
ugraph attack
dim b = 4
dim d = 12
input X[4, 12] : f32
input Z[4] : f32
output Y[4] : f32
TENSORS
program {
  %0 = load Z[b]
  return Y[b] = %0
}
"""


def copying(kernels: str, tensors: str = "") -> UGraph:
    """A program that only copies Z, and kernels that should."""
    return parse_ugraph(COPY.replace("TENSORS", tensors) + kernels, "attack")


def refused(ugraph: UGraph) -> str:
    assert prove(ugraph.program, ugraph) is None
    with pytest.raises(UnsupportedError) as error:
        goal_of(ugraph.program, ugraph)
    return error.value.what


# --- tiles ---------------------------------------------------------------------------------------


def two_loops(first: str, second: str, of_tile: str = "square") -> UGraph:
    """Z, and the difference of two sums of functions of tiles."""
    return copying(f"""
kernel k {{
  grid b by 2
  loop d by {first} {{
    %0 = load X[b, d]
    %1 = sum[d] %0
    %2 = {of_tile} %1
    %3 = accum_sum %2
  }}
  loop d by {second} {{
    %4 = load X[b, d]
    %5 = sum[d] %4
    %6 = {of_tile} %5
    %7 = accum_sum %6
  }}
  %8 = sub %3, %7
  %9 = load Z[b]
  %10 = add %9, %8
  store Y[b] = %10
}}
""")


@pytest.mark.parametrize("tiles", [("4", "6"), ("?", "?"), ("4", "?"), ("4", "4")])
def test_the_tiles_of_two_loops_are_not_one(tiles: tuple[str, str]):
    """A proof holds for all tiles of each loop: that they are equal now does not count."""
    assert "over which the tiles of several loops matter" in refused(two_loops(*tiles))


def test_a_loop_that_adds_up_its_tiles_may_have_any():
    text = samples.RMS_NORM_MATMUL_TWO_LOOPS
    assert prove(parse_ugraph(text, "").program, parse_ugraph(text, "")) is not None
    # Here the second loop divides what it adds up; the first has other tiles.
    late = text.replace("%10 = div %9, %8", "%10 = mul %9, %9").replace(
        "%12 = mul %10, %11", "%12 = mul %9, %11"
    )
    late = late.replace("%15 = accum_sum %14", "%15 = div %14, %8\n    %16 = accum_sum %15")
    late = late.replace("store Y[b, n] = %15", "store Y[b, n] = %16")
    ugraph = parse_ugraph(late, "late")
    assert "d.l" in goal_of(ugraph.program, ugraph).axes
    assert prove(ugraph.program, ugraph) is not None


def test_tiles_of_one_kernel_in_another():
    ugraph = copying(
        """
kernel one {
  grid b by 2
  loop d by 4 {
    %0 = load X[b, d]
    %1 = sum[d] %0
    store T[b, d] = %1
  }
}
kernel two {
  grid b by 2
  loop d by 6 {
    %0 = load X[b, d]
    %1 = sum[d] %0
    %2 = load T[b, d]
    %3 = sub %1, %2
    %4 = sum[d] %3
    %5 = accum_sum %4
  }
  %6 = load Z[b]
  %7 = add %6, %5
  store Y[b] = %7
}
""",
        "tensor T[4, 12] : f32",
    )
    assert "over which the tiles of several loops matter" in refused(ugraph)


def test_the_shift_of_a_tile_is_not_stored():
    ugraph = copying(
        """
kernel one {
  grid b by 2
  loop d by 4 {
    %0 = load X[b, d]
    %1 = max[d] %0
    %2 = accum_max[shift] %1
    %3 = sub %0, %2
    store T[b, d] = %3
  }
}
kernel two {
  grid b by 2
  %0 = load Z[b]
  store Y[b] = %0
}
""",
        "tensor T[4, 12] : f32",
    )
    assert "another shift for each tile of a loop" in refused(ugraph)


WEIGHTED = """
ugraph weighted
dim b = 4
dim d = 9
input X[4, 9] : f32
output Y[4] : f32
program {
  %0 = load X[b, d]
  %1 = sum[d] %0
  %2 = size d
  %3 = div %1, %2
  return Y[b] = %3
}
kernel k {
  grid b by 2
  loop d by 4 {
    %0 = load X[b, d]
    %1 = sum[d] %0
    %2 = sub %0, %0
    %3 = const 1
    %4 = add %2, %3
    %5 = sum[d] %4
    %6 = mul %1, %5
    %7 = accum_sum %6
    %8 = mul %5, %5
    %9 = accum_sum %8
  }
  %10 = div %7, %9
  store Y[b] = %10
}
"""


def test_tiles_weighted_by_their_lengths_are_no_mean_where_the_last_is_shorter():
    ugraph = parse_ugraph(WEIGHTED, "weighted")
    goal = goal_of(ugraph.program, ugraph)
    assert goal.axes == ("b", "d.l", "d.t")
    assert find_proof(goal) is None


AXES = ("b", "d.l", "d.t")
LEAVES = {"X": AXES, "Z": ("b",)}
X, Z = leaf("X"), leaf("Z")
TILE = Term("sum", "d.t", (X,))


def one_step(
    law: str, before: Term, after: Term, forward: bool = True, **bound: Term | str
) -> tuple[Goal, Proof]:
    terms = {n: t for n, t in bound.items() if isinstance(t, Term)}
    axes = {n: t for n, t in bound.items() if isinstance(t, str)}
    step = Step(law, forward, (), terms, axes, before, after)
    goal = Goal((Claim("Y", before, after),), AXES, LEAVES)
    return goal, Proof((Derivation("Y", before, after, (step,)),))


def test_what_a_tile_has_depends_on_the_iteration():
    for of_tile in (TILE, size("d.t")):
        goal, proof = one_step(
            "sums.constant",
            Term("sum", "d.l", (of_tile,)),
            of_tile * size("d.l"),
            y=of_tile,
            i="d.l",
        )
        assert "depends on d.l" in goal_fault(goal, proof)
    inner, outer = Term("sum", "d.l", (TILE,)), Term("sum", "d.t", (Term("sum", "d.l", (X,)),))
    goal, proof = one_step("sums.commute", inner, outer, x=X, i="d.l", j="d.t")
    assert "how long a tile is" in goal_fault(goal, proof)
    tiles = {"i": "d", "j": "d.l", "k": "d.t"}
    goal, proof = one_step(EXTENTS, size("d"), size("d.l") * size("d.t"), **tiles)
    assert "something else comes out" in goal_fault(goal, proof)


def test_other_sums_commute():
    before = Term("sum", "b", (Term("sum", "d.l", (TILE,)),))
    after = Term("sum", "d.l", (Term("sum", "b", (TILE,)),))
    assert goal_fault(*one_step("sums.commute", before, after, x=TILE, i="b", j="d.l")) == ""


# --- what has no value ---------------------------------------------------------------------------

PRODUCT = """
ugraph attack
dim b = 4
input X[4] : f32
input Z[4] : f32
output Y[4] : f32
program {
  %0 = load X[b]
  %1 = load Z[b]
PROGRAM
}
kernel k {
  grid b by 2
  %0 = load X[b]
  %1 = load Z[b]
KERNEL
}
"""
TOGETHER = "  %2 = {0} %0, %1\n  %3 = sqrt %2\n"
APART = "  %2 = sqrt %0\n  %3 = sqrt %1\n  %4 = {0} %2, %3\n"


@pytest.mark.parametrize("op", ["mul", "div"])
def test_a_root_is_not_taken_apart(op: str):
    """sqrt(x) sqrt(z) has no value where both are negative; sqrt(x z) has one."""
    text = PRODUCT.replace("PROGRAM", TOGETHER.format(op) + "  return Y[b] = %3")
    apart = parse_ugraph(text.replace("KERNEL", APART.format(op) + "  store Y[b] = %4"), "apart")
    assert prove(apart.program, apart) is None
    text = PRODUCT.replace("PROGRAM", APART.format(op) + "  return Y[b] = %4")
    joined = parse_ugraph(text.replace("KERNEL", TOGETHER.format(op) + "  store Y[b] = %3"), "")
    assert prove(joined.program, joined) is not None


@pytest.mark.parametrize("op", ["log", "sqrt", "rsqrt"])
def test_nothing_times_what_has_no_value(op: str):
    ugraph = copying(f"""
kernel k {{
  grid b by 2
  %0 = load Z[b]
  %1 = {op} %0
  %2 = const 0
  %3 = mul %1, %2
  %4 = add %0, %3
  store Y[b] = %4
}}
""")
    assert prove(ugraph.program, ugraph) is None


def test_what_is_brought_in_may_be_divided_by_sizes_or_stand_there_already():
    mean = Z / size("b")
    for x, before in ((mean, const("0")), (Z / X, const("0"))):
        goal, proof = one_step("cancellation.difference", before, x - x, False, x=x)
        assert goal_fault(goal, proof) == (
            ""
            if x is mean
            else (
                "output Y: step 1, cancellation.difference: it brings in a div, which may have "
                "no value"
            )
        )
    quotient = Z / X
    before, after = quotient + const("0"), quotient + (quotient - quotient)
    goal, proof = one_step("cancellation.difference", before, after, False, x=quotient)
    (derivation,) = proof.derivations
    step = Step("cancellation.difference", False, (1,), {"x": quotient}, {}, before, after)
    assert goal_fault(goal, Proof((Derivation("Y", before, after, (step,)),))) == ""
    assert derivation.steps[0].at == ()


GUARDED = """  %2 = const 0
  %3 = ne %1, %2
  %4 = div %0, %1
  %5 = where %3, %4, %2
"""
UNGUARDED = {
    "factor": "  %5 = mul %3, %4\n",
    "divided": "  %6 = where %3, %0, %2\n  %5 = div %6, %1\n",
}


@pytest.mark.parametrize("way", UNGUARDED)
def test_a_guarded_division_stays_guarded(way: str):
    """where(z != 0, x / z, 0) has a value for every z."""
    bare = GUARDED.replace("  %5 = where %3, %4, %2\n", UNGUARDED[way])
    if way == "divided":
        bare = bare.replace("  %4 = div %0, %1\n", "").replace("%6", "%4")
    sides = [f"{GUARDED}  return Y[b] = %5", f"{bare}  store Y[b] = %5"]
    text = PRODUCT.replace("PROGRAM", sides[0]).replace("KERNEL", sides[1])
    ugraph = parse_ugraph(text, way)
    assert prove(ugraph.program, ugraph) is None
    # The other way round the kernel has a value wherever the program has one.
    sides = [f"{bare}  return Y[b] = %5", f"{GUARDED}  store Y[b] = %5"]
    text = PRODUCT.replace("PROGRAM", sides[0]).replace("KERNEL", sides[1])
    ugraph = parse_ugraph(text, way)
    assert prove(ugraph.program, ugraph) is not None


def test_a_guarded_product_stays_guarded():
    root = apply("sqrt", Z)
    inside = apply("where", apply("lt", const("0"), Z), X * root, const("0"))
    outside = apply("where", apply("lt", const("0"), Z), X, const("0")) * root
    bound = {"x": apply("lt", const("0"), Z), "y": X, "z": root}
    assert goal_fault(*one_step("masks.multiply", outside, inside, **bound)) == ""
    fault = goal_fault(*one_step("masks.multiply", inside, outside, False, **bound))
    assert "it brings in a sqrt" in fault


@pytest.mark.parametrize("law", ["selection.exp", "selection.product"])
def test_what_is_not_selected_is_not_computed(law: str):
    mask, root = apply("lt", const("0"), Z), apply("sqrt", Z)
    selected, all_of_it = apply("where", mask, root, X), root
    if law == "selection.exp":
        selected, all_of_it = apply("exp", selected), apply("exp", all_of_it)
    before, after = selected * mask, all_of_it * mask
    fault = goal_fault(*one_step(law, before, after, x=mask, y=root, z=X))
    assert "it brings in a sqrt" in fault
    assert goal_fault(*one_step(law, after, before, False, x=mask, y=root, z=X)) == ""
    fault = goal_fault(*one_step(law, after, before, False, x=mask, y=root, z=apply("log", X)))
    assert "it brings in a log" in fault


@pytest.mark.parametrize("number", ["inf", "-inf"])
def test_an_infinity_is_no_real_number(number: str):
    ugraph = copying(f"""
kernel k {{
  grid b by 2
  %0 = load Z[b]
  %1 = const {number}
  %2 = sub %1, %1
  %3 = add %0, %2
  store Y[b] = %3
}}
""")
    assert "no real number" in refused(ugraph)


# --- memory --------------------------------------------------------------------------------------


def through_a_tensor(index: str, elements: int, strides: str = "") -> UGraph:
    return parse_ugraph(
        f"""
ugraph attack
dim i = {elements}
input X[{elements}] : f32
output Y[{elements}] : f32
tensor T[{elements}] : f32 {strides}
program {{
  %0 = load X[i]
  return Y[i] = %0
}}
kernel one {{
  grid i by 1024
  %0 = load X[i]
  store T[{index}] = %0
}}
kernel two {{
  grid i by 1024
  %0 = load T[{index}]
  store Y[i] = %0
}}
""",
        "attack",
    )


def test_stores_that_meet_in_a_large_tensor():
    """Too many elements for the validator to count: it compares the number of writes."""
    elements = 1 << 21
    assert "where stores may meet" in refused(through_a_tensor(f"i * 2 % {elements}", elements))
    whole = through_a_tensor("i", elements)
    assert prove(whole.program, whole) is not None


def test_elements_that_share_a_place():
    assert "may share places" in refused(through_a_tensor("i", 64, "strides (0)"))


# --- kernels that no value fits ------------------------------------------------------------------


def test_a_rescaled_accumulator_of_a_maximum_that_is_no_shift():
    ugraph = copying("""
kernel k {
  grid b by 2
  loop d by 4 {
    %0 = load X[b, d]
    %1 = max[d] %0
    %2 = accum_max %1
    %3 = sum[d] %0
    %4 = accum_rescaled[1] %3, %2
  }
  %5 = sub %4, %4
  %6 = load Z[b]
  %7 = add %6, %5
  store Y[b] = %7
}
""")
    assert "by a maximum that is no shift" in refused(ugraph)


def doublings(number: int) -> str:
    return "".join(f"  %{n + 1} = add %{n}, %{n}\n" for n in range(number))


def test_shared_operands_do_not_take_the_time_of_all_their_paths():
    text = COPY.replace("TENSORS", "").replace(
        "  return Y[b] = %0", doublings(60) + "  return Y[b] = %60"
    )
    kernel = "kernel k {\n  grid b by 2\n  %0 = load Z[b]\n" + doublings(60)
    ugraph = parse_ugraph(f"{text}{kernel}  store Y[b] = %60\n}}\n", "doublings")
    proof = prove(ugraph.program, ugraph)
    assert proof is not None
    stored = read_proof(json.loads(json.dumps(proof.document())))
    assert fault_of(ugraph.program, ugraph, stored) == ""
    wrong = with_term_at(stored.derivations[0].first, (0,) * 60, leaf("X[b, d]"))
    claim = Derivation("Y", wrong, stored.derivations[0].last, ())
    assert "does not begin" in fault_of(
        ugraph.program, ugraph, replace(stored, derivations=(claim,))
    )


# --- laws ----------------------------------------------------------------------------------------


def test_no_law_takes_a_variable_from_under_a_sum_without_a_condition():
    """What is inside of a reduction on one side alone is free of its axis."""
    for law in laws_of_proofs():
        free = [(c.var, c.axis) for c in law.when]
        scopes = [scopes_of(side) for side in (law.left, law.right)]
        for name in scopes[0].keys() & scopes[1].keys():
            around = [scopes[side][name] for side in (0, 1)]
            for axis in frozenset().union(*around[0], *around[1]):
                if any(axis not in scope for side in around for scope in side):
                    assert (name, axis) in free, f"{law}: {name}, {axis}"


def scopes_of(pattern: Term) -> dict[str, list[frozenset[str]]]:
    found: dict[str, list[frozenset[str]]] = {}
    todo = [(pattern, frozenset[str]())]
    while todo:
        t, around = todo.pop()
        if t.op == "var":
            found.setdefault(t.attr, []).append(around)
        inner = around | {t.attr} if t.op in ("sum", "max") else around
        todo += [(a, inner) for a in t.args]
    return found


@pytest.mark.parametrize("op", ["abs", "exp", "relu", "neg"])
def test_a_function_does_not_pass_a_sum(op: str):
    goal = Goal(
        (Claim("Y", apply(op, Term("sum", "b", (X,))), Term("sum", "b", (apply(op, X),))),),
        AXES,
        LEAVES,
    )
    assert (find_proof(goal, rounds=4) is not None) == (op == "neg")


def test_an_ill_formed_program_is_refused():
    ugraph = copying("kernel k {\n  grid b by 2\n  %0 = load Z[b]\n  store Y[b] = %0\n}\n")
    assert prove(ugraph.program, ugraph) is not None
    program = replace(ugraph.program, nodes=ugraph.program.nodes * 0)
    with pytest.raises(MirageError):
        goal_of(program, ugraph)


# --- mutants -------------------------------------------------------------------------------------

MUTANTS = 150 if NIGHTLY else 30


def test_no_wrong_mutant_is_proved():
    """A second interpreter judges what has a derivation; more differ only by what overflows."""
    tried = proved = 0
    for site in islice(sites(20_000, seed=7), MUTANTS):
        program, _ = originals()[site.graph]
        try:
            wrong = mutant(site)
            goal = goal_of(program, wrong)
        except MirageError:
            continue
        tried += 1
        proof = find_proof(goal, rounds=2, max_entries=200)
        blocks = [k for k in wrong.kernels if isinstance(k, BlockGraph)]
        if proof is not None and not goal_fault(goal, proof) and all(b.is_instance for b in blocks):
            proved += 1
            assert verdict(program, wrong) != DIFFERENT, site
    assert tried > MUTANTS // 3
    assert proved > 0
