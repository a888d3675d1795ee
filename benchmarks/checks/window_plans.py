"""Kernels over windows for a memory checker: depthwise convolutions and pools of networks.

``python -m benchmarks.checks.window_plans DIR`` writes DIR/windows.json, which ``python -m
benchmarks.checks.sanitize DIR -o OUT`` runs. Of each form there is a size that threads' shares
divide, ``whole``, and one that they do not, ``tails``; the tilings are the first and the last that
are raced.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.checks.sanitize_plans import Checked, write
from mirage_py.search.networks.convolutions.window_tiles import window_tiles
from mirage_py.targets import target
from mirage_py.ugraph.building.window_convolutions import window_plan
from mirage_py.ugraph.ir.convolution import FusedConvolution

_MOST = 24
_DEPTHWISE = FusedConvolution(2, 16, 16, 16, 16, (3, 3), padding=(1, 1), groups=16, has_bias=True,
                              relu_before=True, relu_after=True, has_residual=True)  # fmt: skip
_FORMS = {
    "depthwise": _DEPTHWISE,
    "depthwise with steps": replace(_DEPTHWISE, stride=(2, 2), has_residual=False),
    "depthwise, 5 by 5": replace(_DEPTHWISE, kernel=(5, 5), padding=(2, 2)),
    "slices": replace(_DEPTHWISE, pitch=32, offset=16, residual_pitch=24, residual_offset=8),
    "largest": replace(_DEPTHWISE, pool="max"),
    "mean": replace(_DEPTHWISE, pool="mean"),
}


def window_plans() -> Iterator[Checked]:
    """All of them, channels last and planar."""
    h200 = target("h200")
    for name, whole in _FORMS.items():
        tails = replace(
            whole, height=13, width=11, inputs=15, results=15, groups=15,
            pitch=whole.pitch and 31, residual_pitch=whole.residual_pitch and 23,
        )  # fmt: skip
        for variant, spec in (("whole", whole), ("tails", tails)):
            for is_planar in (False, True):
                given = replace(spec, is_planar=is_planar)
                found = window_tiles(given, h200, _MOST)
                for number, tiles in enumerate(dict.fromkeys((found[0], found[-1]))):
                    kind = f"{name}{', planar' * is_planar} {number}"
                    yield Checked("windows", kind, variant, window_plan(given, tiles))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    plans = tuple(window_plans())
    write(plans, folder / "windows.json")
    print(f"{len(plans)} plans")
