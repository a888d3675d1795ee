"""Models with equal layers have a region of the same content each: any of them may go first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from mirage_py.dynamo.serve.region_call import RegionCall
from mirage_py.dynamo.serve.region_op import region_operator, register
from mirage_py.dynamo.serve.service import Service
from mirage_py.reasons import Code, reason


def call(traced: Callable[..., Any]) -> RegionCall:
    module = traced(lambda x: (x.relu() + 1,), torch.randn(3))
    nothing = Service(None, reason(Code.OTHER, "as it is"))
    return RegionCall("the same content", module, lambda *_: nothing)


@pytest.mark.parametrize("newer_goes", [True, False])
def test_a_region_is_known_while_somebody_holds_one(traced: Callable[..., Any], newer_goes: bool):
    older, newer = call(traced), call(traced)
    register(older)
    register(newer)
    x = torch.randn(3)
    if newer_goes:
        del newer
    else:
        del older
    (result,) = region_operator()([x], [], "t", "the same content")
    torch.testing.assert_close(result, x.relu() + 1)
