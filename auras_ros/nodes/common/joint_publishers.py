"""Whether `joint_states` says one thing about where the robot is. The actuator asks before arming; the agent, whose
policy must not be given two positions in turn, asks all the time whether there are two publishers (`rivals`).

Arming starts from the newest position, whoever published it. A second publisher, such as a joint_state_publisher that
sends zeros, must not decide where a robot is sent first. So every message is noted here, and arming is refused while

- two publishers of the same joint were heard within a second;
- a joint's positions of the last half second lie further apart than it can have moved;
- a publisher was discovered within the last second and has not been heard.

Several drivers may publish, each its own joints. A publisher is told from another by the identity that the middleware
gives. If it gives none (rclpy 7.1), two publishers of a joint are recognised by what one driver does not do: it changes
the names in its messages, its stamps go back, its values go to and fro.

Two publishers that agree within the noise, and one that publishes less than once a second and never within half a
second of arming, are not recognised; neither is a false publisher if the robot's own driver is silent. This module
reads no clock and refuses nothing itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from auras_ros.action import Channel, Contract
from auras_ros.action.contract import SET_POINTS
from auras_ros.ros.identity import UNKNOWN

TOGETHER_NS = 1_000_000_000  # two publishers that were heard within this time publish at the same time
STEADY_NS = 500_000_000  # after a position that no motion explains, arming is refused for so long
UNHEARD_NS = 1_000_000_000  # how long a newly discovered publisher is waited for; a killed one is in the graph for 20 s
NOISE = 0.01  # share of a joint's range by which positions may differ without any motion
ROUNDING = 1e-9
RANGE_S = 1.0  # a joint without a velocity limit is taken to need so long for its whole range
MAX_PUBLISHERS = 100  # of one joint that are told apart; two of them refuse arming already
UNLIMITED = 1e12  # velocity and noise of a joint of which no limits are known
NEVER_NS = -(10**18)


class JointPublishers:
    """Used in the executor's thread. All times are ns on one monotonic clock. A joint is named like its channel.

    others: joints of which only `rivals` is asked, commanded or not."""

    def __init__(self, contract: Contract, others: Sequence[str] = ()) -> None:
        # Of the joints that set points command.
        self._histories = {
            channel.name: JointHistory(channel.name, channel)
            for channel in contract.channels
            if channel.kind in SET_POINTS
        }
        self._others = {name: JointHistory(name, None) for name in others if name not in self._histories}
        self._heard_ns: dict[bytes, int] = {}  # publisher -> time of its newest message
        self._discovered_ns: dict[bytes, int] = {}  # publisher in the ROS graph -> when it was found there first
        self._nodes: dict[bytes, str] = {}  # publisher in the ROS graph -> its node

    def use(self, contract: Contract, turns: Sequence[float]) -> None:
        """Take other limits of the same channels. turns [channels]: a full turn in the channel's unit, infinity if the
        joint is not continuous. What was heard until now still counts."""
        for channel, turn in zip(contract.channels, turns, strict=True):
            if channel.name in self._histories:
                self._histories[channel.name].use(channel, turn)

    def discovered(self, nodes: Mapping[bytes, str], now_ns: int) -> None:
        """Note the publishers that the ROS graph has now, with the names of their nodes."""
        self._discovered_ns = {publisher: self._discovered_ns.get(publisher, now_ns) for publisher in nodes}
        self._nodes = dict(nodes)

    def heard(
        self, publisher: bytes, names: Sequence[str], positions: Sequence[float], stamp_ns: int, now_ns: int
    ) -> None:
        """Note a message. publisher: UNKNOWN if the middleware does not identify it. stamp_ns: 0 if it has none."""
        _note_publisher(self._heard_ns, publisher, now_ns)
        form = MessageForm(names, stamp_ns)
        for name, position in zip(names, positions, strict=False):
            history = self._histories.get(name) or self._others.get(name)
            if history is not None and math.isfinite(position):
                history.add(publisher, position, form, now_ns)

    def doubt(self, now_ns: int) -> str:
        """Why the robot's position is not certain now, with the topic's publishers; empty if it is."""
        if not self._histories:
            return ""  # no command starts from a position
        several = len(self._nodes) > 1
        for history in self._histories.values():
            doubt = history.two_publishers(now_ns) or history.jumped(now_ns, several=several)
            if doubt:
                publishers = ", ".join(sorted(self._nodes.values())) or "none that is still there"
                return f"joint_states: {doubt} (publishers of joint_states: {publishers})"
        if unheard := self._unheard(now_ns):
            return f"{unheard} publishes joint_states, was found less than 1 s ago and was not heard yet: arm again"
        return ""

    def rivals(self, now_ns: int) -> str:
        """Which joint two publishers give now, with their nodes and positions; empty if none. It may be asked while the
        robot moves."""
        for history in (*self._histories.values(), *self._others.values()):
            if rivals := history.rivals(now_ns, self._nodes):
                return rivals
        return ""

    def _unheard(self, now_ns: int) -> str:
        """The nodes of the publishers that were discovered a moment ago and not heard since; empty if there is none."""
        if len(self._nodes) == 1 and UNKNOWN in self._heard_ns:
            return ""  # it is not identified, but no other publisher can have been heard
        new = [publisher for publisher, at_ns in self._discovered_ns.items() if now_ns - at_ns < UNHEARD_NS]
        return ", ".join(sorted({self._nodes[publisher] for publisher in new if publisher not in self._heard_ns}))


class MessageForm:
    """What the messages of one driver have in common: their names, and whether they are stamped."""

    def __init__(self, names: Sequence[str], stamp_ns: int) -> None:
        self.names = tuple(names)
        self.stamp_ns = stamp_ns

    def differs_from(self, earlier: MessageForm) -> bool:
        return self.names != earlier.names or bool(self.stamp_ns) != bool(earlier.stamp_ns)

    def is_older_than(self, earlier: MessageForm) -> bool:
        return 0 < self.stamp_ns < earlier.stamp_ns


class JointHistory:
    """What was heard of one joint: who published it, and where it can be now.

    Each position says where the joint can be later: further away by the velocity limit times the time since, and by the
    noise. `low` to `high` is where all positions since the last jump, or the last silence, agree.
    """

    def __init__(self, name: str, channel: Channel | None) -> None:
        """channel: whose limits are the joint's; None: none are known."""
        self._name = name
        self._velocity = self._noise = UNLIMITED
        self._turn = math.inf
        if channel is not None:
            self.use(channel, math.inf)
        self._publishers: dict[bytes, int] = {}  # -> time of its newest position of this joint
        self._positions: dict[bytes, float] = {}  # -> that position
        self._value = math.nan
        self._low = -math.inf
        self._high = math.inf
        self._at_ns = NEVER_NS
        self._form: MessageForm | None = None  # of the newest message
        self._jump_ns = NEVER_NS
        self._jump = ""
        # What one driver does not do, for messages of unknown publishers: when it was seen last.
        self._form_changed_ns = NEVER_NS
        self._stamp_went_back_ns = NEVER_NS
        self._stepped_up_ns = NEVER_NS
        self._stepped_down_ns = NEVER_NS
        self._jumped_up_ns = NEVER_NS
        self._jumped_down_ns = NEVER_NS

    def use(self, channel: Channel, turn: float) -> None:
        """Take other limits. turn: a full turn in the channel's unit, infinity if the joint is not continuous."""
        span = channel.upper - channel.lower
        self._velocity = span / RANGE_S if channel.max_rate is None else channel.max_rate
        self._noise = span * NOISE * (1.0 + ROUNDING)
        self._turn = turn

    def add(self, publisher: bytes, position: float, form: MessageForm, now_ns: int) -> None:
        """Note a finite position."""
        _note_publisher(self._publishers, publisher, now_ns)
        self._positions = {known: self._positions.get(known, position) for known in self._publishers}
        if publisher in self._positions:
            self._positions[publisher] = position
        silent_ns = now_ns - self._at_ns
        if silent_ns > STEADY_NS:
            value = position
            self._begin(value)
        else:
            value = self._continue(position, silent_ns, now_ns)
        if publisher == UNKNOWN and silent_ns < TOGETHER_NS:
            self._note_signs(value, form, now_ns)
        self._value = value
        self._form = form
        self._at_ns = now_ns

    def _begin(self, value: float) -> None:
        self._low = value - self._noise
        self._high = value + self._noise

    def _continue(self, position: float, silent_ns: int, now_ns: int) -> float:
        """Compare a position with the ones before it. Returns it, plus full turns if the joint is continuous."""
        reach = self._velocity * silent_ns * 1e-9
        low = self._low - reach
        high = self._high + reach
        value = within_turns(position, low, high, self._turn)
        if low <= value <= high:
            self._low = max(low, value - self._noise)
            self._high = min(high, value + self._noise)
            return value
        self._jump_ns = now_ns
        if value > self._value:
            self._jumped_up_ns = now_ns
        else:
            self._jumped_down_ns = now_ns
        self._jump = f"{self._name} went from {self._value:g} to {value:g} within {silent_ns / 1e6:.0f} ms"
        self._begin(value)
        return value

    def _note_signs(self, value: float, form: MessageForm, now_ns: int) -> None:
        """Note what one driver does not do."""
        if self._form is not None and form.differs_from(self._form):
            self._form_changed_ns = now_ns
        if self._form is not None and form.is_older_than(self._form):
            self._stamp_went_back_ns = now_ns
        if value - self._value > self._noise:
            self._stepped_up_ns = now_ns
        elif self._value - value > self._noise:
            self._stepped_down_ns = now_ns

    def two_publishers(self, now_ns: int) -> str:
        """Why two publishers seem to have been heard within a second; empty if one was."""
        since_ns = now_ns - TOGETHER_NS
        count = sum(at_ns >= since_ns for at_ns in self._publishers.values())
        if count > 1:
            return f"{count} publishers give the position of {self._name}: stop all but one of them"
        sign = ""
        if self._form_changed_ns >= since_ns:
            sign = "the names beside it, or the stamp, come and go"
        elif self._stamp_went_back_ns >= since_ns:
            sign = "stamps go back"
        elif min(self._stepped_up_ns, self._stepped_down_ns) >= since_ns:
            sign = "its values go to and fro"
        return f"more than one publisher gives the position of {self._name} ({sign}): stop all but one" if sign else ""

    def rivals(self, now_ns: int, nodes: Mapping[bytes, str]) -> str:
        """What two publishers of this joint say, heard within a second; empty if one was. nodes: publisher -> its node.
        Publishers that are not identified are told from a moving robot by what none does, and by jumps to and fro."""
        since_ns = now_ns - TOGETHER_NS
        heard = [publisher for publisher, at_ns in self._publishers.items() if at_ns >= since_ns]
        if len(heard) > 1:
            said = [f"{nodes.get(each, 'a node of unknown name')} ({self._positions[each]:g})" for each in heard]
            number = "two" if len(heard) == 2 else str(len(heard))
            return f"{self._name} is published by {number} nodes: {', '.join(sorted(said))}: stop all but one of them"
        signs = (self._form_changed_ns, self._stamp_went_back_ns, min(self._jumped_up_ns, self._jumped_down_ns))
        if len(nodes) > 1 and max(signs) >= since_ns:
            return f"{self._name} is published by two nodes, of {', '.join(sorted(nodes.values()))}: stop all but one"
        return ""

    def jumped(self, now_ns: int, *, several: bool) -> str:
        """Which position of the last 500 ms no motion explains; empty if none. several: the topic has several
        publishers; then a step of an unknown one may be another publisher's first message."""
        since_ns = now_ns - STEADY_NS
        if self._jump_ns >= since_ns:
            return f"{self._jump}, which its velocity limit and {NOISE:.0%} of its range do not explain"
        if several and max(self._stepped_up_ns, self._stepped_down_ns) >= since_ns:
            return f"{self._name} moves by steps of more than {NOISE:.0%} of its range, or another publisher began"
        return ""


def _note_publisher(heard_ns: dict[bytes, int], publisher: bytes, now_ns: int) -> None:
    """Note when a publisher was heard, and forget those that have been silent for a second."""
    if publisher not in heard_ns:
        silent = [silent_one for silent_one, at_ns in heard_ns.items() if now_ns - at_ns > TOGETHER_NS]
        for silent_one in silent:
            del heard_ns[silent_one]
        if len(heard_ns) >= MAX_PUBLISHERS:
            return
    heard_ns[publisher] = now_ns


def within_turns(value: float, low: float, high: float, turn: float) -> float:
    """The position of a continuous joint plus the number of full turns that brings it nearest to [low, high]."""
    if low <= value <= high or math.isinf(turn):
        return value
    above = value + math.ceil((low - value) / turn) * turn
    return above if above - high < low - (above - turn) else above - turn
