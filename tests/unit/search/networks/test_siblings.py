"""Products of one operand as one: proved for their number; what is not equal has no proof."""

from __future__ import annotations

import pytest

from mirage_py.axioms.substitutions.proofs import certificate_of, fault
from mirage_py.networks.ir.builder import GraphBuilder
from mirage_py.pipeline.networks.network_evidence import check_parts
from mirage_py.search.networks.optimize_network import optimize_network
from mirage_py.search.networks.saturate import Limits
from mirage_py.search.networks.sibling_proofs import (
    enlarging_proof,
    merged_products,
    merging_proof,
    stacked_products,
)
from mirage_py.search.networks.substitution import BY_HAND
from mirage_py.targets import target
from mirage_py.ugraph.ir.dtypes import BF16


@pytest.mark.parametrize("is_matmul", [True, False])
@pytest.mark.parametrize("count", [3, 8])
def test_so_many_products_are_one(is_matmul: bool, count: int) -> None:
    left, right = merged_products(is_matmul, count)
    certificate = certificate_of(left, right)
    assert certificate is not None
    assert fault(left, right, certificate) == ""
    assert merging_proof(is_matmul, count) != BY_HAND
    # The same parts in another order.
    exchanged = (right[1], right[0], *right[2:])
    assert certificate_of(left, exchanged) is None
    assert fault(left, exchanged, certificate)


@pytest.mark.parametrize("count", [2, 10])
def test_so_many_products_by_one_weight_are_one(count: int) -> None:
    left, right = stacked_products(count)
    certificate = certificate_of(left, right)
    assert certificate is not None
    assert fault(left, right, certificate) == ""
    exchanged = (right[1], right[0], *right[2:])
    assert fault(left, exchanged, certificate)


def test_inputs_of_a_recurrence_are_multiplied_at_once_and_its_states_in_turn() -> None:
    b = GraphBuilder()
    steps = [b.input(f"x{n}", (1, 64), BF16) for n in range(4)]
    inner, outer = (b.input(n, (64, 64), BF16, constant=True) for n in ("inner", "outer"))
    state = b.input("h", (1, 64), BF16)
    for x in steps:
        sums = b.apply("add", b.apply("matmul", x, inner), b.apply("matmul", state, outer))
        state = b.apply("tanh", sums)
    found = optimize_network(b.build(state), target("h200"), substitutions=())
    assert [str(step.rule) for step in found.steps] == ["4 products by one weight as one"]
    assert found.steps[0].proof.startswith("proved for all sizes")
    products = [n for n in found.graph.nodes if n.operator == "matmul"]
    assert len(products) == 5
    assert check_parts(found.parts).equal


def test_a_kernel_is_enlarged_by_proof() -> None:
    assert enlarging_proof() != BY_HAND


def _step(*kernels: int, padding: tuple[int, ...]) -> str:
    """The proof of the step that merges three convolutions of one image."""
    b = GraphBuilder()
    x = b.input("x", (1, 64, 20, 20), BF16)
    results = []
    for n, (k, p) in enumerate(zip(kernels, padding, strict=True)):
        w = b.input(f"w{n}", (32, 64, k, k), BF16, constant=True)
        results.append(b.apply("conv2d", x, w, padding=p))
    found = optimize_network(
        b.build(*results),
        target("h200"),
        substitutions=(),
        limits=Limits(rounds=1, solver=0.2),
        measure=lambda calls: {
            c.signature: 1.0 if c.operands[1].shape[0] == 96 else 9.0 for c in calls
        },
    )
    (step,) = found.steps
    assert step.rule == "3 convolutions of one operand as one"
    return step.proof


def test_steps_say_what_proves_them() -> None:
    assert _step(3, 3, 3, padding=(0, 0, 0)).startswith("proved for all sizes")
    assert _step(1, 3, 3, padding=(0, 1, 1)).endswith("their enlargement, too")
    # Padded by less than half: no rule enlarges such a kernel.
    assert _step(3, 5, 5, padding=(0, 1, 1)) == BY_HAND
