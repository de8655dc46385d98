"""The actuator: the only publisher of commands, in a process of its own, at a fixed rate.

It takes chunks from the agent's private topic, gets one command per tick from the action stream, and publishes it. When
the agent's heartbeat stops it holds. It loads no model and shares no interpreter with inference. Nothing bypasses its
limits, because nothing else publishes commands. The rules of arming are in `arming`.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from auras_ros.action import ContractError, Event, SafetyState
from auras_ros.clock import MonotonicClock
from auras_ros.nodes.actuator.arming import arming_refusal
from auras_ros.nodes.actuator.command_loop import CommandLoop
from auras_ros.nodes.actuator.command_subscribers import CommandSubscribers
from auras_ros.nodes.actuator.commands import CommandPublishers
from auras_ros.nodes.actuator.emergency_stop import REQUESTS
from auras_ros.nodes.actuator.inputs import ActuatorInputs
from auras_ros.nodes.actuator.other_publishers import DISCOVERY_NS, OtherPublishers, conflict_text
from auras_ros.nodes.actuator.settings import ActuatorSettings, load_contract, load_digest
from auras_ros.nodes.actuator.status import ActuatorStatus
from auras_ros.nodes.common.config import check_given
from auras_ros.nodes.common.diagnostics import Diagnostics
from auras_ros.nodes.common.messages import json_message
from auras_ros.nodes.common.qos import LATCHED
from auras_ros.nodes.common.stop_signature import KeyFileError
from auras_ros.nodes.common.watchdog import Watchdog
from auras_ros.parameters import ParameterError
from auras_ros.repeated_lines import RepeatedLines, set_log_interval
from auras_ros.ros import Clock, ClockType, Node
from auras_ros.ros.msg import String
from auras_ros.ros.process import run_node
from auras_ros.ros.settings import read_parameters
from auras_ros.ros.srv import Trigger

STATE_PERIOD_S = 0.05
LOOK_PERIOD_S = 0.25  # how often the graph is checked for other publishers of commands
# A thread that hangs in the middleware for so long does not come back (Fast DDS, after one forged packet); it may hold
# the interpreter lock, so that no thread runs. Another process ends this one then, and the supervisor starts it again.
HUNG_S = 4.0
COLLECT_PERIOD_S = 1.0  # garbage collection; the automatic collector is off, and this thread may wait


class Actuator(Node):
    """Connects the parts: inputs -> command loop -> publishers, services, state and diagnostics."""

    def __init__(self, **node_options: Any) -> None:
        super().__init__("actuator", **node_options)
        settings = self.settings = read_parameters(self, ActuatorSettings)
        set_log_interval(settings.log_every_s)
        contract = load_contract(settings.checkpoint)
        self._monotonic = MonotonicClock()
        self._diagnostics = Diagnostics(self, hardware_id=contract.channels[0].frame)
        qos = self._diagnostics.qos
        outputs = CommandPublishers(self, settings, contract, qos)
        digest = load_digest(settings.checkpoint)
        self._loop = CommandLoop(settings, contract, outputs, self._monotonic, digest)
        self._inputs = ActuatorInputs(self, settings, contract, self._loop, qos)
        self._conflict = OtherPublishers(self, settings.command_topics)
        self._subscribers = CommandSubscribers(self, outputs.types, settings.action_topic)
        self._status = ActuatorStatus(settings, self._loop, self._inputs, self._conflict, self._subscribers)
        self._lines = RepeatedLines()
        self._diagnostics.add_all(self._status.tasks())
        self._diagnostics.count_also(self._inputs.stop.node)  # that node has no diagnostics of its own
        self._arm_now, self._armed_ns = settings.arm_on_start, 0
        self._watchdog = Watchdog(HUNG_S, self._on_no_watchdog)
        self._state = self.create_publisher(String, "~/state", LATCHED)
        self.create_service(Trigger, "~/arm", partial(self._answer, self._on_arm))
        self.create_service(Trigger, "~/release_stop", partial(self._answer, self._inputs.stop.buttons.release))
        # ~/stop is served by the emergency stop's thread. No request of ~/stop or ~/disarm may be lost.
        self.create_service(Trigger, "~/disarm", partial(self._answer, self._on_disarm), qos_profile=REQUESTS)
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self.create_timer(STATE_PERIOD_S, self._report, clock=steady)
        self.create_timer(LOOK_PERIOD_S, self._look, clock=steady)
        self.create_timer(COLLECT_PERIOD_S, gc.collect, clock=steady)

    def start(self) -> None:
        """Raise the process's priority, then start the emergency stop and the ticks."""
        self._watchdog.start()  # before this process's priority is raised, which a child would inherit
        self._loop.configure_process()  # before any thread is started, because it sets the priority of all
        self._inputs.start()
        self._loop.start()
        self.get_logger().info(f"emergency stop: {self._inputs.stop.rules}")

    def working(self) -> bool:
        """Whether the threads of the ticks and of the emergency stop are alive."""
        return self._loop.working() and self._inputs.stop.working()

    def halt(self) -> None:
        """Disarm and publish the final hold command."""
        self._watchdog.close()
        self._loop.halt()
        self._inputs.close()

    def _on_no_watchdog(self, why: str) -> None:
        self.get_logger().error(
            f"no watchdog process: an actuator that hangs in the middleware will not be ended: {why}"
        )

    def _arm(self) -> tuple[bool, str]:
        reason = arming_refusal(self._inputs.situation(self._conflict.known), self.settings)
        if reason:
            return False, reason
        self._armed_ns = self._monotonic.now_ns()
        verdict = self._loop.arm(self._loop.position.position if self.settings.measured_start else None)
        if verdict.ok and self._subscribers.mismatch:
            return True, f"{verdict.detail}; but {self._subscribers.mismatch}"
        return verdict.ok, verdict.detail

    def _answer(
        self, act: Callable[[], tuple[bool, str]], request: Trigger.Request, response: Trigger.Response
    ) -> Trigger.Response:
        response.success, response.message = act()
        self._report()
        return response

    def _on_arm(self) -> tuple[bool, str]:
        self._look()
        return self._arm()

    def _on_disarm(self) -> tuple[bool, str]:
        verdict = self._loop.disarm()
        return verdict.ok, verdict.detail

    def _look(self) -> None:
        """Check who else publishes commands and joint states, and who receives commands; log and report at once who
        else publishes them."""
        self._inputs.look_at_joint_publishers()
        self._look_at_subscribers()
        if self._conflict.look():
            if self._conflict.others:
                text = conflict_text(self._conflict.others)
                if self._monotonic.now_ns() - self._armed_ns < DISCOVERY_NS:  # it was there before, undiscovered
                    self._loop.end(text)
                self.get_logger().error(text)
            self._diagnostics.changed()

    def _look_at_subscribers(self) -> None:
        self._subscribers.look()
        mismatch = self._subscribers.mismatch
        if mismatch and (line := self._lines.line("subscribers", mismatch, is_event=False)):
            self.get_logger().warning(line)

    def _log_event(self, event: Event) -> None:
        """Holding and going on again may alternate many times a second; every other change is logged."""
        text = f"{event.previous.value} -> {event.state.value}: {event.reason}"
        if {event.previous, event.state} == {SafetyState.ARMED, SafetyState.HOLDING}:
            text = self._lines.line("hold", text)
        if text:
            self.get_logger().info(text)

    def _report(self) -> None:
        if self._inputs.stop.has_run_within(HUNG_S):
            self._watchdog.beat(watched=True)
        self._inputs.look()
        if self._arm_now and (self._loop.stopped_by_person or self._arm()[0]):
            self._arm_now = False
        events = self._loop.drain_events()
        for event in events:
            self._log_event(event)
        self._state.publish(json_message(self._status.fields()))
        if events:
            self._diagnostics.changed()


def main(argv: list[str] | None = None) -> int:
    """Entry point of the executable `actuator`."""
    bad_settings = (ContractError, ParameterError, KeyFileError, OSError)
    check = partial(check_given, "actuator")
    return run_node(lambda _: Actuator(), bad_settings, check_arguments=check, argv=argv, shared_memory=False)


if __name__ == "__main__":
    sys.exit(main())
