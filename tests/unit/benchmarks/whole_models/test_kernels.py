"""The table of the kernels of a step."""

from __future__ import annotations

from benchmarks.whole_models.kernels import kernel_table


def test_each_kernel_has_a_line_with_its_share_of_a_step():
    spans = [("short", 1.0), ("long", 6.0), ("short", 2.0), ("long", 4.0), ("short", 3.0)]
    first, second, last = kernel_table(spans, 2)
    assert first.split() == ["5.0", "us", "1.0", "x", "5.00", "long"]
    assert second.split() == ["3.0", "us", "1.5", "x", "2.00", "short"]
    assert last.split() == ["8.0", "us", "in", "2", "kernels", "a", "step"]
