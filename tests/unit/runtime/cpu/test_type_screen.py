"""The type screen: what kernels round on their way, beside eager PyTorch."""

from __future__ import annotations

import pytest
import several_kernels

from mirage_py.runtime.cpu import type_screen
from mirage_py.runtime.cpu.type_screen import TypeScreen
from mirage_py.search.space.splits import at_splits
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.text.text_form import parse_ugraph

# Attention with normalised queries and keys, %16 being the logits.
ATTENTION = """
ugraph attention
dim t = 1024
dim d = 64
dim s = 4096
dim e = 64
input Q[1024, 64] : {dtype}
input K[4096, 64] : {dtype}
input V[4096, 64] : {dtype}
output O[1024, 64] : {dtype}
program {{
  %0 = load Q[t, d]
  %1 = const 1e-06
  %2 = square %0 : [t, d]
  %3 = sum[d] %2 : [t]
  %4 = size d
  %5 = div %3, %4 : [t]
  %6 = add %5, %1 : [t]
  %7 = sqrt %6 : [t]
  %8 = div %0, %7 : [t, d]
  %9 = load K[s, d]
  %10 = square %9 : [d, s]
  %11 = sum[d] %10 : [s]
  %12 = div %11, %4 : [s]
  %13 = add %12, %1 : [s]
  %14 = sqrt %13 : [s]
  %15 = div %9, %14 : [d, s]
  %16 = matmul[d] %8, %15 : [t, s]
  %17 = exp %16 : [t, s]
  %18 = sum[s] %17 : [t]
  %19 = div %17, %18 : [t, s]
  %20 = load V[s, e]
  %21 = matmul[s] %19, %20 : [t, e]
  return O[t, e] = %21
}}
kernel attention {{
  grid t by {tile}, e by 64
  %0 = load Q[t, d]  # t <- grid 0
  %1 = const 1e-06
  %2 = square %0 : [t, d]
  %3 = sum[d] %2 : [t]
  %4 = size d
  %5 = div %3, %4 : [t]
  %6 = add %5, %1 : [t]
  %7 = sqrt %6 : [t]
  %8 = div %0, %7 : [t, d]
  %9 = load K[s, d]
  %10 = square %9 : [d, s]
  %11 = sum[d] %10 : [s]
  %12 = div %11, %4 : [s]
  %13 = add %12, %1 : [s]
  %14 = sqrt %13 : [s]
  {logits}
  %17 = max[s] %16 : [t]
  %18 = shift %17 : [t]
  %19 = sub %16, %18 : [t, s]
  %20 = exp %19 : [t, s]
  %21 = load V[s, e]  # e <- grid 1
  %22 = matmul[s] %20, %21 : [t, e]
  %23 = sum[s] %20 : [t]
  %24 = div %22, %23 : [t, e]
  store O[t, e] = %24  # t -> grid 0, e -> grid 1
}}
"""
BEFORE = "%15 = div %9, %14 : [d, s]\n  %16 = matmul[d] %8, %15 : [t, s]"
AFTER = "%15 = matmul[d] %8, %9 : [t, s]\n  %16 = div %15, %14 : [t, s]"


def plan(logits: str, tile: int = 64, dtype: str = "f16") -> Plan:
    ugraph = parse_ugraph(ATTENTION.format(logits=logits, tile=tile, dtype=dtype), "test")
    return Plan(ugraph, (LaunchConfig(),), "triton")


def test_keys_rounded_after_their_norm_are_in_doubt_where_all_are_far_from_zero() -> None:
    """On an H200 the numerical check refused all 51 plans that were tried, with this reason."""
    screen = TypeScreen()
    assert screen.doubt(plan(BEFORE)).startswith("far inputs: O has a relative error of 0.00")
    assert not screen.doubt(plan(AFTER))


@pytest.mark.parametrize(("tile", "dtype"), [(8, "f16"), (64, "f32")])
def test_what_is_not_rounded_on_the_way_is_in_no_doubt(tile: int, dtype: str) -> None:
    """Products of few rows run in float32."""
    screen = TypeScreen()
    found = screen.doubt(plan(BEFORE, tile, dtype))
    assert not found


def test_plans_that_differ_in_tiles_alone_are_evaluated_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = TypeScreen()
    faults = iter(["far", "once more"])
    monkeypatch.setattr(screen, "_fault", lambda *_: next(faults))
    assert {screen.doubt(plan(BEFORE, tile)) for tile in (16, 32, 64)} == {"far"}


def test_plans_that_are_one_at_small_sizes_are_evaluated_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As those with other numbers of splits."""
    screen, evaluated = TypeScreen(), []
    family = several_kernels.ugraph("split_attention")
    monkeypatch.setattr(type_screen, "_small", lambda _: (family.program, family))
    monkeypatch.setattr(screen, "_fault_of", lambda *small: str(evaluated.append(small)))
    options = (LaunchConfig(),) * len(family.kernels)
    plans = [Plan(at_splits(family, {"s": n}), options, "triton") for n in (2, 4, 8)]
    assert {screen.doubt(one) for one in plans} == {"None"}
    assert len({type_screen.formula_of(one) for one in plans}) == 3
    assert len(evaluated) == 1
