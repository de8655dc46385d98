"""The trajectories of one actuator: one for each chunk that becomes active, and one point whenever a hold needs another
position.

The tick thread only notes what is due, because limiting a horizon takes longer than a tick may. Another thread does
that and publishes. Only that thread publishes, in the order of the notes, so that a hold is never overtaken by the
trajectory that it ends. There is no queue: one point to stay at, and one horizon after it, the newest of each.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from auras_ros.action import (
    ActionStream,
    Ahead,
    Channel,
    Command,
    Contract,
    ContractError,
    Horizon,
    SafetyState,
)
from auras_ros.action.contract import SET_POINTS, FloatArray
from auras_ros.clock import SchedulerClock
from auras_ros.ros import Duration
from auras_ros.ros.msg import Header, JointTrajectory, JointTrajectoryPoint, TimeMsg

END_S = 1.0  # how long to wait for the thread's end


@dataclass(frozen=True, eq=False)
class _PendingHorizon:
    """A horizon to be limited, as of the tick that noted it: after its command `values` [channels], by the limits of
    `contract`, at `now_ns`, which is `stamp` for the controller; so a late message is late for the controller too.
    `boot_ns` and `ends`: when it was noted, and how often `end` had been called by then."""

    ahead: Ahead
    contract: Contract
    values: FloatArray
    now_ns: int
    stamp: TimeMsg
    boot_ns: int
    ends: int


class TrajectoryPublisher:
    """A controller continues a trajectory until another message ends it, so every hold, stop and disarm sends the point
    to stay at. No point is sent that would be reached when its observation is older than `max_age_ns`, and no horizon
    after `lease_ns` since it was due: after such a stall another actuator may drive.

    `publish(message)` is called in this class's thread, and by `close` in its caller's. `stamp(at_ns)` returns the ROS
    time of a time of `clock`: a tick is stamped by when it began, however long its thread waited since.
    Raises ContractError if the contract has channels that are not set points.
    """

    def __init__(
        self,
        publish: Callable[[JointTrajectory], None],
        stamp: Callable[[int], TimeMsg],
        contract: Contract,
        max_age_ns: int,
        lease_ns: int,
        clock: SchedulerClock,
    ) -> None:
        check_trajectory(contract)
        self._publish, self._stamp, self._contract, self._max_age_ns = publish, stamp, contract, max_age_ns
        self._lease_ns, self._clock = lease_ns, clock
        self.superseded = 0  # horizons that were not sent because something newer came, or because they were too late
        self._chunk: object = None  # used by the tick thread: what it noted last
        self._held: FloatArray | None = None
        self._news = threading.Condition()  # held for short reads and writes, never during computing or publishing
        self._point: JointTrajectory | None = None  # to stay at; always sent, before `_plan`
        self._plan: _PendingHorizon | None = None
        self._ends = 0  # how often `end` was called
        self._gave_way = self._ended = False
        self._thread = threading.Thread(target=self._run, name="trajectories", daemon=True)
        self._thread.start()

    # -- the tick thread ----------------------------------------------------------------------------------

    def follow(self, command: Command, stream: ActionStream, now_ns: int) -> None:
        """Note what a tick's command means for the trajectory; returns quickly."""
        if command.state is not SafetyState.ARMED or command.provenance is None:
            self._chunk = None
            if self._held is None or not np.array_equal(self._held, command.values):
                self._held = command.values
                self._stay(command.values, now_ns)
            return
        if command.provenance is self._chunk:
            return
        ends = self._ends  # read before `stream.ahead`, so that a later `end` also ends this horizon
        ahead = stream.ahead(now_ns)
        if ahead is None:  # disarmed since the tick: the next command ends the current trajectory
            return
        self._chunk, self._held = command.provenance, None
        now = now_ns, self._stamp(now_ns), self._clock.boot_ns()
        plan = _PendingHorizon(ahead, stream.contract, command.values, *now, ends)
        with self._news:
            self._replace(self._point, plan)

    def _stay(self, values: FloatArray, now_ns: int) -> None:
        point = trajectory_message(values[None], self._contract, self._contract.dt_ns, self._stamp(now_ns))
        with self._news:
            self._replace(point, None)

    def _replace(self, point: JointTrajectory | None, plan: _PendingHorizon | None) -> None:
        """Called under `_news`: what is to be sent from now on."""
        self.superseded += self._plan is not None
        self._point, self._plan = point, plan
        self._news.notify()

    # -- any thread ---------------------------------------------------------------------------------------

    def end(self, values: FloatArray | None) -> None:
        """No further command comes: drop what waits, also a horizon that is being limited, and end a running trajectory
        at the point `values` [channels]. Without one nothing is sent, because the robot may be elsewhere; nor for None:
        another actuator may have sent a trajectory by now."""
        with self._news:
            running = self._chunk is not None or self._point is not None  # a point that waits has ended nothing yet
            self._ends += 1
            self._replace(None, None)
        self._chunk = self._held = None  # it is not known what the controller follows
        if running and values is not None:
            self._stay(values, self._clock.now_ns())

    def working(self) -> bool:
        """Whether the publishing thread is alive."""
        return self._thread.is_alive()

    def close(self) -> None:
        """End the thread, and send the point to stay at if the thread has not: nothing follows it."""
        with self._news:
            self._ended = True
            self._news.notify()
        self._thread.join(timeout=END_S)
        with self._news:
            point, self._point = self._point, None
        if point is not None:
            self._publish(point)

    # -- the thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (due := self._wait()) is not None:
            if isinstance(due, _PendingHorizon):
                message = self._message(due)
                if not self._gives_way(due) and message is not None:
                    self._publish(message)
            else:
                self._publish(due)

    def _wait(self) -> JointTrajectory | _PendingHorizon | None:
        """Wait for the next thing to send; None at the end."""
        with self._news:
            self._news.wait_for(lambda: self._ended or self._point is not None or self._plan is not None)
            if self._ended:
                return None
            if self._point is not None:
                point, self._point = self._point, None
                return point
            plan, self._plan = self._plan, None
            return plan

    def _gives_way(self, plan: _PendingHorizon) -> bool:
        """Whether a limited horizon is dropped because it came too late: after a hold, an end, a stall, or a newer
        chunk. Never two in a row for newer chunks: if these come faster than they are limited, the controller must
        still get some."""
        with self._news:
            ended = self._is_over(plan) or self._clock.boot_ns() - plan.boot_ns > self._lease_ns
            newer = self._plan is not None and not self._gave_way
            self._gave_way = newer and not ended
            self.superseded += ended or newer
            return ended or newer

    def _is_over(self, plan: _PendingHorizon) -> bool:
        """Whether a hold, a stop or an end has come since the horizon was noted."""
        return self._ended or self._point is not None or plan.ends != self._ends

    def _message(self, plan: _PendingHorizon) -> JointTrajectory | None:
        """None without rows that are recent enough, for one that is not finite, or if it is over: the point to stay at
        must not wait for thousands of rows."""
        horizon = plan.ahead.checked(partial(self._is_over, plan))
        if horizon is None:
            return None
        contract, now_ns = plan.contract, plan.now_ns
        first_ns = reach_ns(contract, horizon, plan.values, now_ns)
        last = (horizon.provenance.origin_mono_ns + self._max_age_ns - now_ns - first_ns) // contract.dt_ns
        return None if last < 0 else trajectory_message(horizon.values[: last + 1], contract, first_ns, plan.stamp)


def reach_ns(contract: Contract, horizon: Horizon, command: FloatArray, now_ns: int) -> int:
    """Time from now until the horizon's first row is reached: at the end of its policy step, or later if the rate
    limits from `command` [channels], the last one sent, need more. Never more than one policy step, for which the
    horizon was limited; exactly that if an acceleration is limited."""
    dt_ns, origin_ns = contract.dt_ns, horizon.provenance.origin_mono_ns
    if any(channel.max_acceleration is not None for channel in contract.channels):
        return dt_ns
    step_end_ns = origin_ns + (horizon.index + 1) * dt_ns - now_ns
    rate = np.array([np.inf if channel.max_rate is None else channel.max_rate for channel in contract.channels])
    needed_ns = int(np.ceil(np.max(np.abs(horizon.values[0] - command) / rate) * 1e9))
    return min(max(step_end_ns, needed_ns, 1), dt_ns)


def trajectory_message(rows: FloatArray, contract: Contract, first_ns: int, stamp: TimeMsg) -> JointTrajectory:
    """rows [steps, channels] as points one policy step apart, the first one `first_ns` after `stamp`.

    Positions only: with velocities the last one would have to be zero, and a policy's horizon seldom ends so.
    """
    points = [
        JointTrajectoryPoint(
            positions=row, time_from_start=Duration(nanoseconds=first_ns + index * contract.dt_ns).to_msg()
        )
        for index, row in enumerate(rows)
    ]
    return JointTrajectory(header=Header(stamp=stamp), joint_names=list(contract.names), points=points)


def check_trajectory(contract: Contract) -> None:
    """Raise ContractError unless every channel is a set point: a trajectory is made of positions."""
    for channel in contract.channels:
        if channel.kind not in SET_POINTS:
            raise misfit(channel, "joint_trajectory", f"is of kind {channel.kind.value}, not a set point")


def misfit(channel: Channel, form: str, text: str) -> ContractError:
    """The error for a channel that a message type cannot carry."""
    return ContractError(f"actuator: {form}: channel {channel.name!r} {text}")
