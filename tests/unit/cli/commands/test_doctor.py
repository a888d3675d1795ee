from __future__ import annotations

import pytest

from mirage_py.runtime.env import doctor, environment
from mirage_py.runtime.env.doctor import Check


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = [Check("python", True, "3.11"), Check("triton", False, "gone", "pip install triton")]
    monkeypatch.setattr(doctor, "environment_report", lambda: checks)


def test_this_machine_is_in_order(cli):
    outcome = cli("doctor", "--json")
    document = outcome.document
    assert document["schema"] == 1
    assert document["ok"] is True, document
    assert outcome.code == 0
    for check in document["checks"]:
        assert sorted(check) == ["check", "detail", "ok", "repair"]
    names = [check["check"] for check in document["checks"]]
    kernel = "on the GPU" if environment.gpu() else "in the interpreter"
    assert f"run a kernel {kernel}" in names


def test_what_is_wrong_comes_with_the_repair(cli, broken: None):
    outcome = cli("doctor")
    assert outcome.code == 1
    assert "ok   python: 3.11\n" in outcome.out
    assert "FAIL triton: gone\n     try: pip install triton\n" in outcome.out
    assert cli("doctor", "--json").document["ok"] is False


def test_without_a_cache_folder_nothing_is_compiled(tmp_path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path / "file"))
    failed = [check for check in doctor.environment_report() if not check.ok]
    assert [check.check for check in failed] == ["cache folder"]
    assert "MIRAGE_PY_CACHE_DIR" in failed[0].repair


def test_color_is_as_asked_for(cli, broken: None, monkeypatch: pytest.MonkeyPatch):
    assert "\x1b[" not in cli("doctor").out
    assert "\x1b[" in cli("--color", "always", "doctor").out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in cli("doctor").out
    assert "\x1b[" not in cli("--color", "never", "doctor").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in cli("doctor").out
