from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

INF = float("inf")


def causal_by_arange(s):
    i = torch.arange(s.shape[-2])[:, None]
    j = torch.arange(s.shape[-1])[None, :]
    return torch.where(j <= i, s, -INF)


def causal_by_tril(s):
    return s.masked_fill(torch.tril(torch.ones(s.shape[-2:])) == 0, -INF)


def causal_by_bool_tril(s):
    keep = torch.ones(s.shape[-2:], dtype=torch.bool).tril()
    return s.masked_fill(~keep, -INF)


def causal_by_added_triu(s):
    return s + torch.full(s.shape[-2:], -INF).triu(1)


def causal_by_triu_of_ones(s):
    return s.masked_fill(torch.triu(torch.ones(s.shape[-2:]), diagonal=1).bool(), -INF)


def causal_by_zeros(s):
    bias = torch.zeros(s.shape[-2:]).masked_fill(torch.ones_like(s[0]).tril().logical_not(), -INF)
    return s + bias


def scaled_after_the_mask(s):
    return causal_by_arange(s) / 4.0 * 2.0


CAUSAL = [
    causal_by_arange,
    causal_by_tril,
    causal_by_bool_tril,
    causal_by_added_triu,
    causal_by_triu_of_ones,
    causal_by_zeros,
    scaled_after_the_mask,
]


@pytest.mark.parametrize("mask", CAUSAL)
def test_every_spelling_of_a_causal_mask_becomes_one_predicate(agrees, mask):
    traced = agrees(lambda s: F.softmax(mask(s), -1), torch.randn(2, 5, 7))
    ops = [n.op for n in traced.program.nodes]
    assert ops.count("mask") == 1
    assert "where" not in ops
    assert -math.inf not in [n.attr for n in traced.program.nodes]


LOWEST = torch.finfo(torch.float32).min


def lowest_by_full(s):
    return s + torch.full(s.shape[-2:], LOWEST).triu(1)


def lowest_by_product(s):
    return s + (1.0 - torch.tril(torch.ones(s.shape[-2:]))) * LOWEST


def lowest_by_comparison(s):
    return s + LOWEST * (torch.arange(s.shape[-1]) > torch.arange(s.shape[-2])[:, None])


def lowest_by_fill(s):
    return s + torch.full(s.shape[-2:], LOWEST).masked_fill_(torch.ones_like(s[0]).tril() > 0.5, 0)


LOWEST_MASKS = [lowest_by_full, lowest_by_product, lowest_by_comparison, lowest_by_fill]


@pytest.mark.parametrize("mask", LOWEST_MASKS)
def test_every_spelling_of_a_mask_of_lowest_numbers_chooses_it_where_nothing_is_kept(agrees, mask):
    nodes = agrees(lambda s: F.softmax(mask(s), -1), torch.randn(2, 5, 5)).program.nodes
    (choice,) = (n for n in nodes if n.op == "where")
    condition, kept, low = (nodes[a] for a in choice.args)
    assert (condition.op, kept.attr, low.attr) == ("mask", 0.0, LOWEST)
    assert "mul" not in [n.op for n in nodes]


def test_sliding_windows(agrees):
    def fn(s):
        i, j = torch.arange(6)[:, None], torch.arange(6)
        near = (i - j).abs() < 3
        behind = (j <= i) & (j > i - 3)
        outside = ((i - j).abs() >= 2) | ~behind
        return (
            F.softmax(s.masked_fill(~near, -INF), -1),
            F.softmax(torch.where(behind, s, -INF), -1),
            s.masked_fill(outside, 0.0),
            torch.where(near ^ behind, s, s * 2),
        )

    traced = agrees(fn, torch.randn(6, 6))
    assert "abs" not in [n.op for n in traced.program.nodes]


def test_written_out_softmax_of_masked_scores(agrees):
    def fn(s):
        masked = causal_by_tril(s)
        e = torch.exp(masked - masked.amax(-1, keepdim=True))
        return e / e.sum(-1, keepdim=True)

    traced = agrees(fn, torch.randn(4, 4))
    assert -math.inf not in [n.attr for n in traced.program.nodes]


def test_logsumexp_of_masked_scores(agrees):
    agrees(lambda s: torch.logsumexp(causal_by_arange(s), -1), torch.randn(4, 4))


def test_masks_of_values(agrees, x, y):
    def fn(a, b):
        positive = a > 0
        return (
            torch.where(positive, a, b),
            torch.where(positive & (b < 0), a, 0.0),
            torch.where(positive | ~(b >= 0.5), 1.0, b),
            torch.where(torch.logical_xor(positive, b > 0), a, b),
            (a != b) * a + (a == b).float() + (a <= b) * b,
            F.softmax(a.masked_fill(b > 0.5, -INF), -1),
            torch.exp(torch.where(positive, -INF, a)),
            a.logical_and(b) * 2.0,
        )

    agrees(fn, x, y)


def test_masks_given_as_tensors(agrees, x):
    keep = torch.rand(5, 7) > 0.5
    keep[:, 0] = True
    traced = agrees(
        lambda a, m: (F.softmax(a.masked_fill(~m, -INF), -1), torch.where(m, a, 0.0)), x, keep
    )
    assert str(traced.program.inputs[1].dtype) == "bool"
    assert -math.inf not in [n.attr for n in traced.program.nodes]


def test_triangles_of_values(agrees):
    agrees(
        lambda a: (a.tril(), a.triu(), a.tril(-2), a.triu(3), a.mT.tril(1)), torch.randn(2, 5, 7)
    )


def test_positions_as_numbers(agrees):
    def fn(a):
        n = torch.arange(6)
        return (
            a * n,
            a + torch.arange(2, 14, 2) / 3,
            a * torch.arange(6, dtype=torch.float32).sqrt(),
            a - (n[:, None] - n).abs()[2],
            torch.where(n // 2 % 2 == 0, a, -a),
            torch.where(torch.arange(1, 7) * 2 > 5, a, 0.0),
            a * torch.arange(0.5, 3.5, 0.5),
            a + n.to(a.dtype),
        )

    agrees(fn, torch.randn(4, 6), single=True)


def test_alibi(agrees):
    def fn(q, k, slopes):
        i, j = torch.arange(q.shape[-2]), torch.arange(k.shape[-2])
        bias = -slopes[:, None, None] * (i[:, None] - j).abs()
        return F.softmax(q @ k.mT + bias, -1)

    agrees(fn, torch.randn(3, 4, 5), torch.randn(3, 6, 5), torch.rand(3))


def test_masks_that_keep_all_or_nothing(agrees):
    def fn(a):
        every = torch.ones(4, 4, dtype=torch.bool)
        return torch.where(every, a, 0.0) + torch.where(~every, 5.0, a), a.masked_fill(
            every & ~every, -INF
        ) * 2

    traced = agrees(fn, torch.randn(4, 4))
    assert "where" not in [n.op for n in traced.program.nodes]


def test_truth_values_are_results(agrees):
    traced = agrees(lambda x: (x > 0, (x > 0) & (x < 1)), torch.randn(3, 5))
    assert [o.tensor.dtype.name for o in traced.program.outputs] == ["bool", "bool"]
