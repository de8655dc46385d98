"""The trajectories of one actuator: one for each chunk that comes into force, and one point whenever a hold asks for
another place.

The tick thread says what is due and goes on: to check a horizon takes longer than a tick may. A thread of its own
does that and publishes. It alone publishes, in the order in which it was told, so that a hold is never overtaken by
the trajectory that it ends. It keeps no queue: one point to stay at, one horizon after it, the newest of each.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

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

END_S = 1.0  # given to the thread to come to its end


@dataclass(frozen=True, eq=False)
class _PendingHorizon:
    """A horizon to be checked, as it was at the tick that said so: after its command `values` [channels], at `now_ns`,
    which is `stamp` for the controller. A message that is late is then late for the controller too. `boot_ns` and
    `ends`: when it was said, and how often `end` had been called by then."""

    ahead: Ahead
    values: FloatArray
    now_ns: int
    stamp: TimeMsg
    boot_ns: int
    ends: int


class TrajectoryPublisher:
    """A controller goes on with a trajectory that nobody ended: every hold, stop and disarm therefore sends the point
    to stay at. No point is sent that would be reached when its observation is older than `max_age_ns`, and no horizon
    once `lease_ns` have passed since it was due: whoever stood still for so long may not be the one who drives.

    `publish(message)` is called from this class's thread, and by `close` from its caller's. `stamp()` tells the time
    by the ROS clock. Raises ContractError where the contract has channels that are no set points.
    """

    def __init__(
        self,
        publish: Callable[[JointTrajectory], None],
        stamp: Callable[[], TimeMsg],
        contract: Contract,
        max_age_ns: int,
        lease_ns: int,
        clock: SchedulerClock,
    ) -> None:
        check_trajectory(contract)
        self._publish, self._stamp, self._contract, self._max_age_ns = publish, stamp, contract, max_age_ns
        self._lease_ns, self._clock = lease_ns, clock
        self.superseded = 0  # horizons that were not sent because something newer came, or because it was too late
        self._chunk: object = None  # of the tick thread: what it said last
        self._held: FloatArray | None = None
        self._news = threading.Condition()  # held to look and to note, never to compute or to publish
        self._point: JointTrajectory | None = None  # to stay at: sent before `_plan`, and never left out for it
        self._plan: _PendingHorizon | None = None
        self._ends = 0  # how often `end` was called
        self._gave_way = self._ended = False
        self._thread = threading.Thread(target=self._run, name="trajectories", daemon=True)
        self._thread.start()

    # -- the tick thread ----------------------------------------------------------------------------------

    def follow(self, command: Command, stream: ActionStream, now_ns: int) -> None:
        """Say what a tick's command means for the trajectory; waits for nothing that takes long."""
        if command.state is not SafetyState.ARMED or command.provenance is None:
            self._chunk = None
            if self._held is None or not np.array_equal(self._held, command.values):
                self._held = command.values
                self._stay(command.values)
            return
        if command.provenance is self._chunk:
            return
        ends = self._ends  # before the stream is asked: what ends it afterwards ends this plan too
        ahead = stream.ahead(now_ns)
        if ahead is None:  # disarmed since the tick: the next command ends what is under way
            return
        self._chunk, self._held = command.provenance, None
        with self._news:
            self.superseded += self._plan is not None
            self._plan = _PendingHorizon(ahead, command.values, now_ns, self._stamp(), self._clock.boot_ns(), ends)
            self._news.notify()

    def _stay(self, values: FloatArray) -> None:
        point = trajectory_message(values[None], self._contract, self._contract.dt_ns, self._stamp())
        with self._news:
            self.superseded += self._plan is not None
            self._point, self._plan = point, None
            self._news.notify()

    # -- any thread ---------------------------------------------------------------------------------------

    def end(self, values: FloatArray | None) -> None:
        """No further command comes: send no horizon that was on its way, one that is being checked neither, and the
        point to stay at [channels]. None, where somebody else may have sent another trajectory by now: then nothing
        that waits is sent."""
        with self._news:
            self._ends += 1
            if values is None:
                self.superseded += self._plan is not None
                self._plan = self._point = None
        if values is None:
            self._chunk = self._held = None  # nobody knows what the controller follows
        else:
            self._stay(values)

    def working(self) -> bool:
        """Whether what is due will be published."""
        return self._thread.is_alive()

    def close(self) -> None:
        """End the thread, and send the point to stay at where it has not: nobody speaks after it."""
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
                if message is not None and not self._gives_way(due):
                    self._publish(message)
            else:
                self._publish(due)

    def _wait(self) -> JointTrajectory | _PendingHorizon | None:
        """What is to be sent next, once there is something; None at the end."""
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
        """Whether a checked horizon came too late: after a hold, an end, a stall, or after a newer chunk. But never two
        in a row for newer chunks: where they come faster than they are checked, the controller must still get some."""
        with self._news:
            late = self._clock.boot_ns() - plan.boot_ns > self._lease_ns
            ended = self._ended or self._point is not None or plan.ends != self._ends or late
            newer = self._plan is not None and not self._gave_way
            self._gave_way = newer and not ended
            self.superseded += ended or newer
            return ended or newer

    def _message(self, plan: _PendingHorizon) -> JointTrajectory | None:
        horizon = plan.ahead.checked()
        if horizon is None:
            return None
        contract, now_ns = self._contract, plan.now_ns
        first_ns = reach_ns(contract, horizon, plan.values, now_ns)
        last = (horizon.provenance.origin_mono_ns + self._max_age_ns - now_ns - first_ns) // contract.dt_ns
        return trajectory_message(horizon.values[: max(1, last + 1)], contract, first_ns, plan.stamp)


def reach_ns(contract: Contract, horizon: Horizon, command: FloatArray, now_ns: int) -> int:
    """How long from now the horizon's first row is reached: at the end of its policy step, or later where the rates
    from `command` [channels], the last one sent, need it. Never later than one policy step, which is what the
    horizon was checked for; exactly that where an acceleration is limited."""
    dt_ns, origin_ns = contract.dt_ns, horizon.provenance.origin_mono_ns
    if any(channel.max_acceleration is not None for channel in contract.channels):
        return dt_ns
    step_end_ns = origin_ns + (horizon.index + 1) * dt_ns - now_ns
    rate = np.array([np.inf if channel.max_rate is None else channel.max_rate for channel in contract.channels])
    needed_ns = int(np.ceil(np.max(np.abs(horizon.values[0] - command) / rate) * 1e9))
    return min(max(step_end_ns, needed_ns, 1), dt_ns)


def trajectory_message(rows: FloatArray, contract: Contract, first_ns: int, stamp: TimeMsg) -> JointTrajectory:
    """rows [steps, channels] as points one policy step apart, the first one `first_ns` after `stamp`.

    Positions alone: velocities of one's own would have to end at zero, and a policy's horizon seldom does.
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
    """A channel that a form of command cannot carry."""
    return ContractError(f"actuator: {form}: channel {channel.name!r} {text}")
