"""Sizes and load times of the gallery's reports in headless Chromium, from disk.

python -m benchmarks.gallery.load_times -o benchmarks/results/report-loads.json
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.gallery.gallery import build
from benchmarks.report.provenance import commit

_CHROMIUM = "/usr/bin/chromium"
_FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync")
_TIMES = 5
_LOADED = "() => performance.getEntriesByType('navigation')[0].loadEventEnd"


def measure() -> dict[str, Any]:
    """The median of several loads of each report, until its load event has ended."""
    from playwright.sync_api import sync_playwright

    rows = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        paths = list(build(Path(folder)))
        browser = driver.chromium.launch(executable_path=_CHROMIUM, args=list(_FLAGS))
        version = browser.version
        for path in paths:
            times = []
            for _ in range(_TIMES):
                page = browser.new_page(viewport={"width": 1400, "height": 900})
                page.goto(path.as_uri())
                times.append(page.evaluate(_LOADED))
                elements = page.evaluate("document.querySelectorAll('*').length")
                page.close()
            size = path.stat().st_size
            rows.append(
                {
                    "report": path.stem,
                    "bytes": size,
                    "elements": elements,
                    "load_ms": round(median(times)),
                }
            )
        browser.close()
    return {
        "schema": 1,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": {"system": f"{platform.system()} {platform.machine()}", "chromium": version},
        "command": "python -m benchmarks.gallery.load_times",
        "times": _TIMES,
        "rows": rows,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", type=Path, required=True)
    out = parser.parse_args().o
    document = {"commit": commit(), **measure()}
    out.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    print(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
