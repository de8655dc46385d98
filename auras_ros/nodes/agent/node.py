"""The agent: cameras and joint states in, action chunks with their provenance out. It never publishes a command.

A lifecycle node: configure reads the parameters, loads and warms up; activate starts frames at once; deactivate ends
them. The ROS executor's thread takes messages, the workers of the mode run frames in threads of their own, and the
heartbeat tells the actuator that this process is alive and in which state. While the actuator is silent no chunk is
published, because no other process would check it.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, NoReturn

from auras_ros.nodes.agent.configured import ConfiguredPolicy
from auras_ros.nodes.agent.loading import BAD_SETTINGS_ERRORS, TOLD_ERRORS, TOO_SLOW_ERRORS, load_policy
from auras_ros.nodes.agent.overload import OverloadLevel
from auras_ros.nodes.agent.publishers import AgentPublishers
from auras_ros.nodes.agent.settings import AgentSettings
from auras_ros.nodes.agent.status import AgentStatus, resource_usage
from auras_ros.nodes.common.config import check_given
from auras_ros.nodes.common.heartbeat import frame_limit_ns
from auras_ros.nodes.common.loaded_node import STALL_S, SUCCESS, LoadedNode
from auras_ros.ros import LifecycleState, TransitionCallbackReturn
from auras_ros.ros.process import leave, run_node
from auras_ros.ros.srv import Trigger


class Agent(LoadedNode):
    """`asked`: not empty any more when the process should end; configure then aborts."""

    NAME: ClassVar[str] = "agent"
    SETTINGS: ClassVar[type[Any]] = AgentSettings
    BAD_SETTINGS_ERRORS: ClassVar[tuple[type[Exception], ...]] = BAD_SETTINGS_ERRORS
    TOO_SLOW_ERRORS: ClassVar[tuple[type[Exception], ...]] = TOO_SLOW_ERRORS
    TOLD_ERRORS: ClassVar[tuple[type[Exception], ...]] = TOLD_ERRORS

    def __init__(self, asked: Sequence[int] = (), **node_options: Any) -> None:
        self.status = AgentStatus(uuid.uuid4().hex[:12])
        super().__init__(self.status, asked, **node_options)
        self._outputs = AgentPublishers(self, self._qos)
        self.create_service(Trigger, "~/reset", self._on_reset)

    # -- the life (executor thread) -----------------------------------------------------------------------

    def _configure(self, settings: AgentSettings) -> bool:
        session, began_ns = self._new_session(), self._monotonic.now_ns()
        self.get_logger().info(f"loading {settings.checkpoint}, plan '{settings.plans()[0]}'")
        plans = self._load(partial(load_policy, settings, session))
        if plans is None:
            return False
        self.status.configured = configured = ConfiguredPolicy(
            self, settings, plans.pipelines, self._qos, self._heartbeat.beat_early
        )
        self.status.checkpoint = plans.digest
        self.get_logger().info(f"golden sample replayed, ready as session {self.status.session}")
        configure_ms = (self._monotonic.now_ns() - began_ns) / 1e6
        self.status.resources = resources = resource_usage(configured.pipelines, configure_ms)
        uncaptured = resources.get("uncaptured")
        self.get_logger().info(", ".join(f"{key} {text}" for key, text in resources.items() if key != "uncaptured"))
        if uncaptured:
            self.get_logger().warning(f"stages that are not captured, so that frames take longer: {uncaptured}")
        return True

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        began_ns, configured = self._monotonic.now_ns(), self.status.configured
        if configured is None:
            return TransitionCallbackReturn.ERROR
        self._set_state("activating")
        frames = configured.frames(self._outputs, self._on_overload_changed)
        executors = [pipeline.executor for pipeline in configured.pipelines]
        self._heartbeat.frames_begin(frame_limit_ns(max(each.frame_ns * len(each.workers) for each in executors)))
        frames.open()
        for live in frames.lives:
            live.start()
        self.status.frames_started(frames, (self._monotonic.now_ns() - began_ns) / 1e6)
        self._set_state("active")
        return SUCCESS

    def _stop(self, timeout_s: float = STALL_S) -> bool:
        frames = self.status.frames
        ended = frames is None or frames.halt(timeout_s)
        if ended:
            self.status.frames = None
        return ended

    def _close(self) -> None:
        configured, self.status.configured = self.status.configured, None
        if configured is not None:
            configured.close()

    # -- requests (executor thread) -----------------------------------------------------------------------

    def _on_reset(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        frames = self.status.frames
        if frames is not None:
            frames.reset()
        response.success = frames is not None
        nothing = f"agent: {self.status.lifecycle}: nothing to reset"
        response.message = "new epoch from the next frame on" if frames else nothing
        return response

    # -- other threads ------------------------------------------------------------------------------------

    def _on_overload_changed(self, level: OverloadLevel) -> None:
        """Called in a worker's thread. Diagnostics report it within a second."""
        self.get_logger().error(
            {
                OverloadLevel.HALTED: "overloaded: no chunk is published until frames are in time again",
                OverloadLevel.FALLBACK: "overloaded: the fallback plan runs, and its chunks are published",
                OverloadLevel.FIRST: "no longer overloaded: chunks are published again",
            }[level]
        )


# argv -> exit status
main = partial(run_node, Agent, BAD_SETTINGS_ERRORS, TOO_SLOW_ERRORS, partial(check_given, "agent"))


def program() -> NoReturn:
    """Entry point of the executable `agent`."""
    leave(main())


if __name__ == "__main__":
    leave(main())
