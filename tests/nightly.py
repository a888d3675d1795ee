"""Whether this is ``make nightly``, which draws and enumerates more."""

from __future__ import annotations

import os

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
