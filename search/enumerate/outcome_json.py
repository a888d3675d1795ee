"""Jobs, settings and outcomes as JSON data, for journals and for other processes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from mirage_py.errors import FormatError
from mirage_py.reasons import read_reason
from mirage_py.search.enumerate.family_tables import (
    configuration_from_json,
    families_from_json,
    families_to_json,
)
from mirage_py.search.enumerate.jobs import Job, Setting
from mirage_py.search.extract.extract import ExtractionLimits
from mirage_py.search.extract.task import Outcome, SearchLimits
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.text.json_form import from_json, to_json

Json = dict[str, Any]


def setting_to_json(setting: Setting) -> Json:
    """A setting; ``setting_from_json`` turns it back."""
    return {
        "program": to_json(setting.program),
        "seed": setting.seed,
        "limits": asdict(setting.limits),
    }


def setting_from_json(data: Json) -> Setting:
    """What ``setting_to_json`` gave."""
    limits = dict(data["limits"])
    for name in ("extraction", "epilogue", "prologue"):
        limits[name] = ExtractionLimits(**limits[name])
    limits["rings"] = tuple(limits["rings"])
    program = from_json(data["program"])
    assert isinstance(program, Program)
    return Setting(program, int(data["seed"]), SearchLimits(**limits))


def job_to_json(job: Job) -> Json:
    """A job; ``job_from_json`` turns it back."""
    return asdict(job)


def job_from_json(data: Json) -> Job:
    """What ``job_to_json`` gave."""
    where = data["configuration"]
    configuration = None if where is None else configuration_from_json(where)
    return Job(data["ring"], data["split"], int(data["kernels"]), configuration)


def outcome_to_json(outcome: Outcome) -> Json:
    """An outcome; ``outcome_from_json`` turns it back."""
    return {
        "found": families_to_json(outcome.families.values()),
        "counts": outcome.counter.to_json(),
        "reasons": [r.document() for r in outcome.reasons],
        "refuted": outcome.refuted,
        "exhausted": outcome.exhausted,
        "stopped": outcome.stopped,
        "classes": outcome.classes,
        "saturated": outcome.saturated,
    }


def outcome_from_json(data: Json, source: str = "JSON", *, validated: bool = False) -> Outcome:
    """What ``outcome_to_json`` gave. Raises FormatError where it is something else.

    ``validated`` as for families_from_json.
    """
    outcome = Outcome()
    try:
        for family in families_from_json(data["found"], source, validated=validated):
            outcome.add(family)
        outcome.counter.add_json(data["counts"])
        outcome.reasons = [read_reason(r) for r in data["reasons"]]
        outcome.refuted = int(data["refuted"])
        outcome.exhausted = bool(data["exhausted"])
        outcome.stopped = bool(data["stopped"])
        outcome.classes = int(data["classes"])
        outcome.saturated = bool(data["saturated"])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise FormatError("this is no outcome of a search", where=source, why=repr(error)) from None
    return outcome
