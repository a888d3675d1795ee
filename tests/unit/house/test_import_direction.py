"""Imports point one way: this file says what stands on what and holds every import to it."""

from __future__ import annotations

import ast
import functools
import re
import sys
import tomllib
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

EVERYWHERE = ("errors", "settings", "arguments", "reasons", "display", "progress", "collector")

# Section -> the sections it may import, besides itself and EVERYWHERE.
STANDS_ON: dict[str, tuple[str, ...]] = {
    "errors": (),
    "reasons": (),
    "display": (),
    "progress": (),
    "collector": (),
    "arguments": (),
    "settings": (),
    "targets": (),
    "ugraph": (),
    "axioms": ("ugraph",),
    "verify": ("ugraph",),
    "codegen": ("ugraph", "targets"),
    # Operator graphs of whole networks; what they mean is a program.
    "networks": ("ugraph",),
    # Of codegen search takes the tile arithmetic, which decides what fits.
    "search": ("ugraph", "targets", "axioms", "verify", "codegen", "networks"),
    # Sizes that change from call to call, without what computes anything.
    "shapes": (),
    # No axioms and no search: a saved kernel loads without them.
    "runtime": ("ugraph", "targets", "verify", "codegen", "shapes"),
    # Results in words and formulas: for the command line and for reports.
    "formatting": ("ugraph", "targets", "axioms", "verify"),
    # A result as a page.
    "report": ("ugraph", "targets", "axioms", "verify", "codegen", "runtime", "formatting"),
    # Of the run time what keeps a result and calls it, when it is asked to.
    "result": ("ugraph", "runtime", "report"),
    # What was found before, here or by others: replays a derivation, tests and runs.
    "cache": ("ugraph", "targets", "axioms", "verify", "search", "runtime", "result"),
    # Every stage in order.
    "pipeline": (
        "ugraph",
        "targets",
        "axioms",
        "verify",
        "codegen",
        "search",
        "runtime",
        "result",
        "report",
        "cache",
        "networks",
    ),
    # Why not another kernel: a report, the model and the search are asked.
    "questions": (
        "ugraph",
        "targets",
        "codegen",
        "search",
        "runtime",
        "result",
        "formatting",
    ),
    # Values and progress in notebooks and terminals: called by name (display.py).
    "views": ("ugraph", "search", "result", "formatting", "report"),
    # Kernels as operators of torch.
    "torch_ops": ("ugraph", "codegen", "runtime"),
    "frontend": ("ugraph", "networks"),
    # Anybody's own kernel: read by the front end, judged by what judges ours.
    "checking": ("ugraph", "axioms", "verify", "runtime", "frontend", "formatting"),
    # The backend of torch.compile: graphs of whole models, regions through front end and pipeline.
    "dynamo": (
        "ugraph",
        "targets",
        "networks",
        "search",
        "runtime",
        "frontend",
        "pipeline",
        "cache",
        "report",
        "shapes",
    ),
}
# On top of all: the command line and the package's own face.
TOP = ("cli", "__init__", "__main__")

# The decorator turns a function into a kernel: the files of a front end that need more than it.
EXCEPTIONS: dict[str, tuple[str, ...]] = {
    "frontend/decorator.py": ("pipeline",),
    "frontend/superoptimized.py": ("shapes", "torch_ops"),
    "frontend/preparation.py": ("shapes",),
    "frontend/entry_tables.py": ("shapes",),
    # Calls like earlier ones, past the tables: the guards and launches of the run time.
    "frontend/repeated_calls.py": ("runtime", "shapes"),
    # What is no program is cut, as a model is.
    "frontend/function_parts.py": ("dynamo",),
    "frontend/searches.py": ("pipeline", "cache", "shapes"),
    # What it found, kept; and what it serves many sizes with.
    "frontend/cached_kernels.py": ("runtime", "report"),
    "frontend/torch/reference.py": ("runtime",),
    # Positions of writes have to be such as inputs are drawn.
    "frontend/torch/found_writes.py": ("verify",),
    "frontend/sized_calls.py": ("shapes",),
    "frontend/torch/sized_programs.py": ("shapes", "verify"),
}
MAX_MODULES = 16

# Third-party module -> the sections at home with it; the others stay free of it. A module that is
# not named here may be used wherever it is declared in pyproject.toml.
HOMES: dict[str, tuple[str, ...]] = {
    "egglog": ("axioms",),
    "lark": ("frontend", "ugraph"),
    "islpy": ("verify",),
    "click": ("cli",),
    "rich": ("cli", "views"),
    "jinja2": ("report",),
    "markupsafe": ("report",),
    "pygments": ("report",),
    "torch": (
        "checking",
        "networks",
        "verify",
        "codegen",
        "runtime",
        "pipeline",
        "frontend",
        "dynamo",
        "torch_ops",
        "cli",
    ),
    "triton": ("codegen", "runtime", "cli"),
    "cupy": ("codegen", "runtime", "cli"),
    "distributed": ("runtime",),
}


def section_of(name: str) -> str:
    """``ugraph/node.py`` -> ``ugraph``; ``pipeline.py`` -> ``pipeline``."""
    return name.split("/", maxsplit=1)[0].removesuffix(".py")


@functools.cache
def import_statements(source: str) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Those inside functions included; an expression holds none."""
    found: list[ast.Import | ast.ImportFrom] = []
    todo: list[ast.AST] = [ast.parse(source)]
    for node in todo:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.append(node)
        elif not isinstance(node, ast.expr):
            todo += ast.iter_child_nodes(node)
    return tuple(found)


def imported_modules(source: str, name: str) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of every import, those inside functions included."""
    package = ["mirage_py", *name.split("/")[:-1]]
    for node in import_statements(source):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        else:
            base = node.module or ""
            if node.level:
                anchor = package[: len(package) - node.level + 1]
                base = ".".join([*anchor, *([base] if base else [])])
            # `from mirage_py import x` may mean the section x or a name of the package.
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}" if base == "mirage_py" else base


def wrong_imports(source: str, name: str) -> list[str]:
    """What is wrong with the imports of one file of the package, in plain words."""
    section = section_of(name)
    if section not in STANDS_ON and section not in TOP:
        return [f"{name}: section '{section}' has no row in STANDS_ON"]
    allowed = (*STANDS_ON.get(section, ()), *EVERYWHERE, *EXCEPTIONS.get(name, ()), section)
    wrong = []
    for line, module in imported_modules(source, name):
        top, *rest = module.split(".")
        if top in ("axioms", "codegen", "search"):
            wrong.append(f"{name}:{line}: '{module}' is a second copy: import mirage_py.{module}")
        elif top in HOMES and section not in HOMES[top]:
            wrong.append(f"{name}:{line}: '{top}' is at home in {', '.join(HOMES[top])} only")
        elif top == "mirage_py" and section not in TOP:
            target = rest[0] if rest else "__init__"
            if target not in allowed and target != "__version__":
                wrong.append(f"{name}:{line}: '{section}' does not stand on '{target}'")
    return wrong


def test_every_file_imports_only_what_it_stands_on(package_files: dict[str, Path]):
    wrong = []
    for name, path in package_files.items():
        if path.suffix == ".py":
            wrong += wrong_imports(path.read_text(encoding="utf-8"), name)
    assert not wrong, "\n".join(wrong)


def test_back_ends_do_not_know_each_other(package_files: dict[str, Path]):
    """What both use lies beside them."""
    ends = ("cuda", "triton")
    wrong = []
    for name, path in package_files.items():
        if not name.startswith("codegen/") or path.suffix != ".py":
            continue
        for line, module in imported_modules(path.read_text(encoding="utf-8"), name):
            found = re.match(r"mirage_py\.codegen\.(\w+)", module)
            if found and found[1] in ends and not name.startswith(f"codegen/{found[1]}/"):
                wrong.append(f"{name}:{line}: {module}")
    assert wrong == []


def edges(package_files: dict[str, Path]) -> dict[str, set[str]]:
    """Which modules each module imports, those inside functions included."""
    modules = {
        "mirage_py." + name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path
        for name, path in package_files.items()
        if path.suffix == ".py" and name not in ("__init__.py", "__main__.py")
    }
    found: dict[str, set[str]] = {}
    for module, path in modules.items():
        found[module] = set()
        for node in import_statements(path.read_text(encoding="utf-8")):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                inside = [f"{node.module}.{alias.name}" for alias in node.names]
                names = [n if n in modules else str(node.module) for n in inside]
            found[module] |= {n for n in names if n in modules} - {module}
    return found


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Nodes that reach themselves, grouped by what they reach in common."""
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        return [error.args[1]]
    return []


def rooms(package_files: dict[str, Path]) -> dict[str, set[str]]:
    """Which rooms each room imports; a room is a folder, and a module of the root one too."""
    packages = {
        "mirage_py." + name.removesuffix("/__init__.py").replace("/", ".")
        for name in package_files
        if name.endswith("/__init__.py")
    }

    def room(module: str) -> str:
        if module in packages or module.count(".") == 1:
            return module
        return module.rpartition(".")[0]

    graph: dict[str, set[str]] = {}
    for module, imported in edges(package_files).items():
        graph.setdefault(room(module), set()).update(map(room, imported))
    return {name: others - {name} for name, others in graph.items()}


def test_modules_import_in_no_circle(package_files: dict[str, Path]):
    assert circles(edges(package_files)) == []


def test_rooms_import_in_no_circle(package_files: dict[str, Path]):
    graph = rooms(package_files)
    assert len(graph) > 80
    assert circles(graph) == []


def test_a_circle_is_seen():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}}) != []


def test_rooms_are_small(package_files: dict[str, Path]):
    sizes: dict[str, int] = {}
    for name, path in package_files.items():
        if path.suffix == ".py" and "/" in name and path.name != "__init__.py":
            folder = name.rpartition("/")[0]
            sizes[folder] = sizes.get(folder, 0) + 1
    assert {room: count for room, count in sizes.items() if count > MAX_MODULES} == {}


def test_the_table_has_no_circle():
    standing: list[str] = []
    waiting = dict(STANDS_ON)
    while waiting:
        ready = [name for name, below in waiting.items() if not set(below) - set(standing)]
        assert ready, f"a circle among {sorted(waiting)}"
        for name in ready:
            standing.append(name)
            del waiting[name]


def test_every_exception_is_still_needed(package_files: dict[str, Path]):
    for name in EXCEPTIONS:
        if section_of(name) in {section_of(file) for file in package_files if "/" in file}:
            assert name in package_files, f"{name} is gone: drop its exception"


def test_every_third_party_import_is_declared(root: Path, package_files: dict[str, Path]):
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    used = ("search", "cuda12", "cuda13", "farm", "graph")
    optional = [package for name in used for package in extras[name]]
    declared = [*project["dependencies"], *optional]
    known = {re.split(r"[^\w-]", text)[0].split("-cuda")[0] for text in declared}
    known |= set(sys.stdlib_module_names) | {"mirage_py"}
    undeclared = []
    for name, path in package_files.items():
        if path.suffix == ".py":
            for line, module in imported_modules(path.read_text(encoding="utf-8"), name):
                if module.split(".")[0] not in known:
                    undeclared.append(f"{name}:{line}: {module}")
    assert not undeclared, "\n".join(undeclared)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("ugraph/x.py", "import mirage_py.search.closure"),
        ("ugraph/x.py", "from mirage_py.verify import field"),
        ("ugraph/x.py", "from mirage_py import codegen"),
        ("ugraph/x.py", "def f():\n    from mirage_py.runtime.cache import get"),
        ("ugraph/deep/x.py", "from ...search import closure"),
        ("search/x.py", "import mirage_py.runtime"),
        ("runtime/x.py", "from mirage_py.axioms import laws"),
        ("verify/x.py", "from mirage_py import parse"),
        ("verify/x.py", "import mirage_py"),
        ("frontend/spec.py", "from mirage_py import pipeline"),
        ("pipeline/pipeline.py", "from mirage_py.cli import main"),
        ("cli/x.py", "import axioms.laws"),
        ("cli/x.py", "from search import closure"),
        ("ugraph/x.py", "import torch"),
        ("codegen/x.py", "import egglog"),
        ("novelty/x.py", "import os"),
    ],
)
def test_a_wrong_import_is_seen(name: str, source: str):
    assert len(wrong_imports(source, name)) == 1


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("ugraph/x.py", "from mirage_py.errors import InputError\nfrom . import node"),
        ("ugraph/deep/x.py", "from ..node import Node"),
        ("search/x.py", "from mirage_py.axioms import laws\nimport mirage_py.verify.field"),
        ("runtime/x.py", "from mirage_py import __version__\nimport torch, triton"),
        ("frontend/searches.py", "from mirage_py.pipeline.pipeline import optimize"),
        ("pipeline/x.py", "from ..search import closure\nfrom mirage_py import axioms"),
        ("cli/x.py", "import mirage_py\nfrom mirage_py import parse, frontend"),
        ("__init__.py", "from mirage_py.pipeline import optimize"),
    ],
)
def test_a_right_import_passes(name: str, source: str):
    assert wrong_imports(source, name) == []
