"""The Push-T table as a ROS 2 node: camera, joint states and clock out, actions in, reset as a service.

It stands where a robot would: one control step each 100 ms of an absolute grid, whatever the agent does.
Each tick steps the world with the newest valid action and then shows it: what is stamped T is the world at T,
and the active action at the next tick is the answer to it. The rules are `pusht_game`'s; this module never
decides about them, and knows no policy.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
from collections.abc import Callable
from dataclasses import Field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from auras_ros.clock import MonotonicClock, SchedulerClock
from auras_ros.descriptors import ensure_descriptors
from auras_ros.heap import bound_heap
from auras_ros.nodes.common.exit_status import of_refusal
from auras_ros.output import never_in_the_way
from auras_ros.ros import (
    Clock,
    ClockType,
    ExternalShutdownException,
    InvalidParameterTypeException,
    InvalidParameterValueException,
    Node,
    Parameter,
    QoSProfile,
    ReliabilityPolicy,
    init,
    ok,
    try_shutdown,
)
from auras_ros.ros.callbacks import Callbacks
from auras_ros.ros.image import compressed_message, image_message, to_time_msg
from auras_ros.ros.msg import (
    ClockMsg,
    CompressedImage,
    Float64,
    Float64MultiArray,
    FloatingPointRange,
    Header,
    Image,
    IntegerRange,
    JointState,
    ParameterDescriptor,
    SetParametersResult,
    String,
)
from auras_ros.ros.refusals import SETTINGS_ERRORS
from auras_ros.ros.srv import Trigger
from auras_ros.sim.pusht import IMAGE_PX
from auras_ros.sim.pusht_game import DT_NS, NAMES, PushTGame, SettingError, TableSettings
from auras_ros.spelling import ALIKE, nearest

# SettingError among them, and ROS arguments, a file, an environment that cannot be used
REFUSALS: tuple[type[Exception], ...] = (OSError, ValueError, *SETTINGS_ERRORS)
CAMERA_FRAME, TABLE_FRAME = "camera_top", "table"
JPEG_QUALITY = 95
COLLECT_PERIOD_S = 10.0  # a table that was reset is a cycle of objects: left to themselves they pile up for an hour
LIVE = ("seed", "shift_ms")  # settings that may change while the table runs
LATEST = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
# Every action is judged, so that refusals are counted; the newest valid one is active.
ACTIONS = QoSProfile(depth=10)


class PushTBridge(Node):
    """Actions and resets arrive in the executor's thread, `run` ticks in its own; a lock guards the game."""

    def __init__(self, clock: SchedulerClock | None = None, **node_options: Any) -> None:
        """Raises SettingError for a parameter that cannot be used."""
        super().__init__("pusht", **node_options)
        self.settings = _read_settings(self)
        self._monotonic = clock or MonotonicClock()
        self._lock = threading.Lock()
        self._game = PushTGame(self.settings)
        self._halted = threading.Event()
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
        if self.settings.viewer_px:
            self._viewer = self.create_publisher(Image, "camera/viewer/image_raw", LATEST)
        if self.settings.publish_clock:
            self._time = self.create_publisher(ClockMsg, "/clock", LATEST)
        self.create_subscription(Float64MultiArray, "action", self._on_action, ACTIONS)
        self.create_service(Trigger, "~/reset", self._on_reset)
        self.create_timer(COLLECT_PERIOD_S, self._collect, clock=Clock(clock_type=ClockType.STEADY_TIME))

    def _collect(self) -> None:
        gc.collect()

    def _on_action(self, message: Any) -> None:
        dims = message.layout.dim
        names, label = (dims[i].label if len(dims) > i else "" for i in range(2))
        with self._lock:
            refusal = self._game.offer(message.data, self._monotonic.now_ns(), names, label)
        if refusal is not None:
            self.get_logger().warning(f"action refused: {refusal.value}", throttle_duration_sec=1.0)

    def _on_reset(self, _request: Any, response: Any) -> Any:
        with self._lock:
            self._game.reset()
            status = self._game.status
        response.success = True
        response.message = json.dumps({"episode": status.episode, "seed": status.seed})
        return response

    def _on_parameters(self, parameters: list[Parameter]) -> Any:
        """`seed` is that of the next reset, `shift_ms` holds from the tick after next; nothing else changes while the
        table runs."""
        given = {each.name: each.value for each in parameters if each.name in LIVE}
        try:
            wanted = TableSettings(**given)
        except SettingError as error:
            return SetParametersResult(successful=False, reason=str(error))
        with self._lock:
            if "seed" in given:
                self._game.next_seed = wanted.seed
            if "shift_ms" in given:
                self._shift_ns = round(wanted.shift_ms * 1e6)
        return SetParametersResult(successful=True)

    def run(self) -> None:
        """Tick on the grid until halted. A tick that was missed is skipped and counted, never made up."""
        grid_ns = self._monotonic.now_ns() + DT_NS
        while not self._halted.is_set() and ok():
            at_ns = grid_ns + self._shift_ns
            self._monotonic.sleep_until_ns(at_ns)
            self._tick(at_ns)
            late = max(0, (self._monotonic.now_ns() - at_ns) // DT_NS)
            self._missed += late
            grid_ns += (late + 1) * DT_NS

    def halt(self) -> None:
        """Let `run` return after the tick it is in."""
        self._halted.set()

    def _tick(self, at_ns: int) -> None:
        with self._lock:
            self._game.tick(at_ns)
            image, agent, status = self._game.image(IMAGE_PX), self._game.agent, self._game.status
            viewer = self._game.image(self.settings.viewer_px) if self.settings.viewer_px else None
        stamp_ns = self._stamp(at_ns)
        if self.settings.publish_clock:
            self._time.publish(ClockMsg(clock=to_time_msg(stamp_ns)))
        header = Header(stamp=to_time_msg(stamp_ns), frame_id=TABLE_FRAME)
        self._joints.publish(JointState(header=header, name=list(NAMES), position=agent.tolist()))
        self._image.publish(image_message(image, stamp_ns=stamp_ns, frame_id=CAMERA_FRAME, encoding="rgb8"))
        if self._compressed.get_subscription_count():
            self._compressed.publish(self._encode(image, stamp_ns))
        if viewer is not None:
            self._viewer.publish(image_message(viewer, stamp_ns=stamp_ns, frame_id=CAMERA_FRAME, encoding="rgb8"))
        times = {"stamp_ns": stamp_ns, "mono_ns": at_ns, "missed_ticks": self._missed}
        self._status.publish(String(data=json.dumps(status.to_dict() | times)))
        self._reward.publish(Float64(data=status.reward))

    def _stamp(self, at_ns: int) -> int:
        """The tick's time on the clock of the stamps: simulated where we are its source, else the node's."""
        if self.settings.publish_clock:
            self._sim_ns += DT_NS
            return self._sim_ns
        lateness_ns = self._monotonic.now_ns() - at_ns
        return int(self.get_clock().now().nanoseconds) - lateness_ns

    def close(self) -> None:
        self._game.close()
        self.destroy_node()


def _read_settings(node: Node) -> TableSettings:
    """Declare every field of TableSettings on the node; SettingError names node and parameter."""
    try:
        given = {
            each.name: node.declare_parameter(each.name, each.default, _describe(each)).value
            for each in fields(TableSettings)
        }
        _look_for_unknown(node)
        return TableSettings(**given)
    except (SettingError, InvalidParameterTypeException, InvalidParameterValueException) as error:
        raise SettingError(f"{node.get_name()}: {error}") from error


def _look_for_unknown(node: Node) -> None:
    """As our other nodes do: a name that is like one of ours raises SettingError, of another a word is said. rclpy
    tells nobody but itself what a node was given: where that is gone, this is the reader's of configs alone."""
    for name in getattr(node, "_parameter_overrides", {}):
        if node.has_parameter(name):
            continue
        if meant := nearest(name, [each.name for each in fields(TableSettings)], ALIKE):
            raise SettingError(f"no parameter '{name}'; did you mean {meant}?")
        node.get_logger().warning(f"unknown parameter '{name}' ignored")


def _describe(each: Field[Any]) -> Any:
    """What `ros2 param describe` shows. dynamic_typing: TableSettings itself checks the type, and takes 1 for 1.0."""
    low, high = each.metadata["low"], each.metadata["high"]
    descriptor = ParameterDescriptor(
        name=each.name,
        description=each.metadata["description"],
        read_only=each.name not in LIVE,
        dynamic_typing=True,
    )
    if isinstance(each.default, float):
        descriptor.floating_point_range = [FloatingPointRange(from_value=low, to_value=high, step=0.0)]
    elif low is not None:
        descriptor.integer_range = [IntegerRange(from_value=int(low), to_value=int(high), step=1)]
    return descriptor


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


def _tick_thread(bridge: PushTBridge, faults: list[BaseException]) -> threading.Thread:
    """The thread of `run`. What it raises is kept for `main`, and ends the process."""

    def target() -> None:
        try:
            bridge.run()
        except Exception as error:
            if not ok():
                return  # publishing fails once a signal has shut the context down: the end, not a fault
            faults.append(error)
            try_shutdown()
            raise

    return threading.Thread(target=target, name="pusht ticks", daemon=True)


def main(argv: list[str] | None = None) -> int:
    """Run the bridge until SIGINT, SIGTERM or shutdown. 0: asked to stop, else as a node's `exit_status`."""
    with never_in_the_way():
        bound_heap()
        try:
            ensure_descriptors()
            init(args=sys.argv if argv is None else argv)
            bridge = PushTBridge()
        except REFUSALS as error:
            print(f"error: {error}", file=sys.stderr, flush=True)
            try_shutdown()
            return of_refusal(error)
        try:
            return _play(bridge)
        finally:
            try_shutdown()


def _play(bridge: PushTBridge) -> int:
    faults: list[BaseException] = []
    ticking = _tick_thread(bridge, faults)
    ticking.start()
    callbacks = Callbacks(bridge)
    try:
        while callbacks.turn():
            pass
        faults.append(RuntimeError("the executor is broken"))
    except (KeyboardInterrupt, ExternalShutdownException):
        pass  # how rclpy says that a signal asked us to stop
    finally:
        bridge.halt()
        ticking.join(timeout=2.0)
        callbacks.close()
        bridge.close()
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
