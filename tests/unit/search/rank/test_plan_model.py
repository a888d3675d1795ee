"""An existing plan is predicted as the search predicted it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import several_kernels
from families import instances

from mirage_py.search.model.model_constants import constants_of
from mirage_py.search.rank.plan_model import PlanModel
from mirage_py.targets import H200


@pytest.mark.parametrize("name", several_kernels.NAMES)
def test_the_prediction_is_that_of_the_search(name: str) -> None:
    for instance in instances(several_kernels.ugraph(name), H200, 12):
        model = PlanModel(instance.plan, H200)
        assert model.predicted() == instance.estimate


def test_other_constants_predict_something_else() -> None:
    instance = instances(several_kernels.ugraph(several_kernels.NAMES[0]), H200, 1)[0]
    constants = constants_of(H200)
    slower = replace(constants, latency=4 * constants.latency, ramp=4 * constants.ramp)
    model = PlanModel(instance.plan, H200)
    assert model.predicted(slower).time_us > model.predicted(constants).time_us
