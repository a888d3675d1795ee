from __future__ import annotations

import re

import pytest
import samples

from mirage_py.ugraph.ir.threads import with_threads
from mirage_py.ugraph.text.mermaid import format_mermaid


@pytest.mark.parametrize("name", sorted(samples.TEXTS))
def test_every_arrow_joins_boxes_that_exist(name):
    text = format_mermaid(samples.ugraph(name))
    assert text.startswith("flowchart TB\n")
    boxes = re.findall(r"^ *(\w+)[\[(]", text, re.MULTILINE)
    assert len(boxes) == len(set(boxes))
    arrows = re.findall(r"^ *(\w+) -->(?:\|[^|]*\|)? (\w+)$", text, re.MULTILINE)
    assert arrows
    assert all(end in boxes for arrow in arrows for end in arrow)
    openings = len(re.findall(r"^ *subgraph ", text, re.MULTILINE))
    assert openings == len(re.findall(r"^ *end$", text, re.MULTILINE))


def test_what_is_shown():
    text = format_mermaid(samples.ugraph("attention"))
    assert 'subgraph k0 ["flash: grid h by 1, t by 4"]' in text
    assert 'subgraph k0_s1 ["loop s by 4"]' in text
    assert 'k0_n5["%5 mask (s #lt;= t + 6)"]' in text
    assert 'k0_n14(["%14 accum_rescaled[1]"])' in text
    assert 'k0_n3 -->|"h, t, s"| k0_n4' in text
    assert 'k0_n19["%19 store O[h, t, e]"]' in text


def test_library_calls_and_thread_graphs():
    text = format_mermaid(samples.ugraph("rms_norm_matmul_library"))
    assert 'k1[["project: matmul"]]' in text
    assert with_threads(samples.ugraph("rms_norm_matmul").kernels[0]).threads
    assert 'subgraph k0_g0 ["thread graph"]' in format_mermaid(samples.ugraph("rms_norm_matmul"))
