"""`auras bench monitor`: how long a monitor's loop takes on Push-T, from the camera to the command that holds.

Runs the processes of config/pusht_monitor.yaml over topics. On a table of its own each time, while the pusher moves, a
thing is put between the tee and its goal, and taken away when the robot has held for a while. Times count from the
stamp of the first image that shows the thing, or that does not show it any more:
- answer: until the first answer of the standing question `way` that says so about this image or a later one;
- hold: until the actuator's first command that holds, by its own clock;
- move: after the removal, until its first command from a chunk again.
A table on which the robot does not hold within the time is counted as missed, and left.

Then tables are played until the tee is on its goal, or until their steps are over. Times count from the first image of
the tee on its goal to the answer of the standing question `goal` and to the hold; and, of the next table, from its
first image.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from auras_ros import resources
from auras_ros.bench.options import add_minutes, bench_parser, check_least
from auras_ros.bench.processes import ANSWER_S, running, set_on_table
from auras_ros.live.loop import Spin, listening, wait_until_armed
from auras_ros.measure.cores import available
from auras_ros.measure.minutes import Ends, run_parts
from auras_ros.nodes.common.messages import raw_pixels, read_action
from auras_ros.nodes.common.qos import IMAGES
from auras_ros.nodes.common.texts import MessageError
from auras_ros.report.result import Report, Say
from auras_ros.ros import Node, QoSProfile
from auras_ros.ros.image import stamp_ns
from auras_ros.ros.msg import Float64MultiArray, Image, ParameterType, ParameterValue, String
from auras_ros.ros.srv import SetParameters, Trigger

CONFIG = "pusht_monitor.yaml"
WAY, GOAL = "way", "goal"  # standing questions
RADIUS_PX, TABLE_PX = 18.0, 512.0
RGB = (220, 40, 40)
# Near the middle of the goal's area, so in the way wherever the tee comes from.
PLACES = ((224, 288), (214, 298), (234, 278), (240, 300), (210, 272), (256, 256), (196, 316))
TAKEN = ((143, 163, 184), (65, 105, 225))  # colours of the tee and of the pusher, as they are drawn
LIKE, CLEAR_PX = 40, 12.0  # of a colour; around a thing
MOVING_S, HELD_S = 1.0, 1.0  # how long the pusher moves before a thing is put there, and stands before it goes
LATER_S = 0.4  # at most, by chance, for each of them: both change at any time between two answers
PATIENCE_S, SHOWN_S, TABLE_S = 20.0, 2.0, 60.0  # a table has 300 steps of 100 ms
MEASURES = ("answer_ms", "hold_ms", "clear_answer_ms", "move_ms")


def run(argv: list[str], progress: Say) -> Report:
    parser = bench_parser("monitor", __doc__)
    parser.add_argument("--tables", type=int, default=20, help="how often a thing is put in the way (20)")
    parser.add_argument("--goals", type=int, default=10, help="tables that are played to their end (10)")
    parser.add_argument("--seed", type=int, default=0, help="of the first table, and of the moments (0)")
    parser.add_argument("--seconds", type=float, default=5.0, help="longest wait for a hold or a move (5)")
    add_minutes(parser, 15.0)
    options = parser.parse_args(argv)
    check_least(parser, options, tables=1, goals=0, seed=0, seconds=1)
    report = Report("monitor")
    run_parts(report, options.minutes, {"reaction": partial(_tables, options, report, progress)})
    report.summary |= summarised(report.rows)
    return report


def summarised(rows: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Quantiles of each time, ms, and how many tables were played, missed, or never moved again; those of `goal` with
    its name before them. goal_arrived: tables on which the tee came to its goal."""
    rows, found = list(rows), dict[str, float]()
    for standing, prefix in ((WAY, ""), (GOAL, "goal_")):
        own = [row for row in rows if row["standing"] == standing]
        found[f"{prefix}tables"] = len(own)
        for name in MEASURES:
            values = [row[name] for row in own if row[name] is not None]
            if values:
                found |= {f"{prefix}{name}_p{at}": float(np.percentile(values, at)) for at in (50, 90)}
                found |= {f"{prefix}{name}_max": max(values), f"{prefix}{name}_n": len(values)}
        played = [row for row in own if row.get("arrived", True)]
        if standing == GOAL:
            found["goal_arrived"] = len(played)
        if own:
            found[f"{prefix}missed"] = sum(row["hold_ms"] is None for row in played)
            found[f"{prefix}not_moved_again"] = sum(
                row["hold_ms"] is not None and row["move_ms"] is None for row in played
            )
    return found


class MonitorListener:
    """What is heard over topics. Times are monotonic, ns; stamps are of this host's clock."""

    def __init__(self, node: Node) -> None:
        self.state = ""
        self.picture: tuple[int, NDArray[np.uint8]] | None = None  # the newest: its stamp, and it
        self.answers: list[tuple[int, int, str, str]] = []  # when received, stamp of the image, question, label
        self.commands: list[tuple[int, bool]] = []  # when sent, whether from a chunk
        self.table: dict[str, Any] | None = None  # its first status
        self.done: dict[str, Any] | None = None  # its first one that says so
        self.on_picture: Callable[[int, NDArray[np.uint8]], None] = lambda stamp, picture: None
        node.create_subscription(Image, "camera/top/image_raw", self._on_image, IMAGES)
        node.create_subscription(String, "answer", self._on_answer, QoSProfile(depth=10))
        node.create_subscription(Float64MultiArray, "action", self._on_action, QoSProfile(depth=100))
        node.create_subscription(String, "pusht/status", self._on_status, QoSProfile(depth=10))
        node.create_subscription(String, "actuator/state", self._on_state, QoSProfile(depth=1))

    def _on_image(self, message: Any) -> None:
        self.picture = stamp_ns(message), raw_pixels(message)
        self.on_picture(*self.picture)

    def _on_answer(self, message: Any) -> None:
        fields = json.loads(message.data)
        if fields["result"] and fields["image"]:
            said = fields["image"]["stamp_ns"], fields["standing"], fields["result"]["label"]
            self.answers.append((time.monotonic_ns(), *said))

    def _on_action(self, message: Any) -> None:
        try:
            _, label = read_action(message)
        except MessageError:
            return
        self.commands.append((label.mono_ns, label.source in ("chunk", "blend", "ensemble")))

    def _on_status(self, message: Any) -> None:
        status = json.loads(message.data)
        if self.table is None or status["episode"] != self.table["episode"]:
            self.table, self.done = status, None
        if status["done"] and self.done is None:
            self.done = status

    def _on_state(self, message: Any) -> None:
        self.state = json.loads(message.data)["state"]

    def forget(self) -> None:
        self.answers.clear()
        self.commands.clear()

    def moving(self) -> bool:
        """Whether the newest command is from a chunk."""
        return bool(self.commands) and self.commands[-1][1]

    def answer_ns(self, standing: str, label: str, since_stamp_ns: int) -> int | None:
        """When it was first said of an image of this stamp or a later one."""
        wanted = standing, label
        return next((at for at, stamp, *said in self.answers if (*said,) == wanted and stamp >= since_stamp_ns), None)

    def command_ns(self, from_chunk: bool, since_ns: int) -> int | None:
        """When the first such command was sent after this time."""
        return next((at for at, chunk in self.commands if chunk is from_chunk and at >= since_ns), None)


def free_place(picture: NDArray[np.uint8]) -> tuple[float, float] | None:
    """Where a thing blocks the way and touches neither tee nor pusher, px of the table; None if nowhere."""
    scale = TABLE_PX / len(picture)
    rows, columns = np.indices(picture.shape[:2]) * scale + scale / 2
    taken = np.zeros(picture.shape[:2], bool)
    for colour in TAKEN:
        taken |= (np.abs(picture.astype(np.int16) - np.array(colour)) < LIKE).all(-1)
    for x, y in PLACES:
        near = np.hypot(columns - x, rows - y) < RADIUS_PX + CLEAR_PX
        if not (near & taken).any():
            return float(x), float(y)
    return None


def shows(picture: NDArray[np.uint8], place: tuple[float, float]) -> bool:
    """Whether the thing is in the picture."""
    column, row = (int(each * len(picture) / TABLE_PX) for each in place)
    return bool((np.abs(picture[row, column].astype(np.int16) - np.array(RGB)) < LIKE).all())


def _tables(options: Any, report: Report, progress: Say, ends: Ends) -> None:
    config, random = resources.find("config", CONFIG), np.random.default_rng(options.seed)
    with listening("bench_monitor") as node:
        listener = MonitorListener(node)
        table, again = (
            node.create_client(SetParameters, "pusht/set_parameters"), node.create_client(Trigger, "pusht/reset")
        )  # fmt: skip
        with running(node, config, {"pusht": {"seed": options.seed}}, ends.hard_s) as spin:
            wait_until_armed(spin, lambda: listener.state, config)
            for number in range(options.tables):
                progress(f"table {number + 1} of {options.tables} ...")
                row = _one(spin, listener, table, again, random.uniform(0, LATER_S, 2), options.seconds)
                report.rows.append({"standing": WAY, "table": number, "cores": available(), **row})
            for number in range(options.goals):
                progress(f"to the goal: {number + 1} of {options.goals} ...")
                row = _to_goal(spin, listener, again, options.seconds)
                report.rows.append({"standing": GOAL, "table": number, "cores": available(), **row})


def _one(
    spin: Spin, listener: MonitorListener, table: Any, again: Any, later_s: NDArray[np.float64], patience_s: float
) -> dict[str, float | None]:
    """One table: reset, thing put, thing taken. later_s: of putting and of taking. Times in ms, None for what did
    not come within patience_s."""
    _reset(spin, again)
    listener.forget()
    spin(listener.moving, PATIENCE_S)
    if not listener.moving():
        raise RuntimeError(f"the pusher did not move within {PATIENCE_S:g} s of a reset")
    spin(lambda: False, MOVING_S + later_s[0])
    spin(lambda: listener.moving() and _place(listener) is not None, PATIENCE_S)
    place = _place(listener)
    if place is None or not listener.moving():
        raise RuntimeError("no moment in which the pusher moves and the goal's middle is free")
    put = _change(spin, listener, table, place, True)
    row: dict[str, float | None] = dict.fromkeys(MEASURES)
    row["answer_ms"], row["hold_ms"] = _until(spin, listener, put, (WAY, "yes", False), patience_s)
    if row["hold_ms"] is not None:
        spin(lambda: False, HELD_S + later_s[1])
    gone = _change(spin, listener, table, place, False)
    if row["hold_ms"] is not None:
        row["clear_answer_ms"], row["move_ms"] = _until(spin, listener, gone, (WAY, "no", True), patience_s)
    return row


def _to_goal(spin: Spin, listener: MonitorListener, again: Any, patience_s: float) -> dict[str, Any]:
    """One table until it is done, and the beginning of the next one."""
    _next_table(spin, listener, again)
    row: dict[str, Any] = dict.fromkeys(MEASURES)
    spin(lambda: listener.done is not None, TABLE_S)
    if listener.done is None:
        raise RuntimeError(f"the table was not done within {TABLE_S:g} s")
    row["arrived"] = listener.done["success"]
    if not row["arrived"]:
        return row
    arrived = listener.done["stamp_ns"], listener.done["mono_ns"]
    row["answer_ms"], row["hold_ms"] = _until(spin, listener, arrived, (GOAL, "yes", False), patience_s)
    if row["hold_ms"] is not None:
        spin(lambda: False, HELD_S)
        begun = _next_table(spin, listener, again)
        row["clear_answer_ms"], row["move_ms"] = _until(spin, listener, begun, (GOAL, "no", True), patience_s)
    return row


def _next_table(spin: Spin, listener: MonitorListener, again: Any) -> tuple[int, int]:
    """Its first image's stamp, and that time on the monotonic clock."""
    before = listener.table
    _reset(spin, again)
    listener.forget()
    spin(lambda: listener.table not in (None, before), SHOWN_S)
    if listener.table is None or listener.table is before:
        raise RuntimeError(f"no status of a new table within {SHOWN_S:g} s of a reset")
    return listener.table["stamp_ns"], listener.table["mono_ns"]


def _until(
    spin: Spin, listener: MonitorListener, image: tuple[int, int], wanted: tuple[str, str, bool], patience_s: float
) -> tuple[float | None, float | None]:
    """From an image (its stamp, and that time on the monotonic clock) to the first answer and to the first command
    that are wanted, ms."""
    (stamp, since_ns), (standing, label, from_chunk) = image, wanted
    spin(lambda: listener.command_ns(from_chunk, since_ns) is not None, patience_s)
    spin(lambda: listener.answer_ns(standing, label, stamp) is not None, 0.5)
    times = listener.answer_ns(standing, label, stamp), listener.command_ns(from_chunk, since_ns)
    answer, command = (None if at is None else (at - since_ns) / 1e6 for at in times)
    return answer, command


def _place(listener: MonitorListener) -> tuple[float, float] | None:
    return None if listener.picture is None else free_place(listener.picture[1])


def _change(
    spin: Spin, listener: MonitorListener, table: Any, place: tuple[float, float], put: bool
) -> tuple[int, int]:
    """Put the thing there, or take it away. Returns the stamp of the first image after that, and the same time on the
    monotonic clock. Raises RuntimeError if no image comes."""
    found: list[tuple[int, int]] = []

    def look(stamp: int, picture: NDArray[np.uint8]) -> None:
        if not found and shows(picture, place) is put:
            found.append((stamp, stamp + time.monotonic_ns() - time.time_ns()))

    listener.forget()
    listener.on_picture = look
    things = [{"x": place[0], "y": place[1], "radius": RADIUS_PX, "rgb": list(RGB)}] if put else []
    text = json.dumps(things)
    value = ParameterValue(type=ParameterType.PARAMETER_STRING, string_value=text)
    set_on_table(spin, table, "things", value, text)
    spin(lambda: bool(found), SHOWN_S)
    if not found:
        raise RuntimeError(f"no image {'shows' if put else 'is without'} the thing within {SHOWN_S:g} s")
    return found[0]


def _reset(spin: Spin, again: Any) -> None:
    spin(again.service_is_ready, ANSWER_S)
    asked = again.call_async(Trigger.Request())
    spin(asked.done, ANSWER_S)
    if not asked.done() or not asked.result().success:
        raise RuntimeError("the table was not reset")
