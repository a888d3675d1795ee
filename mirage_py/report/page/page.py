"""Pages as one HTML file each: a Jinja2 template, with its styles and its script inside."""

from __future__ import annotations

import functools
from importlib.resources import files
from typing import Any

from jinja2 import BaseLoader, Environment, StrictUndefined, TemplateNotFound
from markupsafe import Markup

from mirage_py import __version__


class _Templates(BaseLoader):
    """The templates beside this file, also where the package is inside an archive."""

    def get_source(self, _environment: Environment, template: str) -> tuple[str, str, None]:
        try:
            return _text(template), template, None
        except FileNotFoundError:
            raise TemplateNotFound(template) from None


def render(template: str, **values: Any) -> str:
    """A page from one of the templates, most of which extend ``base.html.j2``; it wants a ``title``
    and ``sections``, pairs of a key and a name. Every value is escaped that is no Markup.
    """
    return _environment().get_template(template).render(version=__version__, **values)


@functools.cache
def _environment() -> Environment:
    made = Environment(
        loader=_Templates(),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in ("page.css", "pictures.css", "page.js"):
        made.globals[name.replace(".", "_")] = Markup(_text(name))
    return made


def _text(name: str) -> str:
    return files(__package__ or "").joinpath("templates", name).read_text("utf-8")
