"""``mirage_py.check``: kernels that are right pass, and kernels that are subtly wrong do not."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import mirage_py
from mirage_py.errors import InputError, VerificationError

X, G = torch.randn(6, 40).half(), torch.randn(40).half()
S = torch.randn(5, 33)
K = torch.randn(9, 33)


def rms(x, g):
    return F.rms_norm(x, (x.shape[-1],), g, 1e-6)


def attention(q, k):
    return F.softmax(q @ k.T, -1) @ k


def hidden(kernel):
    """As a kernel that is launched: torch.export sees nothing of it."""

    def launched(*tensors):
        given = [torch.from_numpy(t.numpy()) for t in tensors]
        return torch.from_numpy(kernel(*given).numpy())

    return launched


def rms_kernel(x, g, eps=1e-6, half_sums=False, skip=0, gain=True):
    y = x if half_sums else x.float()
    mean = (y * y)[:, : y.shape[1] - skip].mean(-1, keepdim=True)
    out = y * torch.rsqrt(mean + eps)
    return (out * g.to(out.dtype) if gain else out).to(x.dtype)


def softmax_kernel(q, k, safe=True):
    s = q @ k.T
    e = torch.exp(s - s.amax(-1, keepdim=True) if safe else s)
    return (e @ k) / e.sum(-1, keepdim=True)


@pytest.mark.parametrize(
    ("reference", "kernel", "inputs"),
    [
        (rms, rms_kernel, (X, G)),
        (attention, softmax_kernel, (S, K)),
    ],
)
def test_a_right_kernel(reference, kernel, inputs):
    open_, closed = (mirage_py.check(reference, k, *inputs) for k in (kernel, hidden(kernel)))
    assert open_.passed, open_
    assert closed.passed, closed
    assert open_.algebra.comparison.equal
    assert open_.proved
    assert closed.algebra.comparison is None
    assert "equality over finite fields: " in closed.not_checked[0]
    assert len(open_.sets) >= 13
    assert max(s.excess for s in open_.sets) < 1
    assert open_.require() is open_


@pytest.mark.parametrize(
    ("reference", "kernel", "inputs", "on"),
    [
        (rms, lambda x, g: rms_kernel(x, g, eps=1e-5), (X, G), "small"),
        (rms, lambda x, g: rms_kernel(x, g, half_sums=True), (X, G), "large"),
        (rms, lambda x, g: rms_kernel(x, g, skip=1), (X, G), "random"),
        (rms, lambda x, g: rms_kernel(x, g, gain=False), (X, G), "random"),
        (rms, lambda x, g: rms_kernel(x, g).index_fill_(0, torch.tensor(5), 0), (X, G), "random"),
        (attention, lambda q, k: softmax_kernel(q, k, safe=False), (S, K), "logits"),
        (attention, lambda q, k: softmax_kernel(q * 1.02, k), (S, K), "random"),
    ],
)
def test_a_subtly_wrong_kernel(reference, kernel, inputs, on: str):
    found = mirage_py.check(reference, hidden(kernel), *inputs)
    assert not found.passed
    assert on in found.numbers.faults, found
    with pytest.raises(VerificationError, match="does not compute"):
        found.require()


def test_what_numbers_do_not_see_the_field_test_does():
    """A small number is lost in rounding on every set, and the functions are two."""

    def shifted(x, g):
        return rms(x, g) + 1e-9

    assert mirage_py.check(rms, hidden(shifted), X, G).passed
    found = mirage_py.check(rms, shifted, X, G)
    assert found.numbers.evidence.passed
    assert not found.passed
    assert "wrong        over finite fields: " in str(found)


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (lambda x, g: 1 / 0, "it raises ZeroDivisionError: division by zero"),
        (lambda x, g: (rms(x, g),), "it returns a tuple of 1, and the function one value"),
        (lambda x, g: rms(x, g).float(), "out is of torch.float32, not torch.float16"),
        (lambda x, g: rms(x, g)[:5], "out has shape [5, 40], not [6, 40]"),
        (lambda x: x, "it raises TypeError"),
        (hidden(lambda x, g: rms(x.add_(1), g)), "it writes to its input x"),
        (lambda x, g: "no tensor", "out is a str, no tensor"),
    ],
)
def test_a_kernel_of_another_kind(kernel, said: str):
    found = mirage_py.check(rms, kernel, X, G)
    assert not found.passed
    assert said in str(found), found


def test_two_calls_that_differ_are_told():
    calls = []

    def unsteady(x):
        calls.append(x)
        out = x.sum(-1)
        out.view(torch.int32)[0] ^= len(calls) % 2  # the last bit of one result
        return out

    found = mirage_py.check(lambda x: x.sum(-1), hidden(unsteady), torch.randn(8, 50))
    assert found.passed
    assert not found.numbers.steady
    assert "two calls on the same inputs gave different bits" in str(found)


def test_the_report_says_it_in_a_few_lines_and_as_json():
    text = str(mirage_py.check(rms, rms_kernel, X, G))
    assert text.startswith("rms_kernel as rms: passed\n  numbers      13 of 14; largest error ")
    assert "fields       equal in 4 trials, and in 4 samples" in text
    assert "proof        equal for all sizes" in text
    assert len(text) < 500
    document = mirage_py.check(rms, hidden(rms_kernel), X, G).document()
    assert json.loads(json.dumps(document))["passed"] is True
    assert [s["name"] for s in document["sets"]][:2] == ["random", "large"]


def test_a_module_with_weights_of_its_own():
    layer = torch.nn.Linear(40, 3).half()
    weight, bias = layer.weight.detach().T.contiguous(), layer.bias.detach()
    right = hidden(lambda x: (x.float() @ weight.float() + bias.float()).half())
    wrong = hidden(lambda x: (x.float() @ weight.float()).half())
    with torch.no_grad():
        assert mirage_py.check(layer, right, X).passed
        assert not mirage_py.check(layer, wrong, X).passed


def test_what_is_no_input_stays_as_it_was_given():
    def scaled(x, k, like):
        return (x * k).to(like.dtype)

    half = torch.zeros(1).half()

    def kernel(x, k, like):
        return hidden(lambda x: (x * k).to(like.dtype))(x)

    assert mirage_py.check(scaled, kernel, S, 3.0, half).passed
    assert not mirage_py.check(scaled, lambda x, k, like: x.half(), S, 3.0, half).passed


def test_a_function_that_writes_to_its_argument():
    def grow(x):
        x.mul_(2)
        return x.sum(-1)

    def kernel(x, by=2):
        x.copy_(torch.from_numpy(x.numpy() * by))
        return torch.from_numpy(x.numpy().sum(-1))

    assert mirage_py.check(grow, kernel, torch.ones(3, 4)).passed
    assert not mirage_py.check(grow, lambda x: kernel(x, 3), torch.ones(3, 4)).passed


SPEC = "B = 4, D = 12\nX[B, D], G[D] : f32\nY[b, d] = X[b, d] * G[d]"


def test_specs_and_programs():
    as_torch = mirage_py.check(SPEC, lambda x, g: x * g)
    assert as_torch.passed, as_torch
    assert not mirage_py.check(SPEC, lambda x, g: x * g.flip(0)).passed
    other = SPEC.replace("X[b, d] * G[d]", "G[d] * X[b, d] + 0")
    equal = mirage_py.check(SPEC, mirage_py.parse(other))
    assert equal.passed
    assert equal.proved
    assert equal.numbers is None
    assert not mirage_py.check(SPEC, other.replace("+ 0", "+ 1e-3")).passed


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((rms, 3, X, G), "'kernel' is 3"),
        ((rms, rms_kernel, X), "the example inputs do not fit the function"),
        ((SPEC, rms_kernel, X), "a program needs no example inputs"),
        ((3, rms_kernel), "'reference' is 3"),
    ],
)
def test_wrong_arguments(arguments, said: str):
    with pytest.raises(InputError, match=said):
        mirage_py.check(*arguments)


def test_the_page_shows_what_it_prints(tmp_path, capsys, monkeypatch):
    page = Path(__file__).parents[3] / "docs/how-to/check_your_kernel.md"
    blocks = r"^```(?:python)?\n(.*?)^```"
    script, shown = re.findall(blocks, page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    (tmp_path / "example.py").write_text(script, encoding="utf-8")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    runpy.run_path(str(tmp_path / "example.py"))
    printed = capsys.readouterr().out
    # Digits of a time or an error may differ between machines.
    without = re.compile(r"-?\d+\.\d+(e[+-]?\d+)?")
    assert without.sub("#", printed) == without.sub("#", shown)
