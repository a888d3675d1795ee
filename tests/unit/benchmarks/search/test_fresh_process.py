from __future__ import annotations

import json
import os

from benchmarks.search.fresh_process import in_fresh_process


def test_a_process_has_caches_and_variables_of_its_own(monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", "/kept")
    found = in_fresh_process(os.path.expandvars, "$TRITON_CACHE_DIR $ASKED", ASKED="so")
    folder, asked = found.split()
    assert folder != "/kept"
    assert not os.path.lexists(folder)
    assert asked == "so"
    assert os.environ["TRITON_CACHE_DIR"] == "/kept"


def test_what_fails_is_a_row():
    assert "JSONDecodeError" in in_fresh_process(json.loads, "{")["fault"]
    assert in_fresh_process(os._exit, 3) == {"fault": "the process ended"}
