"""One program to measure: an example at given sizes."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclass(frozen=True, slots=True)
class Workload:
    """``example`` is a file of the examples without its ending; ``sizes`` override its extents.

    ``batch`` is how many sequences or rows there are, in the words of the workload's source.
    """

    name: str
    example: str
    batch: int
    sizes: Mapping[str, int]

    @property
    def key(self) -> str:
        """A file name."""
        return f"{self.name}-b{self.batch}"

    @property
    def program_name(self) -> str:
        """The name of the example without its folder."""
        return self.example.rpartition("/")[2]

    @property
    def spec(self) -> Path:
        """The math spec."""
        return EXAMPLES / f"{self.example}.math"

    def torch_function(self) -> Callable[..., Any]:
        """The example's torch function."""
        folder = self.example.rpartition("/")[0]
        path = EXAMPLES / (f"{folder}/functions.py" if folder else f"{self.program_name}.py")
        spec = importlib.util.spec_from_file_location(
            f"examples_{folder or self.program_name}", path
        )
        if spec is None or spec.loader is None:
            raise FileNotFoundError(path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        function: Callable[..., Any] = getattr(module, self.program_name)
        return function
