"""The plan that the agent's parameters mean: a whole text, single parameters, or both."""

from __future__ import annotations

from typing import Any

import pytest

from auras_ros.nodes.agent.settings import AgentSettings
from auras_ros.pipeline.plan import Plan, PlanError

WHOLE = "quick,mode=auras,pp_generation=4,alpha=0.5"


@pytest.mark.parametrize(
    "given",
    [
        {"plan": WHOLE},
        {"plan": "quick", "mode": "auras", "pp_generation": 4, "alpha": 0.5},
        {"plan": "quick,mode=auras,alpha=0.5", "pp_generation": 4},
        {"plan": WHOLE, "mode": "auras"},
    ],
    ids=str,
)
def test_the_text_of_every_command_line_is_taken_and_so_are_single_parameters(given: dict[str, Any]) -> None:
    assert AgentSettings(**given).plans() == (Plan.parse(WHOLE),)


def test_where_both_say_something_else_it_is_refused_by_name() -> None:
    with pytest.raises(PlanError, match="plan: mode: auras in plan, but par as a separate parameter"):
        AgentSettings(plan=WHOLE, mode="par").plans()
