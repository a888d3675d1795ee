"""Functions that write to their arguments, or to what they hold: values, memory, identity."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import mirage_py
from mirage_py.errors import MirageWarning, UnsupportedError
from mirage_py.frontend.decorator import CallOptions, SuperoptimizedFunction
from mirage_py.frontend.superoptimized_module import SuperoptimizedModule
from mirage_py.pipeline.cached_pipeline import question_of
from mirage_py.pipeline.pipeline import Request
from mirage_py.reasons import Server
from mirage_py.runtime.eager.eager_source import torch_function
from mirage_py.runtime.store.artifact import OriginalProgram
from mirage_py.verify.evaluate.labels import label_ranges


def as_a_kernel(program, _inputs, _itself):
    """The program in PyTorch; kernels write to memory of their own, in row-major order."""
    function = torch_function(program)

    def kernel(*tensors):
        found = function(*tensors)
        found = found if isinstance(found, tuple) else (found,)
        every = tuple(x.clone(memory_format=torch.contiguous_format) for x in found)
        return every if len(every) > 1 else every[0]

    return kernel


def served(fn, optimizer=as_a_kernel, **options):
    options = {"target": "h200", "strict": True, **options}
    made = SuperoptimizedModule if isinstance(fn, nn.Module) else SuperoptimizedFunction
    return made(fn, CallOptions(**options), optimizer)


def copied(values):
    """The same values in memory of their own, in the same layout."""
    return [
        torch.empty_strided(x.shape, x.stride(), dtype=x.dtype).copy_(x)
        if isinstance(x, torch.Tensor)
        else x
        for x in values
    ]


def accumulated(x, y):
    x.add_(y)
    return x


def scaled_twice(x, y):
    x.mul_(2).add_(y)
    x *= y
    return y - x


def momentum(p, g, m):
    m.lerp_(g, 0.1)
    p.addcdiv_(m, (m * m).sqrt() + 1e-3, value=-0.1)


def token_of_a_cache(q, k, keys, at: int):
    keys[:, at : at + 1] = F.normalize(k, dim=-1)
    return torch.softmax(q @ keys.mT, -1)


def at_a_position(q, k, keys, at):
    keys.index_copy_(1, at, k * 2)
    return torch.softmax(q @ keys.mT, -1), keys


def one_of_each_row(k, keys, slot):
    keys[torch.arange(2), slot] = torch.exp(k)
    return keys.sum(1)


def as_they_come(k, keys, slot):
    keys[torch.arange(2), slot] = k
    return keys * 2


def view_of_the_cache(k, keys):
    keys[:, 2:4] = k * 3
    return keys[:, :4], k * 2


def rolled(x, state):
    state.copy_(torch.roll(state, -1, -1))
    state[:, -1] = x
    return (state * state).sum(-1)


def two_writes(k, v, cache):
    cache[:, 0] = k * 2
    cache[:, 1:3] += v
    return cache.sum(1), k + 1


def write_over_a_write(k, cache):
    cache[:, 0:4] = k.exp()
    cache[:, 2] = 7.0
    return cache.mean()


def every_other(k, cache):
    cache[:, ::2].copy_(k.sigmoid())
    return cache.sum(-1)


def through_views(k, cache):
    cache.mT[1:2].add_(k)
    cache.view(-1)[3:5].zero_()
    return cache + 1


def swapped(a, b):
    before = a.clone()
    a.copy_(b)
    b.copy_(before)
    return a - b


def other_type(x, half):
    half.copy_(x * 2)
    return half.float() + 1


def given_back_changed(a, b):
    b.copy_(a)
    a.sub_(1)
    return b * 2, a


def zeros_where(x):
    x[x > 0] = 0
    return x.exp()


def histogram(weight, bins, total):
    total.index_put_((bins,), weight, accumulate=True)
    return total / total.sum()


def scattered(x, index, v):
    x.scatter_(1, index, v * 2)
    return x.exp()


def at_a_number(k, keys, at):
    keys[:, at] = k * 2
    keys[..., at, 1:3] = 0.5
    keys[0, at, None] = k[:1].exp()
    return keys.sum(1)


def with_a_counter(at, k, keys):
    keys.index_copy_(1, at, k.exp())
    at.add_(1)
    return keys.sum(1)


def view_of_a_part(x, y):
    part = x[:2].exp_()
    return part.view(-1)[::2], y * 2


def out_of_an_operator(x, out):
    torch.mul(x, x, out=out)
    return out


def ints(*values):
    return torch.tensor(values)


torch.manual_seed(0)
R = torch.randn
WRITING = [
    (accumulated, (R(3, 4), R(4))),
    (scaled_twice, (R(3, 4), R(3, 4))),
    (momentum, (R(9), R(9), R(9))),
    (token_of_a_cache, (R(2, 1, 4), R(2, 1, 4), R(2, 6, 4), 3)),
    (at_a_position, (R(2, 1, 4), R(2, 1, 4), R(2, 6, 4), ints(5))),
    (at_a_position, (R(2, 1, 4), R(2, 3, 4), R(2, 6, 4), ints(4, 0, 2))),
    (one_of_each_row, (R(2, 4), R(2, 6, 4), ints(3, -1))),
    (as_they_come, (R(2, 4), R(2, 6, 4), ints(1, 1))),
    (view_of_the_cache, (R(2, 1, 4), R(2, 6, 4))),
    (rolled, (R(3), R(3, 4))),
    (two_writes, (R(2, 4), R(2, 2, 4), R(2, 5, 4))),
    (write_over_a_write, (R(2, 4), R(2, 6))),
    (every_other, (R(2, 4), R(2, 7))),
    (through_views, (R(1, 4), R(4, 4))),
    (swapped, (R(5), R(5))),
    (other_type, (R(2, 3), R(2, 3).half())),
    (given_back_changed, (R(4), R(4))),
    (zeros_where, (R(7),)),
    (histogram, (R(4).exp(), ints(1, 1, 3, 0), R(5).exp())),
    (scattered, (R(2, 5), ints(3, 1).view(2, 1), R(2, 1))),
    (at_a_number, (R(2, 4), R(2, 6, 4), torch.tensor(3))),
    (at_a_number, (R(2, 4), R(2, 6, 4), torch.tensor(-1))),
    (with_a_counter, (ints(0), R(2, 1, 4), R(2, 6, 4))),
    (view_of_a_part, (R(3, 4), R(4))),
    (out_of_an_operator, (R(3), R(3))),
]


def memory(values):
    """Where each tensor lies."""
    return [x.untyped_storage().data_ptr() for x in values if isinstance(x, torch.Tensor)]


def check(fn, given, **options):
    """Results, arguments, and which results are arguments or lie in their memory, are those of
    eager, call after call.
    """
    fast = served(fn, **options)
    mine, theirs = copied(given), copied(given)
    for _ in range(3):
        found, wanted = fast(*mine), fn(*theirs)
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5)
        pairs = [x if isinstance(x, tuple) else (x,) for x in (found, wanted)]
        for ours, other in zip(*pairs, strict=True):
            assert [x is ours for x in mine] == [x is other for x in theirs]
            shared = [
                memory([x])[0] in memory(m)
                for x, m in ((ours, mine), (other, theirs))
                if x is not None
            ]
            assert len(set(shared)) <= 1
    assert fast.entry(*mine).served.by is Server.OURS
    return fast


@pytest.mark.parametrize(("fn", "given"), WRITING, ids=lambda x: getattr(x, "__name__", ""))
def test_it_writes_what_eager_writes(fn, given):
    check(fn, given)


def test_only_the_region_is_an_output_of_the_program():
    keys = R(2, 600, 4)
    program = mirage_py.trace(token_of_a_cache, R(2, 1, 4), R(2, 1, 4), keys, 3)
    assert {o.tensor.name: o.tensor.shape for o in program.outputs} == {
        "out": (2, 1, 600),
        "keys_written": (2, 1, 4),
    }
    program = mirage_py.trace(at_a_position, R(2, 1, 4), R(2, 1, 4), keys, ints(5))
    assert [o.tensor.shape for o in program.outputs] == [(2, 1, 600), (2, 1, 4)]


@pytest.mark.parametrize("layout", ["transposed", "strided", "offset"])
def test_arguments_that_are_not_contiguous(layout):
    whole = R(4, 12)
    view = {
        "transposed": lambda x: x.T[:4],
        "strided": lambda x: x[:, ::3],
        "offset": lambda x: x[:, 5:9],
    }

    def fn(x, y):
        x[:, 1:3].mul_(y)
        x.add_(1)
        return x.sum(1)

    fast, mine, theirs, y = served(fn), whole.clone(), whole.clone(), R(4, 2)
    for _ in range(2):
        torch.testing.assert_close(fast(view[layout](mine), y), fn(view[layout](theirs), y))
        # What lies between the elements of the view stays.
        torch.testing.assert_close(mine, theirs)


def test_tensors_that_overlap_are_left_to_the_function():
    def fn(x, y):
        x.mul_(2)
        return y + x

    fast, mine = served(fn), R(6)
    theirs = mine.clone()
    fast(R(4), R(4))  # there is a kernel for tensors apart
    for a, b in (
        (slice(0, 4), slice(2, 6)),
        (slice(0, 4), slice(0, 4)),
        (slice(2, 6), slice(0, 4)),
    ):
        found, wanted = fast(mine[a], mine[b]), fn(theirs[a], theirs[b])
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(mine, theirs)
    torch.testing.assert_close(fast(mine, mine), fn(theirs, theirs))
    torch.testing.assert_close(mine, theirs)
    x, y = R(4), R(4)
    want = fn(x.clone(), y.clone())
    torch.testing.assert_close(fast(x, y), want)
    assert fast.entry(x, y).served.by is Server.OURS


def test_it_is_first_met_with_tensors_that_overlap():
    def fn(x, y):
        x.mul_(2)
        return y + x

    fast, one = served(fn), R(4)
    torch.testing.assert_close(fast(one, one), fn(*[one.clone() / 2] * 2))
    x, y = R(4), R(4)
    torch.testing.assert_close(fast(x.clone(), y), x * 2 + y)


def test_what_is_timed_writes_and_what_is_checked_does_not():
    asked = []

    def as_it_is(call):
        return call

    def optimizer(program, inputs, itself):
        asked.append((program, itself))
        kernel, given = as_a_kernel(program, inputs, itself), copied(inputs)
        outputs = kernel(*given)
        torch.testing.assert_close(itself(*given), outputs)
        torch.testing.assert_close(given, list(inputs))
        by_itself, by_kernel = copied(given), copied(given)
        itself.timed(*by_itself)
        itself.finish(by_kernel, outputs)
        torch.testing.assert_close(by_itself, by_kernel)
        assert any(not torch.equal(x, y) for x, y in zip(by_itself, given, strict=True))
        # Integers would count up until they leave the tensor.
        assert all(
            torch.equal(x, y)
            for x, y in zip(by_itself, given, strict=True)
            if x.dtype is torch.int64
        )
        torch.testing.assert_close(itself.by(as_it_is)(*given), outputs)
        return kernel

    at, k, keys = ints(0), R(2, 1, 4), R(2, 6, 4)
    fast = served(with_a_counter, optimizer)
    fast(at, k, keys)
    assert at == 1
    program, itself = asked[0]
    request = Request(target="h200", writes=itself.words)
    question = replace(question_of(program, request), measured=True)
    assert question.key != replace(question, writes="").key


def test_nothing_is_written_by_a_search_or_by_a_call_that_fails():
    calls = []

    def optimizer(program, inputs, itself):
        before = copied(inputs)
        calls.extend(itself(*inputs) for _ in range(3))  # as a race does
        torch.testing.assert_close(list(inputs), before)

        def kernel(*tensors):
            if len(calls) == 3:
                calls.append(None)
                raise RuntimeError("the kernel fails")
            return as_a_kernel(program, inputs, itself)(*tensors)

        return kernel

    x, y = R(4), R(4)
    want = x + y
    fast = served(accumulated, optimizer, strict=False)
    torch.testing.assert_close(calls, [])
    with pytest.warns(MirageWarning, match="the kernel fails"):
        assert fast(x, y) is x
    torch.testing.assert_close(x, want)
    for found in calls[:3]:
        torch.testing.assert_close(found, want)


@pytest.mark.parametrize("original", [True, False])
def test_a_write_that_fails_is_not_begun_again(original):
    def fn(x, keys, at):
        x.add_(1)
        keys.index_put_((at,), x * 2)
        return x

    def optimizer(program, inputs, itself):
        if original:
            return OriginalProgram({"eager": itself}, {})
        return as_a_kernel(program, inputs, itself)

    fast = served(fn, optimizer)
    x, keys = R(1), R(5)
    fast(x, keys, ints(2))
    before = x.clone()
    with pytest.raises(IndexError):
        fast(x, keys, ints(9))
    torch.testing.assert_close(x, before + 1)


def test_what_autograd_forbids_is_torchs_error():
    fast = served(accumulated, strict=False)
    x, y = R(4).requires_grad_(), R(4)
    with pytest.warns(MirageWarning), pytest.raises(RuntimeError, match="leaf Variable"):
        fast(x, y)
    with torch.no_grad():
        torch.testing.assert_close(fast(x, y), x)
    assert fast.entry(R(4), y).served.by is Server.OURS
    wide = R(1).expand(4)
    with pytest.raises(RuntimeError, match="single memory location"):
        fast(wide, y)


class Decoder(nn.Module):
    """It holds a cache, and a count of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.register_buffer("keys", torch.zeros(2, 2000, 4))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("seen", torch.zeros(1, dtype=torch.int64))

    def forward(self, x):
        self.keys.index_copy_(1, self.seen, self.norm(x))
        self.mean.mul_(0.9).add_(x.mean((0, 1)), alpha=0.1)
        self.seen += 1
        return self.keys.sum(1) * self.mean, self.mean


@torch.no_grad()
def test_a_module_writes_to_its_buffers():
    module = Decoder()
    twin, kept = copy.deepcopy(module), dict(module.named_buffers())
    fast = served(module)
    for _ in range(3):
        x = R(2, 1, 4)
        found, wanted = fast(x), twin(x)
        torch.testing.assert_close(found, wanted)
        assert found[1] is module.mean
        torch.testing.assert_close(module.state_dict(), twin.state_dict())
    assert all(kept[name] is buffer for name, buffer in module.named_buffers())
    module.mean = torch.ones(4)  # another tensor under the name
    twin.mean = torch.ones(4)
    torch.testing.assert_close(fast(x), twin(x))
    torch.testing.assert_close(module.mean, twin.mean)
    assert fast.entry(x).served.by is Server.OURS


def test_results_that_cannot_be_found_in_what_is_written_are_refused():
    def fn(x, y):
        return x.exp_().unfold(0, 2, 1), y * 2

    with pytest.raises(
        UnsupportedError, match="shares memory with a tensor that the function writ"
    ):
        served(fn)(R(3, 4), R(4))


def number(k, keys, at):
    keys.index_copy_(1, at, k * at)
    return k + 1


def another_range(k, keys, at):
    keys.index_copy_(1, at, k.exp())
    return keys.sum(1) * (torch.arange(9) > at).sum()


def moved_on(k, keys, at):
    keys.index_copy_(1, at + 1, k.exp())
    return keys.sum(1) * (torch.arange(6) > at).sum()


@pytest.mark.parametrize("fn", [number, another_range, moved_on])
def test_positions_that_would_be_drawn_elsewhere_are_refused(fn):
    with pytest.raises(UnsupportedError, match="read as a number, too"):
        served(fn)(R(2, 1, 4), R(2, 6, 4), ints(3))


@pytest.mark.parametrize(("fn", "least"), [(at_a_position, 0), (one_of_each_row, -6)])
def test_the_function_runs_on_every_position_that_is_drawn(fn, least):
    given = next(values for function, values in WRITING if function is fn)
    program = mirage_py.trace(fn, *given)
    at = next(t.name for t in program.inputs if not t.dtype.is_float)
    assert label_ranges(program)[at] == (least, 5)
    for value in (least, 5):
        fn(*copied(given)[:-1], torch.full_like(given[-1], value))


def test_sizes_that_change():
    def fn(x, y):
        x.add_(y)
        return x * y

    def slices(x, y):
        x[: y.shape[0]] = y * 2
        return y + 1

    def sized(program, dims, itself):
        return as_a_kernel(program, (), itself)

    given = SuperoptimizedFunction(
        fn,
        CallOptions(target="h200", strict=True, dynamic={"x": {0: "n"}, "y": {0: "n"}}),
        as_a_kernel,
        sized,
    )
    for n in (5, 5, 8, 1):
        x, y = R(n), R(n)
        mine = x.clone()
        torch.testing.assert_close(given(mine, y), fn(x, y))
        torch.testing.assert_close(mine, x)
    given = SuperoptimizedFunction(
        slices, CallOptions(target="h200", strict=True, dynamic={"y": (0,)}), as_a_kernel, sized
    )
    with pytest.raises(UnsupportedError, match="another program at"):
        given(R(9), R(4))


def test_saved_kernels_write_where_they_are_loaded(tmp_path):
    def never(*_):
        raise AssertionError("it was saved")

    given = R(2, 1, 4), R(2, 1, 4), R(2, 6, 4), 3
    first = served(token_of_a_cache, lambda *asked: OriginalProgram({"eager": asked[2]}, {}))
    first(*copied(given))
    first.save(tmp_path / "saved", *copied(given))
    again = served(token_of_a_cache, never, plan=str(tmp_path / "saved"))
    mine, theirs = copied(given), copied(given)
    torch.testing.assert_close(again(*mine), token_of_a_cache(*theirs))
    torch.testing.assert_close(mine, theirs)
