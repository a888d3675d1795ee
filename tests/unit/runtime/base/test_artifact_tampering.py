"""Whoever alters an artifact gets an error. Nothing that it stores is ever executed."""

from __future__ import annotations

import ast
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fuzz.mutation import paths
from plans import rms_plan, scale_program, two_kernel_plan

from mirage_py.errors import FormatError, MirageError, ValidationError
from mirage_py.frontend.spec import parse
from mirage_py.runtime.base.atomic import write_folder
from mirage_py.runtime.base.emission import emit_kernels
from mirage_py.runtime.eager.eager_source import eager_source, torch_function
from mirage_py.runtime.store.artifact import artifact_files, load_artifact
from mirage_py.runtime.store.manifest import NAME, manifest_text
from mirage_py.runtime.store.saved import save_artifact
from mirage_py.ugraph.ir.launch_choices import Precision
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.text.json_form import dump_text, load_text

PLAN = two_kernel_plan(9, 40)
PROGRAM = PLAN.ugraph.program
FILES = artifact_files(PROGRAM, PLAN, {"best": {"time_us": 1.5}})
Change = Callable[[dict[str, str]], dict[str, str]]


def sealed(files: dict[str, str]) -> dict[str, str]:
    """With a manifest that fits, as somebody who tampers well would make it."""
    held = {name: text for name, text in files.items() if name != NAME}
    return {**held, NAME: manifest_text("triton" if "plan.json" in held else "fallback", held)}


def refusal(tmp_path: Path, files: dict[str, str]) -> FormatError | None:
    folder = tmp_path / "artifact"
    shutil.rmtree(folder, ignore_errors=True)
    write_folder(folder, files)
    try:
        load_artifact(folder)
    except FormatError as error:
        found = error
    else:
        return None
    assert found.where
    assert found.repair
    return found


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_is_noticed(tmp_path: Path, name: str):
    content = FILES[name].encode()
    rng = random.Random(name)
    for _ in range(12):
        at, bit = rng.randrange(len(content)), rng.randrange(8)
        damaged = bytearray(content)
        damaged[at] ^= 1 << bit
        folder = tmp_path / "artifact"
        write_folder(folder, FILES)
        (folder / name).write_bytes(damaged)
        if name == NAME and _same_meaning(bytes(damaged)):
            continue
        with pytest.raises(FormatError):
            load_artifact(folder)


def _same_meaning(manifest: bytes) -> bool:
    """White space, or the version's name, which only explains differences."""
    try:
        found, right = json.loads(manifest), json.loads(FILES[NAME])
    except ValueError:
        return False
    return {**found, "mirage_py": ""} == {**right, "mirage_py": ""}


def _manifest(**fields: Any) -> Change:
    return lambda files: {**files, NAME: json.dumps({**json.loads(files[NAME]), **fields})}


def _listed(name: str, digest: str = "0" * 64) -> Change:
    def change(files: dict[str, str]) -> dict[str, str]:
        document = json.loads(files[NAME])
        document["files"][name] = digest
        return {**files, NAME: json.dumps(document)}

    return change


def _swapped(files: dict[str, str]) -> dict[str, str]:
    one, other = (n for n in files if n.startswith("kernels/"))
    return sealed({**files, one: files[other], other: files[one]})


def _from(other: Plan, name: str) -> Change:
    own = artifact_files(other.ugraph.program, other, {})
    return lambda files: sealed({**files, name: own.get(name, next(iter(own.values())))})


def _schema(name: str) -> Change:
    return lambda files: sealed({**files, name: files[name].replace('"schema": 1', '"schema": 2')})


TAMPERED: dict[str, Change] = {
    "schema": _manifest(schema=2),
    "schema as text": _manifest(schema="1"),
    "kind": _manifest(kind="fallback"),
    "kind of no artifact": _manifest(kind=["triton"]),
    "version": _manifest(mirage_py=None),
    "no files": _manifest(files={}),
    "files of another type": _manifest(files=[]),
    "a digest of another type": _listed("plan.json", digest=None),  # type: ignore[arg-type]
    "a wrong digest": _listed("plan.json"),
    "a file above": _listed("../evil.py"),
    "an absolute file": _listed("/etc/passwd"),
    "a file more": _listed("kernels/__init__.py"),
    "kernels swapped": _swapped,
    "another kernel's source": _from(rms_plan(), "kernels/divide.py"),
    "another plan": _from(rms_plan(), "plan.json"),
    "another size": _from(two_kernel_plan(9, 41), "plan.json"),
    "another program": _from(rms_plan(), "program.json"),
    "a changed µGraph": lambda files: sealed(
        {**files, "plan.json": files["plan.json"].replace('"num_warps": 2', '"num_warps": 4')}
    ),
    "a changed text": lambda files: sealed({**files, "ugraph.txt": files["ugraph.txt"] + "#"}),
    "a newer program": _schema("program.json"),
    "a newer plan": _schema("plan.json"),
    "a report that is no object": lambda files: sealed({**files, "report.json": "[]"}),
    "a report without an end": lambda files: sealed({**files, "report.json": "[" * 100_000}),
    "a deep plan": lambda files: sealed({**files, "plan.json": '{"a":' * 100_000}),
    "keys twice": lambda files: {**files, NAME: files[NAME].replace("{", '{"kind": "triton",', 1)},
}


@pytest.mark.parametrize("what", TAMPERED)
def test_it_is_refused(tmp_path: Path, what: str):
    assert refusal(tmp_path, TAMPERED[what](FILES)) is not None


def test_it_is_taken_as_it_was(tmp_path: Path):
    assert refusal(tmp_path, FILES) is None
    assert refusal(tmp_path, sealed(FILES)) is None


EXECUTED = "import pathlib; pathlib.Path({mark!r}).touch()\n"
PLANTED = (
    "__init__.py", "conftest.py", "sitecustomize.py", "usercustomize.py", "evil.pth", "torch.py",
    "triton.py", "json.py", "kernels/__init__.py", "kernels/conftest.py", "kernels/triton.py",
)  # fmt: skip


def test_nothing_stored_is_executed(tmp_path: Path):
    """Code in every file, and in files that Python would look for."""
    folder, mark = tmp_path / "artifact", tmp_path / "mark"
    code = EXECUTED.format(mark=str(mark))
    for name in FILES:
        files = {**FILES, name: code + FILES[name] if name.endswith(".py") else code}
        assert refusal(tmp_path, files) is not None
        if name != NAME:
            assert refusal(tmp_path, sealed(files)) is not None
    shutil.rmtree(folder)
    write_folder(folder, FILES)
    for name in PLANTED:
        (folder / name).write_text(code)
    program = "import mirage_py, sys; assert mirage_py.load(sys.argv[1]).plan is not None"
    command = [sys.executable, "-P", "-c", program, str(folder)]
    subprocess.run(command, cwd=folder, check=True, env={**os.environ, "PYTHONSAFEPATH": "1"})
    assert not mark.exists()


# -- what is emitted again holds no code of the plan's author -------------------------------------

INJECTIONS = (
    '"""\nINJECTED = 1\n"""', '", INJECTED=1, x="', "x\nINJECTED = 1\n", '\\"""\nINJECTED=1\n"""',
)  # fmt: skip


def texts_changed(value: Plan | Program) -> Iterator[str]:
    """The document with each of its texts, one after the other, ended by code."""
    document = json.loads(dump_text(value))
    for path in paths(document):
        holder = document
        for key in path[:-1]:
            holder = holder[key]
        if path and isinstance(before := holder[path[-1]], str):
            for code in INJECTIONS:
                for text in (code, before + code):
                    holder[path[-1]] = text
                    yield json.dumps(document)
            holder[path[-1]] = before


def injected(source: str) -> bool:
    words = (
        word
        for node in ast.walk(ast.parse(source))
        for word in (getattr(node, "id", None), getattr(node, "arg", None))
    )
    return "INJECTED" in words


def test_no_text_of_a_plan_becomes_code():
    (options,) = rms_plan().options
    options = replace(options, evict_first=("X",), precision=Precision.TF32)
    plan = replace(rms_plan(), options=(options,))
    read = 0
    for text in texts_changed(plan):
        try:
            found = load_text(text, "plan.json")
            sources = [k.source for k in emit_kernels(found)]
        except MirageError:
            continue
        read += 1
        assert not any(map(injected, sources)), text
    # The name of the program alone may be any line of text, so two of all these are read.
    assert read == 2


@pytest.mark.parametrize("name", ['a"""b', "a\\", '"', "it's", "# x", "{x}", "%s", "µ(1)"])
def test_a_program_may_have_any_name_and_it_is_no_code(tmp_path: Path, name: str):
    program = scale_program(4, 6).renamed(name)
    assert not injected(eager_source(program))
    ast.parse(eager_source(program))
    assert torch_function(program) is not None
    plan = replace(PLAN, ugraph=replace(PLAN.ugraph, program=PROGRAM.renamed(name)))
    for kernel in emit_kernels(plan):
        ast.parse(kernel.source)
    save_artifact(tmp_path / "out", program=plan.ugraph.program, plan=plan, report={})
    assert load_artifact(tmp_path / "out").plan == plan


@pytest.mark.parametrize("name", ["a\nb", "a\0b", "\u202egnp.exe", "\ud800", "x" * 300])
def test_names_that_no_screen_shows_are_refused(name: str):
    with pytest.raises(FormatError):
        load_text(json.dumps({**json.loads(dump_text(PROGRAM)), "name": name}), "program.json")


@pytest.mark.parametrize(
    "stem", ["../x", "a\nb", "x" * 250, "µ" * 120, "ﬁle", "a b'c\"", "-rf", "con", "\u202eabc"]
)
def test_a_spec_may_have_any_file_name(tmp_path: Path, stem: str):
    program = parse("X[4, 6] : f16\nY[a] = sum[b](X[a, b])", file=f"{stem}.math")
    save_artifact(tmp_path / "out", program=program, plan=None, report={})
    assert load_artifact(tmp_path / "out").program == program
    assert "/" not in program.name
    assert len(program.name.encode()) <= 100


@pytest.mark.parametrize(
    "name", ["../x", "/x", "", "a b", "a/b", "x\0", "ﬁ", "x" * 201, "import", "a\n", "\uff21"]
)
def test_names_of_kernels_are_names_of_files_and_functions(name: str):
    document = json.loads(dump_text(PLAN))
    document["ugraph"]["kernels"][0]["name"] = name
    with pytest.raises(FormatError, match="cannot be the name of a kernel"):
        load_text(json.dumps(document), "plan.json")


def test_a_plan_that_no_search_gives_is_refused(tmp_path: Path):
    """Emitters trust plans; what they do with one that deserves none is no error of the user's."""
    open_tiles = json.loads(FILES["plan.json"])
    open_tiles["ugraph"]["kernels"][0]["grid"][0]["tile"] = None
    unknown = {**json.loads(FILES["plan.json"]), "backend": "cuda"}
    for document in (open_tiles, unknown):
        error = refusal(tmp_path, sealed({**FILES, "plan.json": json.dumps(document)}))
        assert error is not None
        assert "plan.json" in error.where


def test_two_names_that_python_takes_for_one():
    with pytest.raises((FormatError, ValidationError), match="cannot be the name of a tensor"):
        load_text(dump_text(PROGRAM).replace('"X"', '"ﬁ"').replace("X[", "ﬁ["), "program.json")
