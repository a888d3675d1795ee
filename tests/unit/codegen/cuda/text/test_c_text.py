"""C text: long statements."""

from __future__ import annotations

import pytest

from mirage_py.codegen.cuda.text.c_text import wrapped


def test_a_comment_behind_a_long_statement_stays_one():
    statement = f"__syncthreads();  // {' '.join(['X[m, k]'] * 20)}: arrived"
    lines = wrapped(statement, 60)
    assert len(lines) > 3
    assert lines[0].startswith("__syncthreads();  // ")
    assert all(line.startswith("// ") and len(line) <= 60 for line in lines[1:])


@pytest.mark.parametrize("length", range(1, 60))
def test_a_comment_is_one_wherever_the_line_ends(length: int):
    """Cut right behind its slashes it was code: long names of parameters did not compile."""
    name = "t" * length
    lines = wrapped(f"alignas(16) float {name}[8];  // {name}[d] and more of it", 60)
    code = [line.partition("//")[0].strip() for line in lines]
    assert " ".join(c for c in code if c) == f"alignas(16) float {name}[8];"


def test_a_long_statement_is_indented():
    first, *rest = wrapped(f"total = {' + '.join(['one'] * 30)};", 60)
    assert first.startswith("total = ")
    assert all(line.startswith("    ") for line in rest)
