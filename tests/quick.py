"""``pytest --quick``: the folders whose tests are Python alone, and a guard that sees to it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent
FOLDERS = (
    "unit/axioms",
    "unit/frontend/spec",
    "unit/search",
    "unit/shapes",
    "unit/ugraph",
)
# What compares with PyTorch or compiles, then what takes more than five seconds.
BUT = (
    "unit/frontend/spec/test_examples.py",
    "unit/frontend/spec/test_large.py",
    "unit/search/model/test_footprint.py",
    "unit/search/enumerate/test_selections.py",
    "unit/search/closure/test_draws.py",
    "unit/search/stabilize/test_joined_shifts.py",
    "unit/search/stabilize/test_shift_quotients.py",
    "unit/search/rewrites/test_horizontal_fusion.py",
    "unit/axioms/terms/test_large_programs.py",
    "unit/axioms/substitutions/test_cells.py",
    "unit/axioms/proof/test_proof_attacks.py",
    "unit/axioms/proof/test_proof_check.py",
    "unit/search/model/test_cost_model.py",
    "unit/search/enumerate/test_families.py",
    "unit/search/extract/test_large_programs.py",
    "unit/search/rewrites/test_precomputed_operands.py",
    "unit/axioms/proof/test_prove.py",
    "unit/search/rank/test_rank.py",
    "unit/search/enumerate/test_stabilize_kernels.py",
    "unit/search/enumerate/test_stabilize_logs.py",
    "unit/search/stabilize/test_normalised_partials.py",
    "unit/search/stabilize/test_late_factors.py",
    "unit/search/enumerate/test_chains.py",
    "unit/ugraph/field/test_galois_oracle.py",
)
# Without torch there is no torch.compile; it takes seconds to import besides.
MODULES = ("cupy", "torch", "triton")
PROGRAMS = ("c++", "cc", "clang", "clang++", "g++", "gcc", "nvcc", "ptxas")


class NotQuickError(Exception):
    """A test of a quick folder wants a compiler. No ImportError: nobody takes it for absence."""


class Guard:
    """A finder of modules that finds none, and refuses those that bring a compiler."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: Any = None) -> None:
        if name.partition(".")[0] in MODULES:
            raise NotQuickError(f"{name} is imported in a folder of tests/quick.py")


def refuse_programs(event: str, arguments: Sequence[Any]) -> None:
    """An audit hook."""
    if event == "subprocess.Popen" and Path(str(arguments[0])).name in PROGRAMS:
        raise NotQuickError(f"{arguments[0]} is started in a folder of tests/quick.py")


def install() -> None:
    """For the rest of the process."""
    sys.meta_path.insert(0, Guard())  # type: ignore[arg-type]
    sys.addaudithook(refuse_programs)


def is_quick(path: Path) -> bool:
    """Whether a file or folder of tests is one of them, lies in one or holds one."""
    folders = [TESTS / folder for folder in FOLDERS]
    inside = any(folder in (path, *path.parents) for folder in folders)
    holds = any(path in folder.parents for folder in folders)
    return holds or (inside and path not in [TESTS / name for name in BUT])
