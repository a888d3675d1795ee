"""Jobs, settings and outcomes as JSON data: what journals hold and other processes send."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from mirage_py.errors import FormatError
from mirage_py.search.derivation import Derivation, Step
from mirage_py.search.extract import ExtractionLimits
from mirage_py.search.family import Family, Origin
from mirage_py.search.jobs import Job, Setting
from mirage_py.search.spaces import Configuration
from mirage_py.search.task import Outcome, SearchLimits
from mirage_py.ugraph.json_form import from_json, node_from_json, node_to_json, to_json
from mirage_py.ugraph.node import Node
from mirage_py.ugraph.program import Program
from mirage_py.ugraph.ugraph import UGraph

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
    configuration = None if where is None else _configuration(where)
    return Job(data["ring"], data["split"], int(data["kernels"]), configuration)


def outcome_to_json(outcome: Outcome) -> Json:
    """An outcome; ``outcome_from_json`` turns it back."""
    return {
        "families": [_family_to_json(f) for f in outcome.families.values()],
        "counts": outcome.counter.to_json(),
        "reasons": outcome.reasons,
        "refuted": outcome.refuted,
        "exhausted": outcome.exhausted,
        "stopped": outcome.stopped,
    }


def outcome_from_json(data: Json, source: str = "JSON") -> Outcome:
    """What ``outcome_to_json`` gave. Raises FormatError where it is something else."""
    outcome = Outcome()
    try:
        for item in data["families"]:
            outcome.add(_family_from_json(item, source))
        outcome.counter.add_json(data["counts"])
        outcome.reasons = [str(r) for r in data["reasons"]]
        outcome.refuted = int(data["refuted"])
        outcome.exhausted = bool(data["exhausted"])
        outcome.stopped = bool(data["stopped"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError("this is no outcome of a search", where=source, why=repr(error)) from None
    return outcome


def _family_to_json(family: Family) -> Json:
    return {
        "ugraph": to_json(family.ugraph),
        "cost_us": family.cost_us,
        "kind": family.kind,
        "origins": [
            {
                "configuration": asdict(o.configuration),
                "arrangement": o.arrangement,
                "steps": [
                    {"node": node_to_json(Node(s.op, s.args, s.attr, s.dims)), "looped": s.looped}
                    if not s.is_accumulator
                    else {
                        "node": node_to_json(Node(s.op, s.args, None, s.dims)),
                        "over": s.runs_in,
                        "looped": s.looped,
                    }
                    for s in o.derivation.steps
                ],
                "outputs": list(o.derivation.outputs),
            }
            for o in family.origins
        ],
    }


def _family_from_json(data: Json, source: str) -> Family:
    ugraph = from_json(data["ugraph"], source)
    if not isinstance(ugraph, UGraph):
        raise FormatError("a family is no µGraph", where=source)
    origins = tuple(_origin_from_json(o, source) for o in data["origins"])
    return Family(ugraph, float(data["cost_us"]), str(data["kind"]), origins)


def _origin_from_json(data: Json, source: str) -> Origin:
    steps = tuple(_step_from_json(s, source) for s in data["steps"])
    derivation = Derivation(steps, tuple(int(o) for o in data["outputs"]))
    return Origin(_configuration(data["configuration"]), str(data["arrangement"]), derivation)


def _step_from_json(data: Json, source: str) -> Step:
    node = node_from_json(data["node"], source)
    attr = (str(data["over"]),) if "over" in data else node.attr
    return Step(node.op, node.args, attr, node.dims, data["looped"])


def _configuration(data: Json) -> Configuration:
    return Configuration(tuple(data["looped"]), tuple(data["gridded"]))
