"""An agent whose weights do not all fit: it says so at configure, and makes the chunks that it would make with all.

Guards: stages that are slower than meant, and nobody is told; a configure whose time and memory nobody knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from auras_ros.nodes.agent.node import Agent
from auras_ros.ros import Parameter, TransitionCallbackReturn, init, try_shutdown

Made = Callable[..., Agent]


@pytest.fixture
def agent(domain: int, checkpoint: str) -> Iterator[Made]:
    """An agent in this process, with parameters."""
    init(args=[])
    made: list[Agent] = []

    def make(**parameters: Any) -> Agent:
        given = {"checkpoint": checkpoint, **parameters}
        made.append(Agent(parameter_overrides=[Parameter(name, value=value) for name, value in given.items()]))
        return made[-1]

    yield make
    for node in made:
        node.halt()
        node.destroy_node()
    try_shutdown()


def configured(node: Agent) -> dict[str, object]:
    """What `agent: lifecycle` says once it is."""
    assert node.trigger_configure() == TransitionCallbackReturn.SUCCESS
    return dict(node.status.tasks()["lifecycle"]().values)


def test_configure_says_what_it_took(agent: Made, capfd: pytest.CaptureFixture[str]) -> None:
    values = configured(agent())
    assert float(str(values["configure_ms"])) > 0
    assert float(str(values["weights_mb"])) > 1
    assert values.keys().isdisjoint({"offloaded_mb", "device_mb", "uncaptured"})
    said = "".join(capfd.readouterr())
    assert f"configure_ms {values['configure_ms']}, weights_mb {values['weights_mb']}" in said
    assert "not captured" not in said


def test_stages_with_offloaded_weights_are_named_in_log_and_diagnostics(
    agent: Made, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    every = float(str(configured(agent())["weights_mb"]))
    capfd.readouterr()
    values = configured(agent(max_memory_mb=0.7 * every, offload_folder=str(tmp_path)))
    assert float(str(values["weights_mb"])) < 0.7 * every
    assert float(str(values["weights_mb"])) + float(str(values["offloaded_mb"])) == pytest.approx(every, abs=0.11)
    assert "perception: the weights of 'encoder." in str(values["uncaptured"])
    said = "".join(capfd.readouterr())
    assert "stages that are not captured" in said
    assert str(values["uncaptured"]) in said
    assert list(tmp_path.iterdir()) == []
