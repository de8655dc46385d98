"""The plans that the agent's parameters mean: each is one text, as on every command line."""

from __future__ import annotations

import pytest

from auras_ros.nodes.agent.settings import AgentSettings
from auras_ros.pipeline.plan import Plan, PlanError

WHOLE = "quick,mode=auras,pp_generation=4,alpha=0.5"


def test_the_text_of_every_command_line_is_taken() -> None:
    given = AgentSettings(plan=WHOLE, fallback_plan="quick,frame_period_ms=400")
    assert given.plans() == (Plan.parse(WHOLE), Plan("quick", frame_period_ms=400.0))


def test_a_plan_that_cannot_work_is_refused_by_the_parameters_name() -> None:
    with pytest.raises(PlanError, match=r"^plan: mode: must be one of"):
        AgentSettings(plan="mode=warp").plans()
    with pytest.raises(PlanError, match=r"^fallback_plan: mode: must be one of"):
        AgentSettings(fallback_plan="mode=warp").plans()
