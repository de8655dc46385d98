"""An actuator and a simulator as processes, and an agent that only beats: to arm again and again.

usage: python -m tests.live.soak.arming_loop [--only CASE,...] [-n N] [--honest N]

One JSON line a case: how often arming was tried, how often it was armed, and how often its first command was elsewhere.
Exit status 1: an arming began elsewhere, a second publisher let arm, or an honest robot was not armed."""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import yaml

from auras_ros import resources
from auras_ros.live.soak.armings import (
    NOISE,
    ArmingCase,
    ArmingCounts,
    PlayedDriver,
    count_armings,
    honest_robots,
    second_publishers,
)
from auras_ros.live.soak.harness import SoakHarness
from auras_ros.live.soak.judge import CommandLimits, Judge
from auras_ros.live.soak.topics import HEARTBEAT, JOINTS
from auras_ros.live.soak.witness import Witness
from auras_ros.nodes.actuator.settings import load_contract, load_digest
from auras_ros.nodes.common.messages import json_message
from auras_ros.nodes.common.qos import LATCHED
from auras_ros.nodes.common.supervisor import Supervisor
from auras_ros.ros import init, try_shutdown
from auras_ros.ros.callbacks import Callbacks
from auras_ros.ros.msg import String
from tests.nodes.controllers import channel, contract_folder
from tests.nodes.wire import own_domain

START_S = 60.0
RATE_HZ, MAX_AGE_MS = 100.0, 1600.0
OVERRIDES: dict[str, dict[str, Any]] = {
    "pusht": {"viewer_px": 0, "auto_reset": False},
    "actuator": {"arm_on_start": False, "agent_timeout_ms": 1000.0, "place_tolerance": 0.1},
}
WRAPPED = ArmingCase("wrapped", robot=(PlayedDriver(("wrist",), 50.0, noise=NOISE, wraps=True),))
WRIST = '<joint name="wrist" type="continuous"><limit effort="1" velocity="2"/></joint>'
SHOWN_REASONS = 3  # of a case, the most frequent ones


class ArmingLoop:
    """An actuator and perhaps a simulator, supervised, and an agent that only beats."""

    def __init__(self, folder: Path, stack: ExitStack, processes: list[str], checkpoint: str) -> None:
        channels = load_contract(checkpoint).channels
        self._ranges = {channel.name: channel.upper - channel.lower for channel in channels}
        config = yaml.safe_load(resources.find("config", "pusht.yaml").read_text())
        config["supervisor"]["ros__parameters"]["processes"] = processes
        path = folder / "armings.yaml"
        path.write_text(yaml.safe_dump(config))
        limits = [(channel.lower, channel.upper, channel.max_rate) for channel in channels]
        init(args=[])
        stack.callback(try_shutdown)
        witness = Witness(Judge(CommandLimits.of(limits, RATE_HZ, MAX_AGE_MS)))
        stack.callback(witness.destroy_node)
        callbacks = stack.enter_context(closing(Callbacks(witness)))
        log = stack.enter_context((folder / "log.txt").open("wb"))
        parameters = {**OVERRIDES, "actuator": OVERRIDES["actuator"] | {"checkpoint": checkpoint}}
        supervisor = stack.enter_context(Supervisor(path, log=log, parameters=parameters))
        rng = random.Random(0)
        self.harness = SoakHarness(witness, callbacks, supervisor, rng, lambda: False)
        stack.enter_context(closing(self.harness))
        beats = stack.enter_context(self.harness.publisher(HEARTBEAT, listeners=0))
        facts = {"session": "test", "lifecycle": "active", "state": "running", "checkpoint": load_digest(checkpoint)}
        beat = json_message(facts)
        stack.enter_context(self.harness.timer(0.02, lambda: beats.publish(beat)))
        assert self.harness.until(lambda: witness.state, START_S), (folder / "log.txt").read_text()
        witness.press(False)  # arming waits for the first message of a button that was discovered

    def count(self, case: ArmingCase, count: int, **facts: Any) -> ArmingCounts:
        return count_armings(self.harness, self._ranges, case, count, **facts)


def wrapped_checkpoint(folder: Path) -> str:
    """A contract of one continuous joint."""
    return contract_folder(folder, [channel("wrist", lower=-math.pi, upper=math.pi)])


def count_wrapped(loop: ArmingLoop, count: int) -> ArmingCounts:
    """A continuous joint where its driver's positions go from pi to -pi and back, by the noise alone."""
    with loop.harness.publisher((String, "robot_description", LATCHED)) as description:
        description.publish(String(data=f'<robot name="r">{WRIST}</robot>'))
        loop.harness.until(lambda: "tightened" in loop.harness.witness.state.get("limits", ""), START_S)
        return loop.count(WRAPPED, count, robot_position={"wrist": math.pi}, turns={"wrist": math.tau})


def main(argv: list[str] | None = None) -> int:
    known = {case.name: case for case in (*second_publishers(JOINTS), *honest_robots(JOINTS), WRAPPED)}
    parser = argparse.ArgumentParser(prog="python -m tests.live.soak.arming_loop", description=__doc__)
    parser.add_argument("--only", default=",".join(known), help=f"cases, of {', '.join(known)}")
    parser.add_argument("-n", type=int, default=17, help="armings beside each second publisher (default 17)")
    parser.add_argument("--honest", type=int, default=50, help="armings of each honest robot (default 50)")
    options = parser.parse_args(argv)
    names = options.only.split(",")
    if not set(names) <= set(known):
        parser.error(f"--only: of {', '.join(known)}; got {options.only}")
    broken = 0
    with tempfile.TemporaryDirectory(prefix="auras_armings_") as scratch, ExitStack() as stack:
        stack.enter_context(own_domain())
        loop = ArmingLoop(Path(scratch), stack, ["sim_bridge", "actuator"], "pusht")
        for name in names:
            if name != WRAPPED.name:
                case = known[name]
                broken += _report(loop.count(case, options.honest if case.honest else options.n), case)
        broken += len(loop.harness.judge.violations)
        print("\n".join(loop.harness.judge.violations), end="")
    if WRAPPED.name in names:
        with tempfile.TemporaryDirectory(prefix="auras_armings_") as scratch, ExitStack() as stack:
            stack.enter_context(own_domain())
            checkpoint = wrapped_checkpoint(Path(scratch) / "wrist")
            loop = ArmingLoop(Path(scratch), stack, ["actuator"], checkpoint)
            broken += _report(count_wrapped(loop, options.honest), WRAPPED)
    return 1 if broken else 0


def _report(counts: ArmingCounts, case: ArmingCase) -> bool:
    """Print a case. Returns whether a promise was broken."""
    reasons = dict(counts.refusals.most_common(SHOWN_REASONS))
    line = {"case": counts.case, "tried": counts.tried, "armed": counts.armed}
    print(json.dumps({**line, "armed_elsewhere": counts.armed_elsewhere, "refusals": reasons}), flush=True)
    return counts.armed_elsewhere > 0 or counts.armed != (counts.tried if case.honest else 0)


if __name__ == "__main__":
    sys.exit(main())
