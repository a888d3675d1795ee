"""Source text as HTML keeps every character, and no text of a source becomes a tag."""

from __future__ import annotations

import re
from html import unescape

import pytest

from mirage_py.report.page.highlight import highlighted

PYTHON = 'def f(x):\n    """Two\n    lines <b>."""\n    return x < 2  # <script>\n'
CUDA = "__global__ void f(float* x) {\n    // a < b\n    x[0] = x[1] < 2.0f;\n}\n"


@pytest.mark.parametrize(("language", "source"), [("python", PYTHON), ("cuda", CUDA)])
def test_the_text_stays(language: str, source: str) -> None:
    found = highlighted(source, language, name="k", links={2: "#node"})
    begins = r'<span class="l" id="k-(\d+)">(?:<i>|<a href="#node">)\1(?:</i>|</a>)'
    lines = re.findall(begins, found)
    assert [int(n) for n in lines] == list(range(1, source.count("\n") + 1))
    text = re.sub(begins, "\n", found)
    assert unescape(re.sub("<[^>]*>", "", text)).lstrip("\n") == source.rstrip("\n")
    assert found.count('href="#node"') == 1
