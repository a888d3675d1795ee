"""An artifact whose files may have been edited: which were, and its kernels as they are on disk.

``load_artifact`` refuses such a folder. Here the checksums say what was edited, and the text of a
kernel's file is what runs.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from mirage_py import __version__
from mirage_py.codegen.cuda.writer.cuda_kernel import CudaKernel
from mirage_py.codegen.triton.module import TritonKernel
from mirage_py.errors import FormatError
from mirage_py.runtime.base.emission import KernelFile, Step, emit_steps, source_suffix
from mirage_py.runtime.store.artifact import Artifact, read_parts
from mirage_py.runtime.store.manifest import Manifest, read_manifest, read_plain, sha256
from mirage_py.runtime.store.seals import is_sealed
from mirage_py.ugraph.ir.plan import Plan

_USES = {
    "program.json": "what the kernels are compared with",
    "plan.json": "kernels that were not edited are emitted from it again",
    "report.json": "the stored time is read from it",
}


@dataclass(frozen=True, slots=True)
class Edit:
    """A file that is not what it was when the artifact was written. ``changes`` is the diff, where
    the old text is known; ``use`` says what the file is taken for.
    """

    file: str
    use: str
    changes: tuple[str, ...] = ()


@dataclass(frozen=True)
class EditedArtifact:
    """``steps`` run the kernels as they lie in the folder."""

    artifact: Artifact
    plan: Plan
    edits: tuple[Edit, ...]
    steps: tuple[Step, ...]

    @property
    def runs_foreign_text(self) -> bool:
        """Whether the text of a kernel is neither what this version emits nor that of an artifact
        that was made here.
        """
        kernels = any(e.file.startswith("kernels/") for e in self.edits)
        return kernels and not is_sealed(self.artifact)


def read_edited(folder: Path | str) -> EditedArtifact:
    """Read an artifact folder, edited or not. Nothing of it is executed yet.

    Raises FormatError for a missing file, for a program or plan that is none any more, and for an
    artifact that has no kernels.
    """
    folder = Path(folder).absolute()
    manifest = read_manifest(folder)
    artifact = read_parts(folder, manifest, lambda name: read_plain(folder, name))
    plan = artifact.plan
    if plan is None:
        raise FormatError(
            "has no kernels to run again",
            where=str(folder),
            why="the original program was the result",
            repair="mirage-py explain says why; another --effort or --target may find a kernel",
        )
    emitted = emit_steps(plan)
    texts = {
        _file(step): read_plain(folder, _file(step))
        for step in emitted
        if isinstance(step, TritonKernel | CudaKernel)
    }
    altered = [n for n in manifest.files if sha256(read_plain(folder, n)) != manifest.files[n]]
    plan_edited = "plan.json" in altered
    kept = {n: t for n, t in texts.items() if n in altered or not plan_edited}
    steps = tuple(_as_it_lies(step, kept) for step in emitted)
    edits = tuple(_edits(altered, emitted, kept, manifest))
    return EditedArtifact(artifact, plan, edits, steps)


def _file(step: TritonKernel | CudaKernel) -> str:
    return f"kernels/{step.name}{source_suffix(step)}"


def _as_it_lies(step: Step, texts: Mapping[str, str]) -> Step:
    """The step with the text of its file. A Triton file starts its kernel itself, so that warps
    and grid are those that it says.
    """
    if isinstance(step, TritonKernel):
        return KernelFile(step.name, texts.get(_file(step), step.source), step.pointers)
    if not isinstance(step, CudaKernel) or _file(step) not in texts:
        return step
    text = texts[_file(step)]
    # A CPU has other device functions than those before the kernel.
    before = step.source.removesuffix(step.body)
    return replace(step, source=text, body=text.removeprefix(before))


def _edits(
    altered: list[str], emitted: tuple[Step, ...], kept: Mapping[str, str], manifest: Manifest
) -> Iterator[Edit]:
    sources = {_file(s): s.source for s in emitted if isinstance(s, TritonKernel | CudaKernel)}
    for name, text in kept.items():
        if text != sources[name]:
            use = "it is run as it lies there"
            if name not in altered:
                use += f"; version {manifest.version} wrote it, {__version__} emits another text"
            yield Edit(name, use, _changes(sources[name], text))
    for name in altered:
        if name not in kept:
            use = _USES.get(name, "it is for reading alone: nothing is taken from it")
            yield Edit(name, use)


def _changes(before: str, after: str) -> tuple[str, ...]:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    return tuple(lines)[2:]
