"""Unsupported operators: each error names the line, the reason and the repair."""

from __future__ import annotations

import inspect

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from mirage_py.errors import UnsupportedError
from mirage_py.frontend.torch import HANDLERS, trace
from mirage_py.frontend.torch.lower.refusals import REFUSALS

X = torch.randn(4, 6)
RECURRENT = nn.GRU(6, 5, 2, bidirectional=True).requires_grad_(False)
NORM = nn.InstanceNorm1d(4, track_running_stats=True).requires_grad_(False)


def a_branch_on_data(x):
    if x.sum() > 0:  # here
        return x * 2
    return x


def an_item(x):
    return x * x.max().item()  # here


def a_loop_over_data(x):
    while x.norm() > 1:  # here
        x = x / 2
    return x


def a_median(x):
    return x.median(dim=-1).values  # here


def a_mode(x):
    return x.mode(-1).values  # here


def unfolded_windows(x):
    return F.unfold(x[None, None], 2)  # here


def a_boolean_index(x):
    return x[x > 0] * 2  # here


def a_long_recurrence(x):
    return RECURRENT(x.reshape(4, 1, 6).repeat(5, 1, 1)[:17])[0]


def a_scatter(x):
    places = torch.zeros(4, 600, dtype=torch.int64)
    return x[:, :1] + x.new_zeros(4, 9).scatter(1, places, 2.0)  # here


def a_running_maximum(x):
    return x.cummax(-1).values  # here


def dropout_in_training(x):
    return F.dropout(x, 0.5, training=True) * 2


def random_numbers(x):
    return x + torch.randn_like(x)  # here


def batch_statistics(x):
    return NORM(x[None])


def a_complex_number(x):
    return torch.view_as_complex(x.view(4, 3, 2)).abs()  # here


def a_product(x):
    return x.repeat(1, 3).prod(-1)  # here


def an_angle(x):
    return torch.atan2(x, x + 1)  # here


def an_inverse(x):
    return torch.linalg.inv(x @ x.T)  # here


def a_write_and_no_result(x):
    x[0] = 0.0


def a_write_of_sums(x):
    return torch.zeros(4, 6).index_reduce_(0, torch.tensor([1, 1]), x[:2], "prod")  # here


def a_new_shape_of_its_input(x):
    return x.t_() * 2


def an_array_of_numpy(x):
    return x * torch.from_numpy(x.numpy())  # here


def its_input_back(x):
    return x


def a_view_of_its_input(x):
    return x.view(2, 12).T  # here


def its_input_beside_a_result(x):
    return x + 1, x[0]  # here


def float64(x):
    return x.double() * 2  # here


def a_common_divisor(x):
    return torch.where(torch.gcd(x.long(), torch.tensor(4)) == 1, x, 0.0)  # here


def another_device(x):
    return (x * 2).to("meta")  # here


def a_strange_norm(x):
    return torch.linalg.vector_norm(x, 3)  # here


def an_empty_slice(x):
    return x[:0].sum() + x  # here


def a_constant(x):
    return torch.ones(3)


def nothing(x):
    del x


def words_of_floats(x):
    return torch.where(x.view(torch.int32) > 5, x, 0.0)  # here


def dropped_attention(x):
    return F.scaled_dot_product_attention(x, x, x, dropout_p=0.1)  # here


# As the user wrote them.
OPERATORS = {
    a_median: "median",
    a_running_maximum: "cummax",
    a_long_recurrence: "gru",
}
FUNCTIONS = [
    fn for fn in list(globals().values()) if inspect.isfunction(fn) and fn.__module__ == __name__
]


def marked_line(fn) -> str:
    lines, first = inspect.getsourcelines(fn)
    marked = [first + n for n, line in enumerate(lines) if "# here" in line]
    return f"{__file__}:{marked[0]}" if marked else ""


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_names_the_line_the_reason_and_the_repair(fn, capfd):
    with pytest.raises(UnsupportedError) as caught:
        trace(fn, X.clone())
    error = caught.value
    assert error.exit_code == 5
    assert error.where.startswith(marked_line(fn))
    assert error.where
    assert error.why
    assert error.repair
    assert error.what in str(error)
    assert fn not in OPERATORS or f"torch operator aten.{OPERATORS[fn]}." in str(error)
    # The error says it all: nothing of torch's own reports reaches the terminal.
    assert capfd.readouterr() == ("", "")


def test_a_layer_of_many_steps_is_refused_as_soon_as_it_is_seen(monkeypatch: pytest.MonkeyPatch):
    """Of 512 steps in 6 layers a trace took a minute: torch runs them in each of its passes."""
    steps: list[object] = []

    class Counted(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            steps.append(func)
            return func(*args, **(kwargs or {}))

    def decomposed(*_: object) -> None:
        raise AssertionError("it is refused in any case")

    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", decomposed)
    with Counted(), pytest.raises(UnsupportedError, match=r"aten\.gru\.input is not supported"):
        trace(lambda x: a_long_recurrence(F.celu(torch.addmm(x, x[:, :4], x))) * 2, X)
    assert len(steps) < 60  # of 68 steps each takes several


def test_a_result_that_is_an_input_is_called_by_its_name():
    def fn(left, right):
        return left + right, right.t()

    with pytest.raises(UnsupportedError, match="a result is the tensor 'right' itself, or a view"):
        trace(fn, X, X)


def test_a_line_inside_a_helper_is_named():
    def outer(x):
        return a_median(x) + 1

    with pytest.raises(UnsupportedError) as caught:
        trace(outer, X)
    assert caught.value.where == marked_line(a_median)


@pytest.mark.parametrize(
    ("tensor", "what"),
    [
        (X.double(), "float64"),
        (X.to(torch.complex64), "complex"),
        (X[:0], "shape"),
        (X.to_sparse(), "dense"),
        (X.clone().requires_grad_(), "requires grad"),
    ],
    ids=["float64", "complex", "empty", "sparse", "grad"],
)
def test_inputs(tensor, what):
    def fn(left):
        return left * 2

    with pytest.raises(UnsupportedError, match=what) as caught:
        trace(fn, tensor)
    assert "input 'left'" in str(caught.value)
    assert caught.value.where == f"{__file__}:{fn.__code__.co_firstlineno}"
    assert caught.value.repair


def test_no_operator_is_both_supported_and_refused():
    assert [row for row in HANDLERS if row.split(".")[1] in REFUSALS] == []


def test_every_refusal_names_an_operator_of_torch():
    assert [name for name in REFUSALS if not hasattr(torch.ops.aten, name)] == []
