"""The first k elements of long rows on a GPU, alone and in a compiled graph."""

from __future__ import annotations

import pytest
import torch

from mirage_py.dynamo.backend import mirage_py
from mirage_py.runtime.selection.first_k import first_k

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("largest", [True, False])
def test_elements_and_places(dtype, largest):
    x = torch.randn(5, 50003, device="cuda").to(dtype)
    x[0, 3], x[0, 5:9], x[1] = torch.nan, torch.inf, 0.0
    values, places = first_k(x, 10, largest=largest)
    want = torch.topk(x, 10, -1, largest)[0]
    torch.testing.assert_close(values, want, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(x.gather(-1, places), want, rtol=0, atol=0, equal_nan=True)
    assert places[1].tolist() == list(range(10))


def test_a_compiled_graph_calls_it():
    def kept(x):
        last = torch.topk(x / 0.7, 10)[0][..., -1, None]
        return x.masked_fill(x / 0.7 < last, -torch.inf)

    x = torch.randn(16, 65536, device="cuda")
    with torch.no_grad():
        found = torch.compile(kept, backend=mirage_py, options={"effort": "none"})(x)
    torch.testing.assert_close(found, kept(x), rtol=0, atol=0)
