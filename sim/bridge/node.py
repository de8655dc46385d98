"""A world as a ROS 2 node: cameras, joint states and clock out, actions in, reset as a service.

It stands where a robot would: one control step each period of an absolute grid, whatever the agent does.
Each tick steps the world with the newest valid action and then shows it: what is stamped T is the world at T,
and the active action at the next tick is the answer to it. The rules are `game`'s; this module never decides about
them, and knows no policy and no world.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import threading
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from auras_ros.clock import MonotonicClock, SchedulerClock
from auras_ros.parameters import ParameterError
from auras_ros.repeated_lines import RepeatedLines, set_log_interval
from auras_ros.ros import Clock, ClockType, DurabilityPolicy, Node, Parameter, QoSProfile, ReliabilityPolicy
from auras_ros.ros.bounded import PayloadLimits, bounded, read_message
from auras_ros.ros.cdr_reader import PayloadError
from auras_ros.ros.image import IMAGES, to_time_msg
from auras_ros.ros.msg import (
    ClockMsg,
    Float64,
    Float64MultiArray,
    Header,
    Image,
    JointState,
    SetParametersResult,
    String,
)
from auras_ros.ros.process import leave, run_node
from auras_ros.ros.settings import read_parameters, refusal
from auras_ros.ros.srv import Trigger
from auras_ros.sim.bridge.cameras import LATEST, CameraPublishers, encoder, rgb8_message
from auras_ros.sim.bridge.game import Game
from auras_ros.sim.bridge.settings import bridge_settings
from auras_ros.sim.world import ActionRefusal, Sim, WorldCamera, WorldLostError
from auras_ros.sim.worlds import find

COLLECT_PERIOD_S = 10.0  # a world that was reset is a cycle of objects: left to themselves they pile up for an hour
LIVE = ("seed", "shift_ms")  # settings that may change while a world runs, beside the world's own
LATCHED = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)
# Every action is judged, so that refusals are counted; the newest valid one is active.
ACTIONS = QoSProfile(depth=10)
ACTION_LIMITS = PayloadLimits(max_bytes=64 * 1024, max_first=8)  # two dimensions, with two labels, are valid


class SimBridge(Node):
    """Actions and resets arrive in the executor's thread, `run` ticks in its own; a lock guards the game."""

    def __init__(self, sim: Sim, clock: SchedulerClock | None = None, **node_options: Any) -> None:
        """Raises ParameterError for a parameter that cannot be used."""
        super().__init__(sim.world.name, **node_options)
        self._live = (*LIVE, *sim.world.live)
        self.settings = read_parameters(self, bridge_settings(sim), self._live)
        set_log_interval(self.settings.log_every_s)
        self._monotonic = clock or MonotonicClock()
        self._lock = threading.Lock()
        self._game = Game(self.settings)
        self._halted = threading.Event()
        self._lines = RepeatedLines()
        self._ticking = threading.Thread(target=self.run, name=f"{sim.world.name} ticks", daemon=True)
        self._sim_ns, self._missed, self._told = 0, 0, ""
        self._shift_ns = round(self.settings.shift_ms * 1e6)
        self._open_topics()
        self.add_on_set_parameters_callback(self._on_parameters)

    def _open_topics(self) -> None:
        world, viewer_px, encode = self._game.world, self.settings.viewer_px, encoder(self.settings.compression)
        self._cameras = [CameraPublishers.of(self, each, encode) for each in world.cameras]
        self._joints = self.create_publisher(JointState, "joint_states", LATEST)
        self._status = self.create_publisher(String, "~/status", 10)
        self._reward = self.create_publisher(Float64, "~/reward", 10)
        self._viewers = [self.create_publisher(Image, "camera/viewer/image_raw", IMAGES)] if viewer_px else []
        self._prompt = self.create_publisher(String, "prompt", LATCHED) if world.instruction else None
        self._time = self.create_publisher(ClockMsg, "/clock", LATEST) if self.settings.publish_clock else None
        take = bounded(
            self.resolve_topic_name("action"),
            partial(read_message, kind=Float64MultiArray),
            self._on_action,
            ACTION_LIMITS,
            self._refuse_action,
        )
        self.create_subscription(Float64MultiArray, "action", take, ACTIONS, raw=True)
        self.create_service(Trigger, "~/reset", self._on_reset)
        self.create_timer(COLLECT_PERIOD_S, self._collect, clock=Clock(clock_type=ClockType.STEADY_TIME))

    def _collect(self) -> None:
        gc.collect()

    def _on_action(self, message: Any) -> None:
        dims = message.layout.dim
        names, label = (dims[i].label if len(dims) > i else "" for i in range(2))
        with self._lock:
            reason = self._game.offer(message.data, self._monotonic.now_ns(), names, label)
        if reason is not None:
            of_before = reason is ActionRefusal.STALE
            hint = ": made for the episode before, and the world waits for one of this episode" if of_before else ""
            self._say_refused(f"{reason.value}{hint}")

    def _refuse_action(self, error: PayloadError) -> None:
        """Count a payload that is no action."""
        with self._lock:
            self._game.refuse(ActionRefusal.UNREADABLE)
        self._say_refused(str(error))

    def _say_refused(self, reason: str) -> None:
        if line := self._lines.line("action", f"action refused: {reason}"):
            self.get_logger().warning(line)

    def _on_reset(self, _request: Any, response: Any) -> Any:
        with self._lock:
            try:
                self._game.reset()
            except WorldLostError as error:  # the next tick starts a new one
                response.success, response.message = False, str(error)
                return response
            status = self._game.status
        response.success = True
        response.message = json.dumps({"episode": status.episode, "seed": status.seed})
        return response

    def _on_parameters(self, parameters: list[Parameter]) -> Any:
        """`seed` is that of the next reset, `shift_ms` holds from the tick after next, an option of the world at once;
        nothing else changes while it runs."""
        for each in parameters:
            if reason := self._refusal(each):
                return SetParametersResult(successful=False, reason=reason)
        with self._lock:
            for each in parameters:
                if each.name == "seed":
                    self._game.next_seed = each.value
                elif each.name == "shift_ms":
                    self._shift_ns = round(each.value * 1e6)
                elif each.name in self._live:
                    try:
                        self._game.disturb(each.name, each.value)
                    except (ValueError, WorldLostError) as error:
                        return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)

    def _refusal(self, given: Parameter) -> str:
        """Why this value may not be set; empty if it may, and for another node's parameter."""
        if reason := refusal(self, type(self.settings), given):
            return reason
        try:
            if given.name in self._live:
                replace(self.settings, **{given.name: given.value})
        except ParameterError as error:
            return str(error)
        return ""

    def start(self) -> None:
        """Start to tick, in a thread of its own."""
        self._ticking.start()

    def working(self) -> bool:
        """Whether that thread is alive; a world that breaks ends it."""
        return self._ticking.is_alive()

    def run(self) -> None:
        """Tick on the grid until halted. A tick that was missed is skipped and counted, never made up."""
        dt_ns = self._game.dt_ns
        grid_ns = self._monotonic.now_ns() + dt_ns
        while not self._halted.is_set():
            at_ns = grid_ns + self._shift_ns
            self._monotonic.sleep_until_ns(at_ns)
            self._tick(at_ns)
            late = max(0, (self._monotonic.now_ns() - at_ns) // dt_ns)
            self._missed += late
            grid_ns += (late + 1) * dt_ns

    def halt(self) -> None:
        """Let `run` return after the tick it is in, and wait for its thread."""
        self._halted.set()
        if self._ticking.is_alive():
            self._ticking.join(timeout=2.0)

    def _tick(self, at_ns: int) -> None:
        """Nothing is published of a world that is lost, and as long as a new one starts."""
        try:
            self._step_and_show(at_ns)
        except WorldLostError as error:
            self.get_logger().error(f"episode {self._game.status.episode} is lost: {error}\na new world is started")
            with self._lock:
                self._game.start_again(error)

    def _step_and_show(self, at_ns: int) -> None:
        with self._lock:
            self._game.tick(at_ns)
            world, status = self._game.world, self._game.status
            state, instruction = world.state(), world.instruction
            images = [world.image(each.name, each.height, each.width) for each in world.cameras]
            shown = [(viewer, self._viewed(world.cameras[0])) for viewer in self._viewers]
        stamp_ns = self._stamp(at_ns)
        if self._time is not None:
            self._time.publish(ClockMsg(clock=to_time_msg(stamp_ns)))
        header = Header(stamp=to_time_msg(stamp_ns), frame_id=world.frame)
        self._joints.publish(JointState(header=header, name=list(state), position=list(state.values())))
        for topics, image in zip(self._cameras, images, strict=True):
            topics.publish(image, stamp_ns)
        for viewer, picture in shown:
            viewer.publish(rgb8_message(world.cameras[0], picture, stamp_ns))
        if self._prompt is not None and instruction != self._told:
            self._told = instruction
            self._prompt.publish(String(data=instruction))
        times = {"stamp_ns": stamp_ns, "mono_ns": at_ns, "missed_ticks": self._missed}
        self._status.publish(String(data=json.dumps(asdict(status) | times)))
        self._reward.publish(Float64(data=status.reward))

    def _viewed(self, camera: WorldCamera) -> NDArray[np.uint8]:
        """The picture for people: the camera's, larger."""
        height = self.settings.viewer_px
        return self._game.world.image(camera.name, height, height * camera.width // camera.height)

    def _stamp(self, at_ns: int) -> int:
        """The tick's time on the clock of the stamps: simulated where we are its source, else the node's."""
        if self._time is not None:
            self._sim_ns += self._game.dt_ns
            return self._sim_ns
        lateness_ns = self._monotonic.now_ns() - at_ns
        return int(self.get_clock().now().nanoseconds) - lateness_ns

    def destroy_node(self) -> None:
        self._game.world.close()
        super().destroy_node()


def main(argv: list[str] | None = None) -> int:
    """Run the bridge of the world `--sim` until it is asked to stop. Returns the exit status."""
    words = sys.argv if argv is None else argv
    parser = argparse.ArgumentParser("sim_bridge", description=__doc__, allow_abbrev=False)
    parser.add_argument("--sim", default="pusht", help="the world: a name of `auras list simulators`")
    sim = parser.parse_known_args(words[1:])[0].sim
    return run_node(lambda _: SimBridge(find(sim)), (OSError, ValueError), argv=words)


if __name__ == "__main__":
    leave(main())
