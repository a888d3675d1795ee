"""Texts between two marks of a page: what a program writes into a document that people write."""

from __future__ import annotations

import re


def filled(page: str, mark: str, text: str) -> str:
    """The page with what is between two marks replaced. Raises ValueError where there are none."""
    found = re.search(rf"(?<=<!-- {mark} -->\n).*?(?=<!-- /{mark} -->)", page, re.DOTALL)
    if found is None:
        raise ValueError(f"there are no marks <!-- {mark} --> and <!-- /{mark} -->")
    return f"{page[: found.start()]}{text}\n{page[found.end() :]}"
