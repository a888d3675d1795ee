"""Functions that PyTorch has for floating point alone, of whole numbers."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from mirage_py.frontend.torch.trace import trace
from mirage_py.runtime.eager.eager_source import torch_function


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.bool])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.float().softmax(-1),
        lambda x: F.layer_norm(x.float(), (5,)),
        lambda x: F.rms_norm(x.float(), (5,), eps=1e-5),
    ],
    ids=["softmax", "layer norm", "rms norm"],
)
def test_whole_numbers_are_numbers_to_softmax_and_norms(function, dtype):
    x = torch.arange(20).reshape(4, 5).remainder(3).to(dtype)
    torch.testing.assert_close(torch_function(trace(function, x))(x), function(x))
