"""The driver of this machine's GPUs, and the names of those."""

from __future__ import annotations

from typing import Any

from mirage_py.runtime.env.gpus import asked_of_driver
from mirage_py.runtime.env.gpus import short_name as short_name  # noqa: PLC0414
from mirage_py.runtime.env.gpus import visible as visible  # noqa: PLC0414

_ASKED = {"driver": "driver_version", "max_sm_mhz": "clocks.max.sm", "power_limit_w": "power.limit"}


def driver_facts() -> dict[str, Any]:
    """Driver version, highest clock and power limit; empty where nvidia-smi is missing."""
    lines = asked_of_driver(",".join(_ASKED.values()))
    values = [v.strip() for v in lines[0].split(",")] if lines else []
    return dict(zip(_ASKED, values, strict=False))
