"""A result as a folder, all text, that runs without the search and executes nothing it stores.

    program.txt       the program, for reading
    program.json      the program
    plan.json         the plan: µGraph, tiles, warps, stages       } only where a generated
    ugraph.txt        the µGraph, for reading                      } kernel won; else the
    ugraph.ug.json    the µGraph, for `mirage-py verify` and show  } original program is
    kernels/NAME.py   each Triton kernel, a file that runs alone   } the artifact
    kernels/NAME.cu   each CUDA kernel, a file that nvcc compiles  }
    report.json       what was searched, verified and measured
    manifest.json     kind, version and the checksum of each file

The kernels that run are emitted again from plan.json. The stored ones are compared with them, so a
folder whose sources were altered, or that another version would emit otherwise, is refused and not
run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mirage_py import __version__
from mirage_py.arguments import path_of
from mirage_py.display import Reported
from mirage_py.errors import FormatError, MirageError
from mirage_py.reasons import Served, Server, why_original
from mirage_py.runtime.base.emission import emit_kernels, source_suffix
from mirage_py.runtime.eager.compiled import EAGER, original_of, server_of, serving
from mirage_py.runtime.eager.eager_source import torch_function
from mirage_py.runtime.sized.sized_launch import runner_of
from mirage_py.runtime.store.manifest import (
    NAME,
    Manifest,
    manifest_text,
    read_checked,
    read_manifest,
)
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.text.json_form import dump_text, load_text
from mirage_py.ugraph.text.printing import format_program, format_ugraph

_AGAIN = "make the artifact again with `mirage-py superoptimize ... -o DIR`"


@dataclass(frozen=True, repr=False)
class Artifact:
    """What an artifact folder holds; ``plan`` is None where the original program is the result."""

    program: Program
    plan: Plan | None
    report: Mapping[str, Any]
    folder: Path = field(default_factory=Path, compare=False)

    def __repr__(self) -> str:
        by = self.plan or self.report.get("served", {}).get("by", "the program itself")
        return f"<Artifact in {self.folder}: {self.program!r} by {by!r}>"

    def runner(self) -> Callable[..., Any]:
        """The result as a function of torch tensors, in the order of ``program.inputs``."""
        if self.plan is None:
            functions = {EAGER: torch_function(self.program)}
            return OriginalProgram(functions, self.report, self.program)
        runner = runner_of(self.plan)
        runner.record = self.report
        return runner


class OriginalProgram(Reported):
    """The original program as the kernel of a result that has none: which of ``functions``, the
    baselines by name, and why.
    """

    def __init__(
        self,
        functions: Mapping[str, Callable[..., Any]],
        record: Mapping[str, Any],
        program: Program | None = None,
    ) -> None:
        self.record = record
        self.program = program
        name = original_of(record)
        self.served = Served(server_of(name), why_original(record))
        self.function = functions.get(name) or serving(functions[EAGER], record)

    def __repr__(self) -> str:
        return f"<OriginalProgram: {self.served}>"

    def __call__(self, *inputs: Any) -> Any:
        """Call the function. No gradient is asked of a kernel, and none is recorded: so it was
        compiled when it was timed.
        """
        if self.served.by is Server.EAGER:
            return self.function(*inputs)
        import torch

        with torch.no_grad():
            return self.function(*inputs)


def artifact_files(
    program: Program, plan: Plan | None, report: Mapping[str, Any]
) -> dict[str, str]:
    """Every file of an artifact by its name, manifest included."""
    files = _derived_files(program, plan)
    files["report.json"] = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
    kind = plan.backend if plan is not None else "fallback"
    return {**files, NAME: manifest_text(kind, files)}


def load_artifact(folder: Path | str) -> Artifact:
    """Read an artifact. Nothing it stores is executed.

    Raises FormatError, with the file and the repair, when a file is missing, is not what the
    manifest says, or is not what this version makes of plan.json.
    """
    folder = path_of("folder", folder).absolute()
    manifest = read_manifest(folder)
    found = read_parts(folder, manifest, lambda name: read_checked(folder, name, manifest))
    _compare(folder, manifest, _derived_again(folder, found.program, found.plan))
    return found


def read_parts(folder: Path, manifest: Manifest, read: Callable[[str], str]) -> Artifact:
    """Program, plan and report of files whose texts ``read`` gives by name. Raises FormatError."""
    where = str(folder / "program.json")
    program = load_text(read("program.json"), where)
    if not isinstance(program, Program):
        raise FormatError("holds no program", where=where, repair=_AGAIN)
    plan = None
    if manifest.kind != "fallback":
        plan = _read_plan(folder, manifest, program, read("plan.json"))
    return Artifact(program, plan, _read_report(folder, read("report.json")), folder)


def _read_plan(folder: Path, manifest: Manifest, program: Program, text: str) -> Plan:
    """The plan, which must be of a normal form of the program: the tensors are the same."""
    where = str(folder / "plan.json")
    plan = load_text(text, where)
    if not isinstance(plan, Plan):
        raise FormatError("holds no plan", where=where, repair=_AGAIN)
    own = plan.ugraph.program
    same_outputs = [o.tensor for o in own.outputs] == [o.tensor for o in program.outputs]
    if own.inputs != program.inputs or not same_outputs:
        raise FormatError("is a plan for another program", where=where, repair=_AGAIN)
    if plan.backend != manifest.kind:
        raise FormatError(
            f"is a plan for the back end {plan.backend:.80}",
            where=where,
            why=f"the manifest says {manifest.kind}",
            repair=_AGAIN,
        )
    return plan


def _derived_files(program: Program, plan: Plan | None) -> dict[str, str]:
    """The files that follow from the program and the plan."""
    files = {"program.txt": format_program(program), "program.json": dump_text(program)}
    if plan is not None:
        files["plan.json"] = dump_text(plan)
        files["ugraph.txt"] = format_ugraph(plan.ugraph)
        files["ugraph.ug.json"] = dump_text(plan.ugraph)
        for kernel in emit_kernels(plan):
            files[f"kernels/{kernel.name}{source_suffix(kernel)}"] = kernel.source
    return files


def _derived_again(folder: Path, program: Program, plan: Plan | None) -> dict[str, str]:
    """The derived files of what was read, which need not be anything that we would have written."""
    try:
        return _derived_files(program, plan)
    except MirageError as error:
        what, why = "cannot be made into kernels", f"{error.what} {error.why}".strip()
    except Exception as error:  # noqa: BLE001
        # Emitters rely on what the search and the rules of the IR promise together.
        what, why = "is no plan that a search could give", f"{type(error).__name__}: {error}"
    raise FormatError(what, where=str(folder / "plan.json"), why=why, repair=_AGAIN)


def _compare(folder: Path, manifest: Manifest, derived: Mapping[str, str]) -> None:
    for name, text in derived.items():
        if read_checked(folder, name, manifest) == text:
            continue
        why = f"plan.json gives another text in this version, {__version__}"
        if manifest.version != __version__:
            why += f"; the artifact was written by {manifest.version}"
        raise FormatError("does not fit the plan", where=str(folder / name), why=why, repair=_AGAIN)
    extra = sorted(set(manifest.files) - set(derived) - {"report.json"})
    if extra:
        raise FormatError(
            f"lists files that no artifact has: {', '.join(extra)}",
            where=str(folder / NAME),
            repair=_AGAIN,
        )


def _read_report(folder: Path, text: str) -> Mapping[str, Any]:
    try:
        report = json.loads(text)
    except (ValueError, RecursionError) as error:
        where = str(folder / "report.json")
        raise FormatError("is not JSON", where=where, why=str(error), repair=_AGAIN) from None
    if not isinstance(report, dict):
        raise FormatError("is not a report", where=str(folder / "report.json"), repair=_AGAIN)
    return report
