"""Debian's Chromium, driven by Playwright: one for the session; tests are skipped without it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

CHROMIUM = Path("/usr/bin/chromium")
# Nothing leaves the machine: no updates, no experiments, no crash reports.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not there: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=str(CHROMIUM), args=list(FLAGS))
        yield found
        found.close()


@pytest.fixture(scope="session")
def dark(browser: Browser) -> BrowserContext:
    """Where pages are dark, and nothing moves by itself."""
    return browser.new_context(
        viewport={"width": 1400, "height": 900}, color_scheme="dark", reduced_motion="reduce"
    )


@pytest.fixture(scope="session")
def without_script(browser: Browser) -> BrowserContext:
    return browser.new_context(java_script_enabled=False)
