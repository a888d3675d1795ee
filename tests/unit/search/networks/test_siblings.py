"""Products of one operand as one: proved for their number; what is not equal has no proof."""

from __future__ import annotations

import pytest

from mirage_py.axioms.substitutions.proofs import certificate_of, fault
from mirage_py.networks.ir.builder import GraphBuilder
from mirage_py.search.networks.optimize_network import optimize_network
from mirage_py.search.networks.saturate import Limits
from mirage_py.search.networks.sibling_proofs import (
    enlarging_proof,
    merged_products,
    merging_proof,
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
