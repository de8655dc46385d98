"""The Push-T table as a ROS 2 node: camera, joint states and clock out, actions in, reset as a service.

It stands where a robot would: one control step each 100 ms of an absolute grid, whatever the agent does.
Each tick steps the world with the newest valid action and then shows it: what is stamped T is the world at T,
and the active action at the next tick is the answer to it. The rules are `pusht_game`'s; this module never
decides about them, and knows no policy.
"""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from auras_ros.clock import MonotonicClock, SchedulerClock
from auras_ros.parameters import ParameterError
from auras_ros.ros import Clock, ClockType, Node, Parameter, QoSProfile, ReliabilityPolicy
from auras_ros.ros.image import compressed_message, image_message, to_time_msg
from auras_ros.ros.msg import (
    ClockMsg,
    CompressedImage,
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
from auras_ros.sim.pusht import CAMERA
from auras_ros.sim.pusht_game import DT_NS, NAMES, PushTGame, TableSettings
from auras_ros.sim.pusht_things import read_things

CAMERA_FRAME, TABLE_FRAME = "camera_top", "table"
JPEG_QUALITY = 95
COLLECT_PERIOD_S = 10.0  # a table that was reset is a cycle of objects: left to themselves they pile up for an hour
LIVE = ("seed", "shift_ms", "things")  # settings that may change while the table runs
LATEST = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
# Every action is judged, so that refusals are counted; the newest valid one is active.
ACTIONS = QoSProfile(depth=10)


class PushTBridge(Node):
    """Actions and resets arrive in the executor's thread, `run` ticks in its own; a lock guards the game."""

    def __init__(self, clock: SchedulerClock | None = None, **node_options: Any) -> None:
        """Raises ParameterError for a parameter that cannot be used."""
        super().__init__("pusht", **node_options)
        self.settings = read_parameters(self, TableSettings, LIVE)
        self._monotonic = clock or MonotonicClock()
        self._lock = threading.Lock()
        self._game = PushTGame(self.settings)
        self._halted = threading.Event()
        self._ticking = threading.Thread(target=self.run, name="pusht ticks", daemon=True)
        self._sim_ns, self._missed = 0, 0
        self._shift_ns = round(self.settings.shift_ms * 1e6)
        self._encode = _encoder(self.settings.compression)
        self._open_topics()
        self.add_on_set_parameters_callback(self._on_parameters)

    def _open_topics(self) -> None:
        self._image = self.create_publisher(Image, "camera/top/image_raw", LATEST)
        self._compressed = self.create_publisher(CompressedImage, "camera/top/image_raw/compressed", LATEST)
        self._joints = self.create_publisher(JointState, "joint_states", LATEST)
        self._status = self.create_publisher(String, "~/status", 10)
        self._reward = self.create_publisher(Float64, "~/reward", 10)
        viewer_px = self.settings.viewer_px
        self._viewers = [self.create_publisher(Image, "camera/viewer/image_raw", LATEST)] if viewer_px else []
        self._time = self.create_publisher(ClockMsg, "/clock", LATEST) if self.settings.publish_clock else None
        self.create_subscription(Float64MultiArray, "action", self._on_action, ACTIONS)
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
            self.get_logger().warning(f"action refused: {reason.value}", throttle_duration_sec=1.0)

    def _on_reset(self, _request: Any, response: Any) -> Any:
        with self._lock:
            self._game.reset()
            status = self._game.status
        response.success = True
        response.message = json.dumps({"episode": status.episode, "seed": status.seed})
        return response

    def _on_parameters(self, parameters: list[Parameter]) -> Any:
        """`seed` is that of the next reset, `shift_ms` holds from the tick after next, `things` from the next picture;
        nothing else changes while the table runs."""
        for each in parameters:
            if reason := refusal(self, TableSettings, each) or _things_refusal(each):
                return SetParametersResult(successful=False, reason=reason)
        with self._lock:
            for each in parameters:
                if each.name == "seed":
                    self._game.next_seed = each.value
                elif each.name == "shift_ms":
                    self._shift_ns = round(each.value * 1e6)
                elif each.name == "things":
                    self._game.world.things = read_things(each.value)
        return SetParametersResult(successful=True)

    def start(self) -> None:
        """Start to tick, in a thread of its own."""
        self._ticking.start()

    def working(self) -> bool:
        """Whether that thread is alive; a table that breaks ends it."""
        return self._ticking.is_alive()

    def run(self) -> None:
        """Tick on the grid until halted. A tick that was missed is skipped and counted, never made up."""
        grid_ns = self._monotonic.now_ns() + DT_NS
        while not self._halted.is_set():
            at_ns = grid_ns + self._shift_ns
            self._monotonic.sleep_until_ns(at_ns)
            self._tick(at_ns)
            late = max(0, (self._monotonic.now_ns() - at_ns) // DT_NS)
            self._missed += late
            grid_ns += (late + 1) * DT_NS

    def halt(self) -> None:
        """Let `run` return after the tick it is in, and wait for its thread."""
        self._halted.set()
        if self._ticking.is_alive():
            self._ticking.join(timeout=2.0)

    def _tick(self, at_ns: int) -> None:
        with self._lock:
            self._game.tick(at_ns)
            image, agent, status = self._game.world.image(), self._game.world.agent, self._game.status
            side = self.settings.viewer_px
            shown = [(viewer, self._game.world.image(CAMERA, side, side)) for viewer in self._viewers]
        stamp_ns = self._stamp(at_ns)
        if self._time is not None:
            self._time.publish(ClockMsg(clock=to_time_msg(stamp_ns)))
        header = Header(stamp=to_time_msg(stamp_ns), frame_id=TABLE_FRAME)
        self._joints.publish(JointState(header=header, name=list(NAMES), position=agent.tolist()))
        self._image.publish(image_message(image, stamp_ns=stamp_ns, frame_id=CAMERA_FRAME, encoding="rgb8"))
        if self._compressed.get_subscription_count():
            self._compressed.publish(self._encode(image, stamp_ns))
        for viewer, picture in shown:
            viewer.publish(image_message(picture, stamp_ns=stamp_ns, frame_id=CAMERA_FRAME, encoding="rgb8"))
        times = {"stamp_ns": stamp_ns, "mono_ns": at_ns, "missed_ticks": self._missed}
        self._status.publish(String(data=json.dumps(asdict(status) | times)))
        self._reward.publish(Float64(data=status.reward))

    def _stamp(self, at_ns: int) -> int:
        """The tick's time on the clock of the stamps: simulated where we are its source, else the node's."""
        if self._time is not None:
            self._sim_ns += DT_NS
            return self._sim_ns
        lateness_ns = self._monotonic.now_ns() - at_ns
        return int(self.get_clock().now().nanoseconds) - lateness_ns

    def destroy_node(self) -> None:
        self._game.world.close()
        super().destroy_node()


def _things_refusal(given: Parameter) -> str:
    """Why these things may not be set; empty if they may, and for another parameter."""
    try:
        if given.name == "things":
            read_things(given.value)
    except ParameterError as error:
        return str(error)
    return ""


def _encoder(compression: str) -> Callable[[NDArray[np.uint8], int], Any]:
    """(RGB image, stamp) -> CompressedImage, as image_transport names the formats."""
    import cv2

    suffix, options = {
        "jpeg": (".jpg", [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY]),
        "png": (".png", [cv2.IMWRITE_PNG_COMPRESSION, 1]),
    }[compression]

    def encode(image: NDArray[np.uint8], stamp_ns: int) -> Any:
        done, data = cv2.imencode(suffix, cv2.cvtColor(image, cv2.COLOR_RGB2BGR), options)
        if not done:
            raise RuntimeError(f"cv2 could not encode an image as {compression}")
        return compressed_message(
            data.tobytes(),
            format=f"rgb8; {compression} compressed bgr8",
            stamp_ns=stamp_ns,
            frame_id=CAMERA_FRAME,
        )

    return encode


def main(argv: list[str] | None = None) -> int:
    """Run the bridge until it is asked to stop. Returns the exit status."""
    return run_node(lambda _: PushTBridge(), (OSError, ValueError), argv=argv)


if __name__ == "__main__":
    leave(main())
