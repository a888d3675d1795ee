"""Machine code as nvdisasm prints it."""

from __future__ import annotations


def sass(*lines: str) -> str:
    """Instructions as nvdisasm prints them; what ends with a colon is a label."""
    return "\n".join(
        line if line.endswith(":") else f"        /*{16 * n:04x}*/                   {line} ;"
        for n, line in enumerate(lines)
    )
