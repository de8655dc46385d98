"""What the soak's harness makes of the supervisor's news: the supervisor's own words, so that both stay the same."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from auras_ros.exit_status import BROKEN, TOO_SLOW
from auras_ros.nodes.common.supervisor import Supervisor
from auras_ros.ros import Clock, ClockType, Node, init, try_shutdown
from auras_ros.ros import callbacks as callbacks_module
from auras_ros.ros.callbacks import Callbacks
from tests.live.soak.stage import stage


@pytest.mark.parametrize(("status", "broken"), [(TOO_SLOW, []), (BROKEN, ["process ended"])])
def test_who_says_that_the_machine_is_too_slow_breaks_no_promise(
    tmp_path: Path, status: int, broken: list[str]
) -> None:
    """Any other end that the harness did not bring about does."""
    config = tmp_path / "mine.yaml"
    config.write_text("supervisor: {ros__parameters: {processes: [agent]}}\n")
    supervisor = Supervisor(config)
    harness = stage()
    harness._hear(supervisor._died(supervisor._slots[0], status), 0)
    assert list(harness.judge.kinds) == broken


def test_it_knows_just_before_which_time_a_process_was_started_again() -> None:
    """Until then the agent may not publish a chunk after the actuator was killed; afterwards it may hear the next
    actuator before the witness does."""
    harness = stage()
    killed_ns = harness.now_ns()
    assert harness.started_again_ns("actuator", killed_ns) >= killed_ns
    harness._hear("actuator started again", killed_ns + 5)
    assert harness.started_again_ns("actuator", killed_ns) == killed_ns + 5
    assert harness.started_again_ns("actuator", killed_ns + 5) > killed_ns + 5
    assert harness.judge.violations == []


def test_a_process_that_still_loads_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it count as one that grows: once it has driven, whatever comes is read."""
    harness, driving, looks = stage(), [False], list[int]()
    monkeypatch.setattr(type(harness.witness), "driving", property(lambda self: driving[0]))
    monkeypatch.setattr("auras_ros.live.soak.harness.READ_S", 0.0)
    lives: dict[int, list[object]] = {}

    def look(pid: int, at_s: float) -> None:
        looks.append(pid)
        lives.setdefault(pid, [])

    harness.usage = {name: SimpleNamespace(lives=lives, look=look) for name in harness.usage}  # type: ignore[misc]
    harness.turn()
    assert looks == []
    driving[0] = True
    harness.turn()
    driving[0] = False
    harness.turn()
    assert looks == [1] * 6


def test_a_callback_that_raises_is_said_and_the_soak_goes_on(
    ros_domain_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the witness could not take was not judged, so it passes for no promise kept."""
    monkeypatch.setattr(callbacks_module, "BROKEN_S", 60.0)  # a machine that is slow is not broken
    init(args=[])
    node, calls, harness = Node("witness"), list[int](), stage()

    def fail() -> None:
        calls.append(1)
        raise OverflowError("cannot convert float infinity to integer")

    node.create_timer(0.01, fail, clock=Clock(clock_type=ClockType.STEADY_TIME))
    callbacks = harness._callbacks = Callbacks(node, partial(harness.judge.violate, "callback failed"))
    try:
        assert harness.until(lambda: len(calls) > 2, 10.0)
    finally:
        callbacks.close()
        node.destroy_node()
        try_shutdown()
    assert list(harness.judge.kinds) == ["callback failed"]
    assert "OverflowError" in harness.judge.violations[0]
