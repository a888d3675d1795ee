"""The stages of a ring buffer as C text: the next one, and that of earlier iterations."""

from __future__ import annotations

from mirage_py.codegen.cuda.writer.emission import Emission


def advance_stage(out: Emission, stage: str, parity: str, depth: int) -> None:
    """Go on to the next of ``depth`` stages; its barriers' parity changes with each round."""
    if depth == 1:
        out.line(f"{parity} ^= 1;")
    else:
        with out.indented(f"if (++{stage} == {depth})"):
            out.line(f"{stage} = 0;")
            out.line(f"{parity} ^= 1;")


def stage_ago(stage: str, count: int, depth: int) -> str:
    """The number of the stage of ``count`` iterations ago, of ``depth`` stages."""
    if depth <= count:
        return stage if depth == count else "0"
    return f"{stage} < {count} ? {stage} + {depth - count} : {stage} - {count}"
