"""The actuator: the only publisher of commands, in a process of its own, at a fixed rate.

It takes chunks from the agent's private topic, gets one command per tick from the action stream, and publishes it. When
the agent's heartbeat stops it holds. It loads no model and shares no interpreter with inference. Nothing bypasses its
limits, because nothing else publishes commands. The rules of arming are in `arming`.
"""

from __future__ import annotations

import sys
from typing import Any

from auras_ros.action import ContractError
from auras_ros.clock import MonotonicClock
from auras_ros.nodes.actuator.agent_watch import AgentWatch
from auras_ros.nodes.actuator.arming import refusal
from auras_ros.nodes.actuator.command_loop import CommandLoop
from auras_ros.nodes.actuator.commands import CommandPublishers
from auras_ros.nodes.actuator.emergency_stop import REQUESTS
from auras_ros.nodes.actuator.inputs import LATCHED, ActuatorInputs
from auras_ros.nodes.actuator.other_publishers import DISCOVERY_NS, OtherPublishers, conflict_text
from auras_ros.nodes.actuator.position import PositionMonitor
from auras_ros.nodes.actuator.realtime import collect
from auras_ros.nodes.actuator.settings import ActuatorSettings, load_contract
from auras_ros.nodes.actuator.status import ActuatorStatus
from auras_ros.nodes.common.config import check_given
from auras_ros.nodes.common.diagnostics import Diagnostics
from auras_ros.nodes.common.messages import json_message
from auras_ros.parameters import ParameterError
from auras_ros.ros import Clock, ClockType, Node
from auras_ros.ros.msg import String
from auras_ros.ros.process import run_node
from auras_ros.ros.settings import read_parameters
from auras_ros.ros.srv import Trigger

STATE_PERIOD_S = 0.05
LOOK_PERIOD_S = 0.25  # how often the graph is checked for other publishers of commands
COLLECT_PERIOD_S = 1.0  # garbage collection; the automatic collector is off, and this thread may wait


class Actuator(Node):
    """Connects the parts: inputs -> drive -> outputs, services, state and diagnostics."""

    def __init__(self, **node_options: Any) -> None:
        super().__init__("actuator", **node_options)
        settings = self.settings = read_parameters(self, ActuatorSettings)
        contract = load_contract(settings.checkpoint)
        self._monotonic = MonotonicClock()
        self._diagnostics = Diagnostics(self, hardware_id=contract.channels[0].frame)
        qos = self._diagnostics.qos
        self._agent = AgentWatch(settings.agent_timeout_ms)
        outputs = CommandPublishers(self, settings, contract, qos)
        self._place = PositionMonitor(contract, settings.place_tolerance if settings.measured_start else 0.0)
        self._drive = CommandLoop(settings, contract, outputs, self._agent, self._place, self._monotonic)
        self._inputs = ActuatorInputs(self, settings, contract, self._drive, self._agent, self._place, qos)
        self._conflict = OtherPublishers(self, settings.command_topics)
        self._said = ActuatorStatus(settings, self._drive, self._inputs, self._agent, self._conflict)
        self._said.add_to(self._diagnostics, qos)
        self._diagnostics.count_also(self._inputs.stop.node)  # that node has no diagnostics of its own
        self._arm_now, self._armed_ns = settings.arm_on_start, 0
        self._state = self.create_publisher(String, "~/state", LATCHED)
        for name, callback in (("arm", self._on_arm), ("release_stop", self._on_release_stop)):
            self.create_service(Trigger, f"~/{name}", callback)
        # ~/stop is served by the emergency stop's thread. No request of ~/stop or ~/disarm may be lost.
        self.create_service(Trigger, "~/disarm", self._on_disarm, qos_profile=REQUESTS)
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self.create_timer(STATE_PERIOD_S, self._report, clock=steady)
        self.create_timer(LOOK_PERIOD_S, self._look, clock=steady)
        self.create_timer(COLLECT_PERIOD_S, collect, clock=steady)

    def start(self) -> None:
        """Raise the process's priority, then start the emergency stop and the ticks."""
        self._drive.settle()  # first, because it sets the priority of all threads, also of those started above it
        self._inputs.start()
        self._drive.start()

    def working(self) -> bool:
        """Whether the threads of the ticks and of the emergency stop are alive."""
        return self._drive.working() and self._inputs.stop.working()

    def halt(self) -> None:
        """Disarm and publish the final hold command."""
        self._drive.halt()
        self._inputs.close()

    def _arm(self) -> tuple[bool, str]:
        reason = refusal(self._inputs.situation(self._conflict.known), self.settings)
        if reason:
            return False, reason
        self._armed_ns = self._monotonic.now_ns()
        verdict = self._drive.arm(self._place.position if self.settings.measured_start else None)
        return verdict.ok, verdict.detail

    def _on_arm(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        self._look()
        response.success, response.message = self._arm()
        self._report()
        return response

    def _on_disarm(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        verdict = self._drive.disarm()
        response.success, response.message = verdict.ok, verdict.detail
        self._report()
        return response

    def _on_release_stop(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        response.success, response.message = self._inputs.stop.release()
        self._report()
        return response

    def _look(self) -> None:
        """Check who else publishes commands; log and report a change at once."""
        if self._conflict.look():
            if self._conflict.others:
                text = conflict_text(self._conflict.others)
                self.get_logger().error(text)
                if self._monotonic.now_ns() - self._armed_ns < DISCOVERY_NS:  # it was there before, undiscovered
                    self._drive.end(text)
            self._diagnostics.changed()

    def _report(self) -> None:
        self._inputs.look()
        if self._arm_now and (self._drive.told_to_stop or self._arm()[0]):
            self._arm_now = False
        events = self._drive.drain_events()
        for event in events:
            self.get_logger().info(f"{event.previous.value} -> {event.state.value}: {event.reason}")
        self._state.publish(json_message(self._said.fields()))
        if events:
            self._diagnostics.changed()


def main(argv: list[str] | None = None) -> int:
    """Entry point of the executable `actuator`."""
    bad_settings = (ContractError, ParameterError, OSError)
    return run_node(lambda _: Actuator(), argv, bad_settings, check_arguments=check_given)


if __name__ == "__main__":
    sys.exit(main())
