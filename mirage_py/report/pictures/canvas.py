"""SVG elements as text, escaped, and the colours that pictures have without a page around them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from importlib.resources import files

from markupsafe import Markup

CHAR = 7.3  # width of a letter of the fixed-width font at 12 px, on the safe side


class Canvas:
    """Collects the elements of one picture."""

    def __init__(self, width: float, height: float, title: str, name: str = "picture") -> None:
        self.width, self.height = width, height
        self.title, self.name = title, name
        self._elements: list[str] = []
        self._has_links = False

    def add(self, tag: str, content: str = "", /, **attributes: object) -> None:
        """One element; ``class_`` is its class, underscores in names are hyphens."""
        self._elements.append(f"<{tag}{_given(attributes)}>{escape(content, quote=False)}</{tag}>")

    def rect(self, x: float, y: float, width: float, height: float, **more: object) -> None:
        """A rectangle."""
        self.add("rect", "", x=_n(x), y=_n(y), width=_n(max(width, 0)), height=_n(height), **more)

    def text(self, x: float, y: float, text: str, **more: object) -> None:
        """A line of text that begins, ends or is centred at a point."""
        self.add("text", text, x=_n(x), y=_n(y), **more)

    def line(self, x1: float, y1: float, x2: float, y2: float, **more: object) -> None:
        """A straight line."""
        self.add("line", "", x1=_n(x1), y1=_n(y1), x2=_n(x2), y2=_n(y2), **more)

    @contextmanager
    def group(self, tag: str = "g", tip: str = "", **attributes: object) -> Iterator[None]:
        """What is drawn inside belongs together; ``tip`` is shown on hovering."""
        self._has_links |= tag == "a"
        self._elements.append(f"<{tag}{_given(attributes)}>")
        if tip:
            self.add("title", tip)
        yield
        self._elements.append(f"</{tag}>")

    def markup(self, *, standalone: bool = False) -> Markup:
        """The picture; ``standalone`` with the colours that a report's page would give it."""
        width, height = _n(self.width), _n(self.height)
        # An image hides what is inside of it from readers, links too.
        role = "group" if self._has_links else "img"
        style = f"<style>{picture_style()}</style>" if standalone else ""
        # Every text in it was escaped as it was added.
        return Markup(
            f'<svg xmlns="http://www.w3.org/2000/svg" class="mp-picture mp-{self.name}" '
            f'role="{role}" aria-label="{escape(self.title)}" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}">{style}' + "".join(self._elements) + "</svg>"
        )


def picture_style() -> str:
    """The style sheet of pictures: of a report's page, or inside one that stands alone."""
    return files("mirage_py.report.page").joinpath("templates/pictures.css").read_text("utf-8")


def _given(attributes: dict[str, object]) -> str:
    return "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for name, value in attributes.items()
        if value not in (None, "")
    )


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
