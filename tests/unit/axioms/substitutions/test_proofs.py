"""Right rules are proved for all sizes; prover and field test both refuse wrong ones."""

from __future__ import annotations

from copy import deepcopy

import pytest
from unit.axioms.substitutions.expressions import (
    a,
    add,
    b,
    concat,
    conv,
    enlarge,
    matmul,
    mul,
    pieces,
    pool,
    relu,
    s,
    sides,
    transpose,
    x,
    y,
)

from mirage_py.axioms.substitutions.expression import Expr
from mirage_py.axioms.substitutions.proofs import certificate_of, fault
from mirage_py.search.substitutions.instances import differs

RIGHT = {
    "products that share the left operand": (
        [matmul(x, a), matmul(x, b)],
        pieces(1, matmul(x, concat(1, a, b))),
    ),
    "sum of products": (
        [matmul(concat(1, x, y), concat(0, a, b))],
        [add(matmul(x, a), matmul(y, b))],
    ),
    "three products": ([matmul(matmul(x, a), b)], [matmul(x, matmul(a, b))]),
    "transposed product": ([transpose(matmul(x, a))], [matmul(transpose(a), transpose(x))]),
    "scaled weight": ([mul(matmul(x, a), s)], [matmul(x, mul(a, s))]),
    "borders that cross": (
        [concat(0, concat(1, x, y), concat(1, a, b))],
        [concat(1, concat(0, x, a), concat(0, y, b))],
    ),
    "convolutions of one image": (
        [conv(x, a), conv(x, b)],
        pieces(1, conv(x, concat(0, a, b))),
    ),
    "convolutions by one kernel": (
        [relu(conv(x, a)), relu(conv(y, a))],
        pieces(0, relu(conv(concat(0, x, y), a))),
    ),
    "sum of convolutions": (
        [conv(concat(1, x, y), concat(1, a, b))],
        [add(conv(x, a), conv(y, b))],
    ),
    "two groups": (
        [concat(1, conv(x, a), conv(y, b))],
        [conv(concat(1, x, y), concat(0, a, b), groups=2)],
    ),
    "kernels of two sizes": (
        [conv(x, a, "same"), conv(x, b, "same")],
        pieces(1, conv(x, concat(0, enlarge(a), b), "same")),
    ),
    "pools of joined channels": (
        [concat(1, pool("max", x), pool("max", y))],
        [pool("max", concat(1, x, y))],
    ),
}

WRONG = {
    "transposed squares": ([transpose(matmul(x, a))], [matmul(transpose(x), transpose(a))]),
    "order of parts": ([concat(1, x, y)], [concat(1, y, x)]),
    "parts the wrong way round": (
        [matmul(x, a), matmul(x, b)],
        pieces(1, matmul(x, concat(1, a, b)))[::-1],
    ),
    "kernels of the other group": (
        [concat(1, conv(x, a), conv(y, b))],
        [conv(concat(1, x, y), concat(0, b, a), groups=2)],
    ),
    "relu of a sum": ([relu(add(x, y))], [add(relu(x), relu(y))]),
    "a sum in the place of joined rows": ([matmul(x, add(a, b))], [matmul(x, matmul(a, b))]),
}


@pytest.mark.parametrize("name", RIGHT)
def test_it_is_proved_and_the_proof_replays(name: str) -> None:
    left, right = sides(*RIGHT[name])
    certificate = certificate_of(left, right)
    assert certificate is not None
    assert fault(left, right, certificate) == ""
    assert certificate["needs"] == []
    assert not differs(left, right)


@pytest.mark.parametrize("name", WRONG)
def test_it_is_refused_by_the_prover_and_by_the_field_test(name: str) -> None:
    left, right = sides(*WRONG[name])
    assert certificate_of(left, right) is None
    assert differs(left, right)


def test_groups_of_unequal_size_are_refused() -> None:
    """Two groups and one, with other numbers of results, are no convolution of three groups."""

    def made(o: str) -> tuple[list[Expr], list[Expr]]:
        shapes = {
            "x": (("n",), ("c", "c"), ("h",)),
            "y": (("n",), ("c",), ("h",)),
            "a": (("p", "p"), ("c",), ("r",)),
            "b": ((o,), ("c",), ("r",)),
        }
        i = {name: Expr("input", (name, shape)) for name, shape in shapes.items()}
        left = concat(1, conv(i["x"], i["a"], groups=2), conv(i["y"], i["b"], groups=1))
        whole = concat(1, i["x"], i["y"]), concat(0, i["a"], i["b"])
        return [left], [conv(*whole, groups=3)]

    assert certificate_of(*made("p")) is not None
    assert not differs(*made("p"))
    assert certificate_of(*made("q")) is None
    # There are sizes at which three groups are possible; there the sides differ.
    assert differs(*made("q"), trials=2)


def test_an_enlarged_kernel_needs_padding_by_half() -> None:
    shape = (("o",), ("c",), ("r",))
    image, kernel = Expr("input", ("x", (("n",), ("c",), ("h",)))), Expr("input", ("a", shape))
    large = Expr("enlarge", ("e",), (kernel,))
    for window, right in (("same", True), ("unit", True), ("any", False)):
        both = [conv(image, kernel, window, 1)], [conv(image, large, window, 1)]
        assert (certificate_of(*both) is not None) == right
        assert differs(*both) != right


def test_a_certificate_proves_no_other_rule() -> None:
    left, right = sides(*RIGHT["three products"])
    certificate = certificate_of(left, right)
    assert certificate is not None
    other = sides(*RIGHT["transposed product"])
    assert fault(*other, certificate)
    changed = deepcopy(dict(certificate))
    changed["outputs"][0]["steps"].pop()
    assert fault(left, right, changed)
    assert fault((right[0], left[0]), (left[0], right[0]), certificate)
