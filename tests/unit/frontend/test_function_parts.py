"""Functions that are no program, through the decorator: in parts, or as they stand."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from nightly import NIGHTLY
from torch import nn

from mirage_py.errors import MirageWarning, UnsupportedError
from mirage_py.frontend.decorator import CallOptions, SuperoptimizedFunction, superoptimize
from mirage_py.reasons import Code, Server
from mirage_py.runtime.eager.eager_source import torch_function


@pytest.fixture(autouse=True)
def _fresh_dynamo():
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def as_a_kernel(program, _inputs, _itself):
    """The program in PyTorch; kernels write to memory of their own, in row-major order."""
    function = torch_function(program)

    def kernel(*tensors):
        found = function(*tensors)
        found = found if isinstance(found, tuple) else (found,)
        every = tuple(x.clone(memory_format=torch.contiguous_format) for x in found)
        return every if len(every) > 1 else every[0]

    return kernel


@pytest.fixture
def optimised():
    def make(fn, **options):
        options = {"target": "h200", **options}
        return SuperoptimizedFunction(fn, CallOptions(**options), as_a_kernel)

    return make


W = torch.randn(16, 32) / 4
V = torch.randn(32, 16) / 6


def expert_of_each_row(x, router, up, down):
    scores = F.softmax(x @ router, -1)
    weight, which = scores.max(-1)
    return torch.bmm(F.gelu(torch.bmm(x[:, None], up[which])), down[which])[:, 0] * weight[:, None]


def nucleus(logits, p: float = 0.8):
    probabilities = F.softmax(logits / 0.7, -1)
    ordered, places = probabilities.sort(-1, descending=True)
    kept = ordered * (ordered.cumsum(-1) - ordered < p)
    return torch.zeros_like(logits).scatter(-1, places, kept / kept.sum(-1, keepdim=True))


def lookup_then_norm(ids, table):
    return F.rms_norm(torch.lgamma(table[ids].abs() + 1) * 4, (table.shape[-1],)) @ W


def append_to_cache(k, cache, length):
    k = F.normalize(k @ W, dim=-1)
    cache[length : length + k.shape[0]] = k
    return (cache[: length + k.shape[0]] @ k.T).softmax(0)


def edges_to_nodes(messages, receivers, nodes):
    gate = torch.sigmoid(messages @ W)
    return nodes.index_add(0, receivers, gate) / 2


def spectrum(x):
    y = F.silu(x @ W)
    return torch.log1p(torch.fft.rfft(y, dim=-1).abs()) * 3


def histogram_of_codes(x, book):
    distance = (x.square().sum(-1, keepdim=True) - 2 * x @ book.T + book.square().sum(-1)).relu()
    code = distance.argmin(-1)
    return book[code], code, torch.bincount(code, minlength=book.shape[0])


def only_the_confident(x):
    p = F.softmax(x @ W, -1)
    return p[p.amax(-1) > 0.2]


def orthogonal(x):
    q, r = torch.linalg.qr(F.tanh(x.T @ x))
    return q @ r * 2 + 1


def boxes(scores, corners):
    keep = torch.sigmoid(scores).topk(3).indices
    return corners[keep] * torch.tensor([2.0, 1.0])


def nested(batch):
    y = F.silu(batch["x"] @ W) @ V
    return {"y": y, "order": y.sum(-1).argsort(), "same": batch["x"]}


def straight_through(x):
    return x + (torch.round(x * 4) / 4 - x).detach() + x.flip(0).unique().sum()


def masked_mean(x, lengths):
    mask = torch.arange(x.shape[1]) < lengths[:, None]
    return (F.gelu(x) * mask[..., None]).sum(1) / lengths[:, None]


def running(x, state: list):
    state.append(float(x.sum()))
    return F.softmax(x * len(state), -1)


def until_small(x):
    steps = 0
    while x.abs().max() > 0.5:
        x, steps = torch.tanh(x) * 0.7, steps + 1
    return x, steps


def through_numpy(x):
    y = F.silu(x @ W)
    return torch.from_numpy(y.numpy().copy()) + 1


def complex_rotation(x, angles):
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


def half_in_bits(x):
    return (F.silu(x @ W).to(torch.bfloat16).view(torch.int16) >> 7) & 0xFF


def distinct_rows(x):
    return (F.relu(x) * 2 + 1).nonzero().shape[0] + x.mean()


def sampled(x):
    return torch.multinomial(F.softmax(x @ W, -1), 2, replacement=True)


def rows(*shape):
    return torch.randn(*shape)


FUNCTIONS = [
    (
        expert_of_each_row,
        (rows(5, 16), rows(16, 4), rows(4, 16, 32), rows(4, 32, 16)),
    ),
    (nucleus, (rows(3, 40),)),
    (lookup_then_norm, (torch.tensor([3, 1, 1]), rows(7, 16))),
    (append_to_cache, (rows(2, 16), rows(9, 32), 4)),
    (edges_to_nodes, (rows(6, 16), torch.tensor([0, 1, 1, 3, 0, 2]), rows(4, 32))),
    (spectrum, (rows(4, 16),)),
    (histogram_of_codes, (rows(6, 8), rows(5, 8))),
    (only_the_confident, (rows(9, 16),)),
    (orthogonal, (rows(4, 6),)),
    (boxes, (rows(8), rows(8, 2))),
    (nested, ({"x": rows(4, 16)},)),
    (straight_through, (rows(3, 4),)),
    (masked_mean, (rows(3, 5, 4), torch.tensor([2, 5, 1]))),
    (running, (rows(3, 4), [])),
    (until_small, (rows(3, 4) * 3,)),
    (through_numpy, (rows(3, 16),)),
    (complex_rotation, (rows(3, 8), rows(3, 4))),
    (half_in_bits, (rows(3, 16),)),
    (distinct_rows, (rows(3, 4),)),
    (sampled, (rows(3, 16),)),
]


def copied(values):
    return torch.utils._pytree.tree_map(
        lambda x: x.clone() if isinstance(x, torch.Tensor) else x, values
    )


# One of each kind: writes, integers, breaks by data and by Python, objects, random numbers.
SAMPLE = (append_to_cache, lookup_then_norm, until_small, nested, running, sampled)
TRIED = [(fn, given) for fn, given in FUNCTIONS if NIGHTLY or fn in SAMPLE]


@pytest.mark.parametrize(("fn", "given"), TRIED, ids=[fn.__name__ for fn, _ in TRIED])
def test_functions_that_users_write(optimised, fn, given):
    served, mine, theirs = optimised(fn), copied(given), copied(given)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            torch.manual_seed(1)
            found = served(*mine)
            torch.manual_seed(1)
            wanted = fn(*theirs)
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
            # What it leaves in its arguments.
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    entry = next(iter(served._tables._entries.values()))
    words = served.dispatch_table()
    assert f"-> {entry.served.by}: " in words
    if entry.instead is not None:
        assert entry.served.by in (Server.IN_PARTS, Server.EAGER)
        why = str(entry.decided.why)
        assert str(entry.served).endswith(why)
        assert entry.source == ("searched" if entry.served.by is Server.IN_PARTS else "fallback")


def test_most_are_served_in_parts(optimised):
    kinds = []
    for fn, given in FUNCTIONS[:6]:
        served = optimised(fn)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            served(*copied(given))
        kinds += [e.served.by for e in served._tables._entries.values()]
    assert kinds.count(Server.EAGER) <= 1
    assert Server.IN_PARTS in kinds


def test_the_first_call_says_what_serves(optimised):
    served = optimised(lookup_then_norm)
    ids, table = torch.tensor([3, 1, 1]), rows(7, 16)
    before = served.entry(ids, table).served
    assert (before.by, before.why.code) == (Server.EAGER, Code.AT_FIRST_CALL)
    with pytest.warns(MirageWarning, match="is served by mirage_py in parts") as caught:
        served(ids, table)
    assert caught[0].filename == __file__
    served(ids, table)  # warnings are errors here: there is no second one
    words = served.explain(ids, table)
    assert "served by: mirage_py in parts: " in words
    assert "left to eager" in words
    assert str(served.entry(ids, table).decided.why) in words


def test_strict_calls_nothing(optimised):
    with pytest.raises(UnsupportedError):
        optimised(lookup_then_norm, strict=True)(torch.tensor([3]), rows(7, 16))


def test_other_signatures_are_decided_apart(optimised):
    def fn(x, w):
        return torch.softmax(F.silu(x @ w) * 2, -1)

    served = optimised(fn)
    x, w = rows(4, 6), rows(6, 8)
    torch.testing.assert_close(served(x, w), fn(x, w))
    with pytest.warns(MirageWarning), pytest.raises(RuntimeError, match="mat1 and mat2 shapes"):
        served(x, rows(7, 8))
    with pytest.warns(MirageWarning, match="requires grad"):
        served(x.clone().requires_grad_(), w).sum().backward()
    with pytest.warns(MirageWarning, match="float64"):
        found = served(x.double(), w.double())
    torch.testing.assert_close(found, fn(x.double(), w.double()))
    torch.testing.assert_close(served(x, w), fn(x, w))
    by = [e.served.by for e in served._tables._entries.values()]
    assert by == [Server.OURS, Server.EAGER, Server.EAGER, Server.EAGER]


def test_a_module_with_a_hole(optimised):
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.norm = nn.Linear(16, 32), nn.LayerNorm(16)
            self.register_buffer("seen", torch.zeros(1, dtype=torch.int64))

        def forward(self, x):
            self.seen += x.shape[0]
            return torch.lgamma(F.gelu(self.up(self.norm(x))).abs() + 1)

    layer, twin = Layer().eval(), Layer().eval()
    twin.load_state_dict(layer.state_dict())
    served, x = optimised(layer), rows(5, 16)
    with torch.no_grad():
        with pytest.warns(MirageWarning, match="in parts"):
            torch.testing.assert_close(served(x), twin(x), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(served(x), twin(x), rtol=1e-4, atol=1e-5)
    assert layer.seen == twin.seen == 10


def test_sizes_that_change(optimised):
    served = optimised(lookup_then_norm, dynamic={"ids": {0: "tokens"}})
    table = rows(50, 16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in (3, 5, 9, 4, 17, 3):
            ids = torch.arange(n) % 7
            torch.testing.assert_close(
                served(ids, table), lookup_then_norm(ids, table), rtol=1e-4, atol=1e-5
            )
    assert "mirage_py in parts" in served.dispatch_table()


def test_without_an_optimizer_of_ones_own_a_cpu_is_served_by_eager():
    served = superoptimize(lookup_then_norm)
    ids, table = torch.tensor([3, 1]), rows(7, 16)
    with pytest.warns(MirageWarning, match="falls back to eager: the arguments are on cpu"):
        torch.testing.assert_close(served(ids, table), lookup_then_norm(ids, table))
    assert served.entry(ids, table).served.why.code is Code.NOT_ON_A_GPU
    assert served.entry(ids, table).instead is None
