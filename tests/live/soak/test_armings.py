"""Arming beside a second publisher of joint_states, and with honest robots: the actuator and the simulator as
processes, the second publishers and the agent's heartbeat from here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from auras_ros.live.soak.armings import ArmingCase, honest_robots, second_publishers
from auras_ros.live.soak.topics import JOINTS
from tests.live.soak.arming_loop import ArmingLoop, count_wrapped, wrapped_checkpoint
from tests.nodes.wire import own_domain

COUNT = 2  # of honest robots
BESIDE_COUNT = 1  # beside each of the second publishers, of which there are twelve


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., ArmingLoop]]:
    """Starts a loop; it lives until the last test of this file has ended, or another one is started."""
    stack = ExitStack()

    def begin(processes: list[str], checkpoint: str) -> ArmingLoop:
        stack.close()
        stack.enter_context(own_domain())
        return ArmingLoop(tmp_path_factory.mktemp("armings"), stack, processes, checkpoint)

    yield begin
    stack.close()


@pytest.fixture(scope="module")
def loop(start: Callable[..., ArmingLoop]) -> ArmingLoop:
    pytest.importorskip("gym_pusht", reason="the simulator's world")
    return start(["sim_bridge", "actuator"], "pusht")


@pytest.mark.parametrize("case", second_publishers(JOINTS), ids=lambda case: case.name)
def test_no_arming_beside_a_second_publisher_begins_elsewhere(loop: ArmingLoop, case: ArmingCase) -> None:
    counts = loop.count(case, BESIDE_COUNT)
    assert (counts.tried, counts.armed_elsewhere, counts.armed) == (BESIDE_COUNT, 0, 0), counts
    named = [reason for reason in counts.refusals if "publishers of joint_states: /pusht, /soak" in reason]
    assert named, counts.refusals
    assert loop.harness.judge.violations == []


@pytest.mark.parametrize("case", honest_robots(JOINTS), ids=lambda case: case.name)
def test_honest_robots_are_armed_where_they_are(loop: ArmingLoop, case: ArmingCase) -> None:
    count = 1 if case.restarts else COUNT  # the supervisor waits longer before each restart
    counts = loop.count(case, count)
    assert (counts.tried, counts.armed_elsewhere, counts.armed) == (count, 0, count), counts
    assert loop.harness.judge.violations == []


def test_a_second_publisher_is_forgotten_after_it_has_gone(loop: ArmingLoop) -> None:
    """It is refused beside it, and armed a second after it; the place is the robot's."""
    assert loop.count(second_publishers(JOINTS)[0], 1).armed == 0
    assert loop.count(ArmingCase("simulator"), 1).armed == 1


def test_a_continuous_joint_at_the_end_of_its_turn_is_armed(start: Callable[..., ArmingLoop], tmp_path: Path) -> None:
    """The last test of this file: it starts a loop of its own, without the simulator."""
    counts = count_wrapped(start(["actuator"], wrapped_checkpoint(tmp_path / "wrist")), COUNT)
    assert (counts.tried, counts.armed_elsewhere, counts.armed) == (COUNT, 0, COUNT), counts
