"""The actuator arms only an agent that runs its own checkpoint, by the digest in the heartbeat."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from auras_ros.nodes.actuator.settings import load_digest
from tests.nodes.diagnosed import Diagnosed
from tests.nodes.stand_ins import FakeAgent, Robot, ramp
from tests.nodes.wire import Child, Watch

OTHER = "cd" * 32


def differs(digest: str) -> str:
    return f"runs another checkpoint (digest {OTHER[:12]}) than the actuator (digest {digest[:12]}): give both the same"


def test_only_an_agent_with_its_checkpoint_is_armed_and_another_one_disarms(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot, digest: str
) -> None:
    actuator()
    diagnosed = Diagnosed(watch)
    fake.digest = OTHER
    fake.live()
    fake.drive(ramp())
    refused = f"agent 'agent' {differs(digest)}"
    watch.until(lambda: watch.call("actuator/arm") == (False, refused), "the refusal")
    diagnosed.until("actuator: agent", "ERROR", "runs another checkpoint")
    assert watch.states[-1]["state"] == "disarmed"
    assert watch.sentinel() == []

    fake.digest = digest
    watch.arm()
    watch.armed()
    fake.digest = OTHER  # configured with another one, in the same session as it says
    reason = f"the agent {differs(digest)}"
    said = watch.state_where(lambda state: (state["state"], state["reason"]) == ("disarmed", reason), reason)
    watch.until(lambda: watch.actions[-1].label.state == "disarmed", "the last action")
    assert watch.actions[-1].label.source == "hold"
    count = len(watch.actions)
    fake.digest = digest
    watch.state_where(lambda state: state["tick"] > said["tick"] + 20, "twenty ticks")
    assert len(watch.actions) == count, "it does not arm by itself"
    watch.arm()
    watch.armed()


def test_an_agent_that_reports_no_checkpoint_is_refused(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    """As one of an earlier version."""
    actuator()
    fake.digest = ""
    fake.live()
    fake.drive(ramp())
    why = "does not report its checkpoint's digest: it is older than this actuator, or another program"
    watch.until(lambda: watch.call("actuator/arm") == (False, f"agent 'agent' {why}"), "the refusal")


def test_another_path_to_the_same_checkpoint_is_the_same(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot, checkpoint: str, tmp_path: Path
) -> None:
    """An actuator on another computer: a copy of the folder somewhere else, of which it needs the manifest alone."""
    copy = tmp_path / "elsewhere"
    copy.mkdir()
    shutil.copy(Path(checkpoint) / "policy.json", copy)
    assert load_digest(str(copy)) == fake.digest
    actuator(checkpoint=str(copy))
    fake.live()
    fake.drive(ramp())
    watch.arm()
    watch.armed()
