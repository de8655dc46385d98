"""The agent: cameras and joint states in, action chunks with their provenance out. It never publishes a command.

A lifecycle node: configure reads the parameters, loads and warms up; activate starts frames at once; deactivate ends
them. The ROS executor's thread takes messages, the workers of the mode run frames in threads of their own, and the
heartbeat tells the actuator that this process is alive and in which state. While the actuator is silent no chunk is
published, because no other process would check it.
"""

from __future__ import annotations

import gc
import socket
import threading
import uuid
from typing import Any, NoReturn

from auras_ros.clock import MonotonicClock
from auras_ros.exit_status import may_pass
from auras_ros.nodes.agent.configured import ConfiguredPolicy
from auras_ros.nodes.agent.frame_runner import FrameRunner
from auras_ros.nodes.agent.hang_detector import frame_limit_ns
from auras_ros.nodes.agent.heartbeat import Pulse
from auras_ros.nodes.agent.loading import MAY_PASS, REFUSALS, PolicyLoader
from auras_ros.nodes.agent.overload import OverloadLevel
from auras_ros.nodes.agent.publishers import AgentPublishers
from auras_ros.nodes.agent.resource_usage import footprint, in_a_line
from auras_ros.nodes.agent.settings import AgentSettings
from auras_ros.nodes.agent.status import AgentStatus
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


class StoppedError(RuntimeError):
    """The process was asked to end while configuring."""


class Agent(LifecycleNode):
    """`asked`: set when the process should end; configure then aborts."""

    def __init__(self, asked: threading.Event | None = None, **node_options: Any) -> None:
        super().__init__("agent", **node_options)
        answer_illegal_transitions(self)
        declare_parameters(self, AgentSettings, live=AgentSettings.__dataclass_fields__)
        self.add_on_set_parameters_callback(self._on_set)
        self._asked = asked or threading.Event()
        self._monotonic = MonotonicClock()
        self._configured: ConfiguredPolicy | None = None
        self._frames: FrameRunner | None = None
        self._refused: Exception | None = None
        self._starting = False
        self._limit_ns = 0  # how long a frame may take
        self.status = AgentStatus(uuid.uuid4().hex[:12])
        self._diagnostics = Diagnostics(self, socket.gethostname())
        self._qos = self._diagnostics.qos
        self._voice = AgentPublishers(self, self._qos)
        self.create_service(Trigger, "~/reset", self._on_reset)
        for task, check in self.status.tasks().items():
            self._diagnostics.add(task, check)
        self._diagnostics.add("qos", self._qos.check)
        self._pulse = Pulse(self.status, self._voice, self.get_logger())

    # -- the process --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the heartbeat; with `autostart` configure and activate. Raises the error if configure refuses."""
        self._pulse.start()
        if not self.get_parameter("autostart").value:
            return
        self._starting = True
        for go in (self.trigger_configure, self.trigger_activate):
            if not self._asked.is_set() and go() != SUCCESS and not self._asked.is_set():
                raise self._refused or RuntimeError("agent: could not start; see the log")
        self._starting = False

    def working(self) -> bool:
        """Whether the heartbeat's thread is alive; it ends when a frame hangs or a worker fails."""
        return self._pulse.alive()

    def halt(self) -> None:
        """End of the process: publish nothing more except a last heartbeat with the state `finalized`."""
        hung = self._pulse.hung
        if not hung:
            self._pulse.unguard()
        self._stop_frames(0.0 if hung else None)
        self._pulse.stop()
        if not hung:
            self._now("finalized")
            self._pulse.beat()

    # -- transitions (executor thread) --------------------------------------------------------------------

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._refused = None
        self._now("configuring")
        try:
            self._configure(current_parameters(self, AgentSettings))
        except REFUSALS as error:
            self._refused = error
            if not self._starting:  # else `start` raises it
                self.get_logger().error(f"cannot configure: {error}")
            if isinstance(error, MAY_PASS) or may_pass(error):
                return TransitionCallbackReturn.ERROR  # the caller may try again: see `launching`
            self._now("unconfigured", f"refused: {error}", wrong=True)
            return FAILURE
        except StoppedError:
            self._now("unconfigured")
            return FAILURE
        self._now("inactive")
        return SUCCESS

    def _configure(self, settings: AgentSettings) -> None:
        self.status.session, began_ns = uuid.uuid4().hex[:12], self._monotonic.now_ns()
        self.get_logger().info(f"loading {settings.checkpoint}, plan '{settings.plans()[0]}'")
        loading, said = PolicyLoader(settings, self.status.session), ""
        while not loading.wait(POLL_S):
            if loading.progress != said:
                said = loading.progress
                self._now("configuring", said)
            if self._asked.is_set():
                raise StoppedError
        self._configured = ConfiguredPolicy(self, settings, loading.result(), self._qos)
        self.status.configured = self._configured
        executors = [pipeline.executor for pipeline in self._configured.pipelines]
        self._limit_ns = frame_limit_ns(max(each.frame_ns * len(each.workers) for each in executors))
        self.get_logger().info(f"golden sample replayed, ready as session {self.status.session}")
        self._say_what_it_takes((self._monotonic.now_ns() - began_ns) / 1e6)

    def _say_what_it_takes(self, configure_ms: float) -> None:
        assert self._configured is not None
        self.status.footprint = values = footprint(self._configured.pipelines, configure_ms)
        self.get_logger().info(in_a_line(values))
        if said := values.get("uncaptured"):
            self.get_logger().warning(f"stages that are not captured, so that frames take longer: {said}")

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        began_ns = self._monotonic.now_ns()
        assert self._configured is not None
        self._now("activating")
        frames = self._configured.frames(self._voice, self._on_step)
        self._pulse.expect(self._limit_ns)
        frames.start()
        self._frames = self.status.frames = frames
        self.status.activate_ms = (self._monotonic.now_ns() - began_ns) / 1e6
        self._now("active")
        return SUCCESS

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._now("deactivating")
        if not self._stop_frames():
            return TransitionCallbackReturn.ERROR
        self._now("inactive")
        return SUCCESS

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._now("cleaningup")
        self._unload()
        self._now("unconfigured")
        return SUCCESS

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._now("shuttingdown")
        if self._stop_frames():
            self._unload()
        self._now("finalized")
        return SUCCESS

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Release everything and return to unconfigured."""
        self._now("errorprocessing")
        if not self._stop_frames():
            self._now("finalized", "a frame did not end", wrong=True)
            return FAILURE
        self._unload()
        said = f"refused: {self._refused}" if self._refused else "an error; see the log"
        self._now("unconfigured", said, wrong=True)
        return SUCCESS

    def _now(self, lifecycle: str, doing: str = "", *, wrong: bool = False) -> None:
        self.status.now(lifecycle, doing, wrong)
        self._diagnostics.changed()

    def _stop_frames(self, timeout_s: float | None = None) -> bool:
        """Stop the frames. Returns whether they have ended; otherwise the heartbeat's thread goes on checking them."""
        frames = self._frames
        ended = frames is None or (frames.halt() if timeout_s is None else frames.halt(timeout_s))
        if ended:
            self._frames = self.status.frames = None
            self._pulse.relax()
        return ended

    def _unload(self) -> None:
        configured, self._configured, self.status.configured = self._configured, None, None
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
        if self._frames is None:
            response.success, response.message = False, f"agent: {self.status.lifecycle}: nothing to reset"
            return response
        self._frames.reset()
        response.success, response.message = True, "new epoch from the next frame on"
        return response

    # -- other threads ------------------------------------------------------------------------------------

    def _on_step(self, step: OverloadLevel) -> None:
        """Called in a worker's thread: overload changed what runs. Diagnostics report it within a second."""
        said = {
            OverloadLevel.HALTED: "overloaded: no chunk is published until frames are in time again",
            OverloadLevel.FALLBACK: "overloaded: fallback plan from now on",
            OverloadLevel.FIRST: "no longer overloaded: chunks are published again",
        }
        self.get_logger().error(said[step])


def main(argv: list[str] | None = None) -> int:
    """Run the agent to its end. Returns the exit status."""
    return run_node(Agent, argv, REFUSALS, MAY_PASS, check_given)


def program() -> NoReturn:
    """Entry point of the executable `agent`."""
    leave(main())


if __name__ == "__main__":
    program()
