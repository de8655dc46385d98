"""The agent: cameras and joint states in, action chunks with their provenance out. It never publishes a command.

A lifecycle node: configure reads the parameters, loads and warms up; activate starts frames at once; deactivate ends
them. The ROS executor's thread takes messages, the workers of the mode run frames in threads of their own, and the
heartbeat tells the actuator that this process is alive and in which state. While the actuator is silent no chunk is
published, because no other process would check it.
"""

from __future__ import annotations

import gc
import socket
import uuid
from collections.abc import Sequence
from concurrent.futures import wait
from functools import partial
from typing import Any, NoReturn

from auras_ros.clock import MonotonicClock
from auras_ros.exit_status import may_pass
from auras_ros.nodes.agent.configured import ConfiguredPolicy
from auras_ros.nodes.agent.frame_runner import STALL_S
from auras_ros.nodes.agent.heartbeat import Heartbeat, frame_limit_ns
from auras_ros.nodes.agent.loading import BAD_SETTINGS_ERRORS, TOO_SLOW_ERRORS, PolicyLoader
from auras_ros.nodes.agent.overload import OverloadLevel
from auras_ros.nodes.agent.publishers import AgentPublishers
from auras_ros.nodes.agent.settings import AgentSettings
from auras_ros.nodes.agent.status import AgentStatus, resource_usage
from auras_ros.nodes.agent.transitions import answer_illegal_transitions
from auras_ros.nodes.common.config import check_given
from auras_ros.nodes.common.diagnostics import Diagnostics
from auras_ros.ros import LifecycleNode, LifecycleState, Parameter, TransitionCallbackReturn
from auras_ros.ros.msg import SetParametersResult
from auras_ros.ros.process import leave, run_node
from auras_ros.ros.settings import current_parameters, declare_parameters, refusal
from auras_ros.ros.srv import Trigger

SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE
POLL_S = 0.1  # how often configure reports its progress


class Agent(LifecycleNode):
    """`asked`: not empty any more when the process should end; configure then aborts."""

    def __init__(self, asked: Sequence[int] = (), **node_options: Any) -> None:
        super().__init__("agent", **node_options)
        answer_illegal_transitions(self)
        declare_parameters(self, AgentSettings, live=AgentSettings.__dataclass_fields__)
        self.add_on_set_parameters_callback(self._on_set)
        self._stop_requested = asked
        self._monotonic = MonotonicClock()
        self._refused: Exception | None = None
        self._starting = False
        self.status = AgentStatus(uuid.uuid4().hex[:12])
        self._diagnostics = Diagnostics(self, socket.gethostname())
        self._qos = self._diagnostics.qos
        self._outputs = AgentPublishers(self, self._qos)
        self.create_service(Trigger, "~/reset", self._on_reset)
        self._diagnostics.add_all(self.status.tasks())
        self._heartbeat = Heartbeat(self.status, self._outputs, self.get_logger())

    # -- the process --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the heartbeat; with `autostart` configure and activate. Raises the error if configure refuses."""
        self._heartbeat.start()
        if not self.get_parameter("autostart").value:
            return
        self._starting = True
        for go in (self.trigger_configure, self.trigger_activate):
            if not self._stop_requested and go() != SUCCESS and not self._stop_requested:
                raise self._refused or RuntimeError("agent: could not start; see the log")
        self._starting = False

    def working(self) -> bool:
        """Whether the heartbeat's thread is alive; it ends when a frame hangs or a worker fails."""
        return self._heartbeat.alive()

    def halt(self) -> None:
        """End of the process: publish nothing more except a last heartbeat with the state `finalized`."""
        hung = self._heartbeat.hung
        if not hung:
            self._heartbeat.release_watchdog()
        self._stop_frames(0.0 if hung else STALL_S)
        self._heartbeat.stop()
        if not hung:
            self._set_state("finalized")
            self._heartbeat.beat()

    # -- transitions (executor thread) --------------------------------------------------------------------

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._refused = None
        self._set_state("configuring")
        try:
            ready = self._configure(current_parameters(self, AgentSettings))
        except BAD_SETTINGS_ERRORS as error:
            self._refused = error.with_traceback(None)  # whose frames hold the policy
            if not self._starting:  # else `start` raises it
                self.get_logger().error(f"cannot configure: {error}")
            if isinstance(error, TOO_SLOW_ERRORS) or may_pass(error):
                return TransitionCallbackReturn.ERROR  # the caller may try again: see `launching`
            self._set_state("unconfigured", f"refused: {error}", wrong=True)
            return FAILURE
        self._set_state("inactive" if ready else "unconfigured")
        return SUCCESS if ready else FAILURE

    def _configure(self, settings: AgentSettings) -> bool:
        """Returns False if the process was asked to end meanwhile."""
        self.status.session, began_ns = uuid.uuid4().hex[:12], self._monotonic.now_ns()
        self.get_logger().info(f"loading {settings.checkpoint}, plan '{settings.plans()[0]}'")
        loader, progress = PolicyLoader(settings, self.status.session), ""
        while not wait([loader.pipelines], POLL_S).done:
            if loader.progress != progress:
                progress = loader.progress
                self._set_state("configuring", progress)
            if self._stop_requested:
                return False
        self.status.configured = configured = ConfiguredPolicy(self, settings, loader.pipelines.result(), self._qos)
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

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._set_state("deactivating")
        if not self._stop_frames():
            return TransitionCallbackReturn.ERROR
        self._set_state("inactive")
        return SUCCESS

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._set_state("cleaningup")
        self._unload()
        self._set_state("unconfigured")
        return SUCCESS

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._set_state("shuttingdown")
        if self._stop_frames():
            self._unload()
        self._set_state("finalized")
        return SUCCESS

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Release everything and return to unconfigured."""
        self._set_state("errorprocessing")
        if not self._stop_frames():
            self._set_state("finalized", "a frame did not end", wrong=True)
            return FAILURE
        self._unload()
        said = f"refused: {self._refused}" if self._refused else "an error; see the log"
        self._set_state("unconfigured", said, wrong=True)
        return SUCCESS

    def _set_state(self, lifecycle: str, doing: str = "", *, wrong: bool = False) -> None:
        self.status.set_state(lifecycle, doing, wrong)
        self._diagnostics.changed()

    def _stop_frames(self, timeout_s: float = STALL_S) -> bool:
        """Stop the frames. Returns whether they have ended; otherwise the heartbeat's thread goes on checking them."""
        frames = self.status.frames
        ended = frames is None or frames.halt(timeout_s)
        if ended:
            self.status.frames = None
            self._heartbeat.frames_ended()
        return ended

    def _unload(self) -> None:
        configured, self.status.configured = self.status.configured, None
        if configured is not None:
            configured.close()
            del configured
            gc.collect()

    # -- requests (executor thread) -----------------------------------------------------------------------

    def _on_set(self, parameters: list[Parameter]) -> SetParametersResult:
        """Refuse settings while active: they are only read at configure, so a change would have no effect."""
        lifecycle = self.status.lifecycle
        for each in parameters:
            reason = refusal(self, AgentSettings, each)
            if each.name == "autostart":
                reason = "agent: autostart: can only be set at start-up"
            elif each.name in AgentSettings.__dataclass_fields__ and lifecycle not in ("unconfigured", "inactive"):
                reason = f"agent: {each.name}: read at configure; the agent is {lifecycle}: deactivate it first"
            if reason:
                return SetParametersResult(successful=False, reason=reason)
        return SetParametersResult(successful=True)

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
