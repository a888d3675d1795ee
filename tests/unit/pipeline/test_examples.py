"""The eight example programs, through every stage that needs no GPU."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from cuda_plans import for_cuda, kernel_of
from families import stabilize
from nightly import NIGHTLY

from mirage_py.codegen.triton.module import emit_triton
from mirage_py.frontend.spec import parse_file
from mirage_py.pipeline.pipeline import normalise, verify_families
from mirage_py.pipeline.selection.request import Request
from mirage_py.runtime.compile.compile import compile_kernel
from mirage_py.runtime.cpu.cuda_emulation import check_emulated
from mirage_py.runtime.cpu.triton_interpreter import check_interpreted
from mirage_py.search.enumerate.search import search
from mirage_py.search.rank.instantiate import Instance, rank
from mirage_py.search.tilings.kinds import ONE_KERNEL
from mirage_py.targets import A100, B200, H200, Target
from mirage_py.targets import target as target_named
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph

EXAMPLES = Path(__file__).parents[3] / "examples"
DOCUMENTED = EXAMPLES.parent / "docs" / "explanation" / "verification.md"
NAMES = [
    "attention",
    "gated_mlp",
    "layernorm_linear",
    "lora",
    "ntrans",
    "qknorm_attention",
    "rmsnorm_matmul",
    "softmax",
]


@functools.cache
def program_of(name: str) -> Program:
    return normalise(parse_file(EXAMPLES / f"{name}.math"))


@functools.cache
def fused(name: str) -> list[UGraph]:
    """The families of one kernel, whatever the model says of several."""
    found = search(program_of(name))
    assert found.exhausted
    return [stabilize(f.ugraph) for f in found.families if f.kind == ONE_KERNEL]


@functools.cache
def ranked(name: str, target: str) -> list[Instance]:
    return rank(fused(name), target_named(target), 8)


@pytest.mark.parametrize("name", NAMES)
def test_found_as_one_kernel_and_equal_in_the_field(name: str) -> None:
    """With the error bound that the documentation quotes."""
    best = ranked(name, "h200")[0]
    (verified,) = verify_families(program_of(name), [best.family], Request(seed=1)).values()
    bound = verified.evidence.error_bound
    assert f"| {name} | {bound:.2g} |" in DOCUMENTED.read_text()


@pytest.mark.parametrize("name", NAMES)
def test_the_emitted_kernel(name: str, golden) -> None:  # type: ignore[no-untyped-def]
    (kernel,) = emit_triton(ranked(name, "h200")[0].plan)
    golden.check(kernel.source, f"triton/{name}.py.txt")


# Each for one target in turn; at night for all.
COMPILED = [
    (target, name)
    for number, name in enumerate(NAMES)
    for target in ((A100, B200, H200) if NIGHTLY else ((H200, A100, H200, B200)[number % 4],))
]
# A loop whose last tile is short, with a running maximum and without; rows that fill no tile.
ODD = NAMES if NIGHTLY else ("attention", "ntrans", "softmax")


@pytest.mark.parametrize(("target", "name"), COMPILED, ids=lambda v: getattr(v, "name", v))
def test_compiles_ahead_of_time(target: Target, name: str) -> None:
    (kernel,) = emit_triton(ranked(name, target.name)[0].plan)
    facts = compile_kernel(kernel, target.capability)
    assert facts.cubin_bytes > 0
    assert facts.smem_bytes <= target.smem_per_block_bytes


# By day each example runs in one of the back ends; those in ``ODD`` in Triton's too.
EMULATED = ("attention", "gated_mlp", "ntrans", "qknorm_attention")
INTERPRETED = tuple(name for name in NAMES if name not in EMULATED)


@pytest.mark.parametrize("name", NAMES if NIGHTLY else INTERPRETED)
def test_agrees_with_float64_in_the_interpreter(name: str) -> None:
    judged = check_interpreted(program_of(name), ranked(name, "h200")[0].plan, seed=3)
    assert judged.passed, judged.reason


@pytest.mark.parametrize("name", ODD)
def test_odd_sizes(name: str) -> None:
    odd = next((EXAMPLES / "odd").glob(f"{name}*.math"))
    program = normalise(parse_file(odd))
    families = [stabilize(f.ugraph) for f in search(program).families]
    best = rank(families, H200, 1)[0]
    judged = check_interpreted(program, best.plan, seed=3)
    assert judged.passed, judged.reason


def cuda_plan(name: str, arch: str = "sm_90a") -> Plan:
    """The best plan, with the CUDA back end."""
    return for_cuda(ranked(name, "h200")[0].plan, arch=arch)


@pytest.mark.parametrize("name", NAMES)
def test_the_emitted_cuda_kernel(name: str, golden) -> None:  # type: ignore[no-untyped-def]
    golden.check(kernel_of(cuda_plan(name)).body, f"cuda/{name}.cu.txt")


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
@pytest.mark.parametrize(
    ("arch", "names"),
    [
        ("sm_80", NAMES if NIGHTLY else ("lora",)),
        ("sm_90a", NAMES if NIGHTLY else ("attention", "gated_mlp", "layernorm_linear", "softmax")),
    ],
)
def test_cuda_kernels_compile(arch: str, names: Sequence[str], tmp_path: Path) -> None:
    for name in names:
        (tmp_path / f"{name}.cu").write_text(kernel_of(cuda_plan(name, arch)).source)
    code = f"-gencode=arch=compute_{arch[3:]},code={arch}"
    command = ["nvcc", code, "-cubin", "-Werror=all-warnings", "--threads=2"]
    files = [f"{name}.cu" for name in names]
    done = subprocess.run(
        [*command, *files], check=False, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", NAMES if NIGHTLY else EMULATED)
def test_agrees_with_float64_under_cuda_emulation(name: str) -> None:
    judged = check_emulated(program_of(name), cuda_plan(name), seed=3)
    assert judged.passed, judged.reason
