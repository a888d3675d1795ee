"""The table of kernels of a step: what overlapping kernels add, and rows of a trace."""

from __future__ import annotations

from benchmarks.whole_models.kernels import Span, kernel_table, spans_of


def test_a_kernel_adds_what_it_takes_beyond_the_end_of_those_before():
    spans = [Span("b", 6.0, 6.0), Span("a", 0.0, 10.0), Span("a", 12.0, 4.0), Span("c", 13.0, 1.0)]
    first, second, third, last = kernel_table(spans, 2)
    assert first.split() == ["7.0", "us", "1.0", "x", "7.00", "(takes", "7.00)", "a"]
    assert second.split()[:5] == ["1.0", "us", "0.5", "x", "2.00"]
    assert third.split()[-3:] == ["(takes", "1.00)", "c"]
    assert last.split() == ["8.0", "us", "in", "2", "kernels", "a", "step"]


def test_rows_are_kernels_with_their_blocks_and_no_annotations():
    sizes = {"grid": [128, 1, 1], "block": [64, 2, 1]}
    events = [
        {"cat": "kernel", "name": "region", "ts": 1.0, "dur": 2.0, "args": sizes},
        {"cat": "gpu_user_annotation", "name": "region", "ts": 0.0, "dur": 9.0},
        {"cat": "gpu_memcpy", "name": "copy", "ts": 4.0, "dur": 1.0},
    ]
    assert spans_of(events) == [Span("region 128 x 64*2", 1.0, 2.0), Span("copy", 4.0, 1.0)]
