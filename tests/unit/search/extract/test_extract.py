"""Extraction against an enumeration of every derivation of small pools."""

from __future__ import annotations

import pytest
from unit.search import programs
from unit.search.pools import closed

from mirage_py.search.closure.derivation import derivation_from
from mirage_py.search.closure.pool import Alternative, Pool
from mirage_py.search.extract.extract import ExtractionLimits, extract, stages_worth_a_search
from mirage_py.search.extract.loops import arrangement_us, arrangements
from mirage_py.search.extract.work import BlockWork

# As many as there are, however alike and however dear.
ALL = ExtractionLimits(derivations=10_000, alike=10_000, slack=1e9, expansions=1_000_000)


def every_derivation(pool, roots):
    """All choices of an alternative for each tensor that is reached, without cycles."""

    def complete(choice, owed):
        open_ = [n for n in owed if n not in choice]
        if not open_:
            yield dict(choice)
            return
        number = open_[0]
        for way in pool[number].alternatives:
            yield from complete({**choice, number: way}, [*open_[1:], *way.args])

    def acyclic(choice):
        done, doing = {}, {}

        def visit(number):
            if number in doing:
                return False
            if number not in done:
                doing[number] = True
                if not all(visit(a) for a in choice[number].args):
                    return False
                del doing[number]
                done[number] = True
            return True

        return all(visit(r) for r in roots)

    seen = {}
    for choice in complete({}, list(roots)):
        if acyclic(choice):
            derivation = derivation_from(pool, choice, roots)
            seen[str(derivation)] = derivation
    return seen


def cost_us(derivation, work):
    return min(arrangement_us(derivation, a, work) for a in arrangements(derivation))


@pytest.mark.parametrize(
    ("make", "looped"),
    [
        (programs.rmsnorm_matmul, ()),
        (programs.rmsnorm_matmul, ("d",)),
        (programs.lora, ("d",)),
        (programs.attention, ("s",)),
        (programs.ntrans, ("d",)),
        (programs.row_statistics, ("n",)),
    ],
)
def test_extraction_finds_what_enumeration_finds(make, looped):
    program = make()
    found = closed(program, *looped)
    pool, roots = found.pool, found.roots
    work = BlockWork(program)
    expected = every_derivation(pool, roots)
    for stages in stages_worth_a_search(pool, roots):
        fitting = {t: d for t, d in expected.items() if max(d.stages) <= stages}
        result = extract(pool, roots, work, ALL, stages)
        assert not result.cut
        assert sorted(str(d) for _, d in result.derivations) == sorted(fitting)
        costs = [cost for cost, _ in result.derivations]
        assert costs == sorted(costs)
        assert costs == pytest.approx(sorted(cost_us(d, work) for d in fitting.values()))


@pytest.mark.parametrize("wanted", [1, 3])
def test_the_first_ones_are_the_cheapest(wanted):
    program = programs.rmsnorm_matmul()
    found = closed(program, "d")
    pool, roots = found.pool, found.roots
    work = BlockWork(program)
    best = sorted(cost_us(d, work) for d in every_derivation(pool, roots).values())
    limits = ExtractionLimits(derivations=wanted, alike=100)
    result = extract(pool, roots, work, limits, 3)
    assert [cost for cost, _ in result.derivations] == pytest.approx(best[:wanted])


class _Flat:
    """One unit for every step."""

    def step_us(self, op, attr, dims, loop):
        return 1.0

    def loop_us(self):
        return 0.0


def test_cycles_are_no_derivations():
    pool = Pool()
    leaf, _ = pool.add(0, None, (), 0, Alternative("load", (), None))
    here, _ = pool.add(1, None, (), 0, Alternative("exp", (leaf,)))
    there, _ = pool.add(2, None, (), 0, Alternative("neg", (here,)))
    pool.add(1, None, (), 0, Alternative("neg", (there,)))
    result = extract(pool, (there,), _Flat(), ALL, 0)
    assert [[s.op for s in d.steps] for _, d in result.derivations] == [["load", "exp", "neg"]]


def test_a_shared_tensor_is_paid_once():
    pool = Pool()
    leaf, _ = pool.add(0, None, (), 0, Alternative("load", (), None))
    shared, _ = pool.add(1, None, (), 0, Alternative("exp", (leaf,)))
    left, _ = pool.add(2, None, (), 0, Alternative("neg", (shared,)))
    root, _ = pool.add(3, None, (), 0, Alternative("add", (left, shared)))
    ((cost, _),) = extract(pool, (root,), _Flat(), ALL, 0).derivations
    assert cost == 4.0


def test_outputs_share_their_steps():
    pool = Pool()
    leaf, _ = pool.add(0, None, (), 0, Alternative("load", (), None))
    first, _ = pool.add(1, None, (), 0, Alternative("exp", (leaf,)))
    second, _ = pool.add(2, None, (), 0, Alternative("neg", (first,)))
    ((cost, derivation),) = extract(pool, (second, first), _Flat(), ALL, 0).derivations
    assert cost == 3.0
    assert derivation.outputs == (2, 1)


def test_alike_derivations_are_left_out():
    program = programs.rmsnorm_matmul()
    found = closed(program, "d")
    pool, roots = found.pool, found.roots
    work = BlockWork(program)
    every = len(extract(pool, roots, work, ALL, 2).derivations)
    one_each = ExtractionLimits(derivations=10_000, alike=1, slack=1e9, expansions=1_000_000)
    few = len(extract(pool, roots, work, one_each, 2).derivations)
    assert 1 < few < every


@pytest.mark.parametrize("make", [programs.layernorm_linear, programs.row_statistics])
def test_no_number_of_stages_gives_what_a_smaller_one_gave(make):
    """Of a kernel for a small value the pool has far more stages than it can use."""
    program = make()
    looped = [d for d in program.dim_names if d in ("d", "n")][:1]
    found = closed(program, *looped)
    pool, work = found.pool, BlockWork(program)
    most = max(t.stage for t in pool.tensors)
    skipped = 0
    for number, tensor in enumerate(pool.tensors):
        worth = stages_worth_a_search(pool, (number,))
        known: list[str] = []
        for stages in range(tensor.stage, most + 1):
            derivations = [
                str(d) for _, d in extract(pool, (number,), work, ALL, stages).derivations
            ]
            if stages in worth:
                known = derivations
            else:
                assert derivations == known
                skipped += 1
    assert skipped > 5
