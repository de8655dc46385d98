"""The processes' fixtures, and the whole loop in processes of its own for faults that concern all of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from auras_ros import resources
from auras_ros.live.soak.faults.loaded import STALLED
from auras_ros.live.soak.harness import SoakHarness
from auras_ros.live.soak.judge import CommandLimits, Judge
from auras_ros.live.soak.witness import Witness
from auras_ros.nodes.actuator.settings import load_contract
from auras_ros.nodes.common.supervisor import Supervisor
from auras_ros.ros import init, try_shutdown
from auras_ros.ros.callbacks import Callbacks
from tests.nodes.conftest import actuator, checkpoint, children, contract, digest, domain, fake, robot, watch
from tests.nodes.wire import PATIENCE_S

__all__ = ["actuator", "checkpoint", "children", "contract", "digest", "domain", "fake", "robot", "watch"]
RATE_HZ, MAX_AGE_MS = 100.0, 1600.0


def stood_still(harness: SoakHarness) -> bool:
    """An actuator that did not get its turn for long has disarmed, as promised, and waits for somebody to arm it."""
    state = harness.witness.state
    return state.get("state") == "disarmed" and STALLED in state["reason"]


def arm_after_a_stall(harness: SoakHarness) -> None:
    if stood_still(harness):
        assert harness.drive(), harness.judge.violations
        assert harness.until(lambda: not stood_still(harness), PATIENCE_S)


@pytest.fixture
def loop(domain: int, checkpoint: str, tmp_path: Path) -> Iterator[Callable[[], SoakHarness]]:
    """loop() starts simulator, actuator and agent under supervision, judged on the wire, and drives."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(_running(checkpoint, tmp_path))


@contextmanager
def _running(checkpoint: str, folder: Path) -> Iterator[SoakHarness]:
    channels = [(each.lower, each.upper, each.max_rate) for each in load_contract(checkpoint).channels]
    parameters = {
        "pusht": {"viewer_px": 0, "auto_reset": False, "max_steps": 1_000_000},  # a new table moves the robot: disarmed
        "actuator": {"checkpoint": checkpoint, "arm_on_start": False, "agent_timeout_ms": 1000.0},
        "agent": {"checkpoint": checkpoint},
    }
    init(args=[])
    witness = Witness(Judge(CommandLimits.of(channels, RATE_HZ, MAX_AGE_MS)))
    callbacks = Callbacks(witness)
    config = resources.find("config", "demo.yaml")
    try:
        with (folder / "log.txt").open("w") as log, Supervisor(config, log=log, parameters=parameters) as supervisor:
            harness = SoakHarness(witness, callbacks, supervisor, random.Random(0), lambda: False)
            witness.press(False)
            assert harness.until(lambda: witness.heartbeat.get("lifecycle") == "active", PATIENCE_S)
            assert harness.drive()
            yield harness
    finally:
        callbacks.close()
        witness.destroy_node()
        try_shutdown()
