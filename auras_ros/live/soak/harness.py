"""Test harness of the live loop: listens, waits, signals processes, arms again, and looks after what runs.

Nothing in here knows a fault; the faults are written with it.
"""

from __future__ import annotations

import itertools
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cached_property
from typing import Any, TypeVar

from auras_ros.clock import MonotonicClock
from auras_ros.live.soak.control_node import ControlNode
from auras_ros.live.soak.judge import ReceivedAction
from auras_ros.live.soak.log_pipe import LogPipe
from auras_ros.live.soak.own_layer import OwnLayer
from auras_ros.live.soak.topics import Topic
from auras_ros.live.soak.usage import Usage
from auras_ros.live.soak.witness import Witness
from auras_ros.nodes.common.supervisor import Supervisor
from auras_ros.ros import Clock, ClockType

SPIN_S = 0.02
POLL_S, READ_S = 0.1, 1.0  # at exit statuses; at what processes use
PATIENCE_S = 10.0  # for what a fault makes the loop do
ANSWER_S, RETRY_S = 3.0, 0.3
RECOVERY_S = 90.0  # from a fault until it drives again; an agent that died is started again and loads
TOLD_S = 0.3  # until the robot's new place has been told of, several times
STEADY_NS = 300_000_000
TOO_SLOW = "too slow for its settings"  # in the supervisor's news
UNDISTURBED_MS = 1000.0
MS = 1_000_000
T = TypeVar("T")
Wanted = Callable[[ReceivedAction], bool]
Times = tuple[int, int | None]
"""When a fault broke the loop and when the loop did what it promises, monotonic ns; None where it did not."""


class Interrupted(Exception):  # noqa: N818  (nothing went wrong)
    """Asked to stop."""


class SoakHarness:
    """One thread: every callback comes in `turn`, which raises Interrupted once `stopping` says so."""

    def __init__(
        self,
        witness: Witness,
        callbacks: Any,
        supervisor: Supervisor,
        rng: random.Random,
        stopping: Callable[[], bool],
        log: LogPipe | None = None,
        control: ControlNode | None = None,
    ) -> None:
        """log: what the nodes print to. control: what their memory is compared with."""
        self.witness, self.judge, self.rng = witness, witness.judge, rng
        self._callbacks, self._supervisor, self._stopping = callbacks, supervisor, stopping
        self._clock = MonotonicClock()
        self.usage = {name: Usage() for name in supervisor.processes}
        self.control, self._control_process = Usage(), control
        self.planned_skips = 0
        self.presses_again = 0  # of the emergency stop, where one could not be timed
        self.unread_log = log.unread if log else nullcontext  # a block in which nobody reads it
        self.closed_log = log.closed if log else nullcontext  # one in which nobody could
        self._killed: set[str] = set()
        self._may_end: set[str] = set()
        self._started_again_ns: dict[str, int] = {}  # process -> just before the supervisor started it again
        self._bags: dict[str, list[Any]] = {}
        self._looked_s = self._read_s = 0.0
        self._resources = ExitStack()

    @cached_property
    def own_layer(self) -> OwnLayer:
        """A process on our own DDS layer, started at its first use."""
        return self._resources.enter_context(OwnLayer())

    def close(self) -> None:
        """End what was started here."""
        self._resources.close()

    def now_ns(self) -> int:
        return self._clock.now_ns()

    def draw(self, name: str, items: Sequence[T]) -> T:
        """One of them, in random order: none comes again under this name before all were there."""
        bag = self._bags.get(name) or self.rng.sample(items, len(items))
        self._bags[name] = bag
        drawn: T = bag.pop()
        return drawn

    # -- waiting ------------------------------------------------------------------------------------------

    def turn(self, at_most_s: float = SPIN_S) -> None:
        """A callback, and from time to time a look at the processes. Raises Interrupted, SupervisorError."""
        if self._stopping():
            raise Interrupted
        if not self._callbacks.spin_once(at_most_s):
            raise RuntimeError("the witness hears nothing any more: its callbacks do nothing but fail")
        now_s = time.monotonic()
        if now_s - self._looked_s >= POLL_S:
            self._looked_s = now_s
            before_ns = self.now_ns()
            for news in self._supervisor.poll():
                self._hear(news, before_ns)
        if now_s - self._read_s >= READ_S:
            self._read_s = now_s
            for name, process in self._supervisor.processes.items():
                if self.witness.driving or process.pid in self.usage[name].lives:  # one that still loads is not read
                    self.usage[name].look(process.pid, now_s)
            if self._control_process:
                self.control.look(self._control_process.pid, now_s)

    def _hear(self, news: str, before_ns: int) -> None:
        """A process that we did not kill must not end. before_ns: when the supervisor had not acted yet."""
        name = news.split()[0]
        if news.endswith("started again"):
            self._started_again_ns[name] = before_ns
            return
        if TOO_SLOW in news:  # it says that the machine is, and tries again
            return
        if name in self._killed:
            self._killed.remove(name)
        elif name not in self._may_end:
            self.judge.violate("process ended", news)

    def until(self, condition: Callable[[], Any], patience_s: float | None = None) -> bool:
        """Whether the condition came to hold in time. patience_s: PATIENCE_S if None."""
        end_s = time.monotonic() + (PATIENCE_S if patience_s is None else patience_s)
        while not condition():
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                return False
            self.turn(min(SPIN_S, left_s))
        return True

    def pause(self, seconds: float) -> None:
        self.until(lambda: False, seconds)

    def expect(self, condition: Callable[[], Any], kind: str, text: str, patience_s: float | None = None) -> bool:
        """Whether the condition came to hold in time; it is a violation if not."""
        held = self.until(condition, patience_s)
        if not held:
            self.judge.violate(kind, text)
        return held

    # -- publishing ---------------------------------------------------------------------------------------

    @contextmanager
    def publisher(self, topic: Topic, listeners: int = 1) -> Iterator[Any]:
        """A publisher for a block, which begins when that many listeners are matched."""
        made = self.witness.create_publisher(*topic)
        with _until_left(self.witness.destroy_publisher, made):
            self.until(lambda: made.get_subscription_count() >= listeners)
            yield made

    def subscription(self, topic: Topic, take: Callable[[Any], object]) -> AbstractContextManager[Any]:
        """A subscription for a block."""
        kind, name, qos = topic
        made = self.witness.create_subscription(kind, name, take, qos)
        return _until_left(self.witness.destroy_subscription, made)

    def client(self, kind: Any, service: str) -> AbstractContextManager[Any]:
        """A client of a service for a block."""
        made = self.witness.create_client(kind, service)
        return _until_left(self.witness.destroy_client, made)

    def timer(self, period_s: float, callback: Callable[[], object]) -> AbstractContextManager[Any]:
        """A timer for a block, whatever is done to the clocks."""
        made = self.witness.create_timer(period_s, callback, clock=Clock(clock_type=ClockType.STEADY_TIME))
        return _until_left(self.witness.destroy_timer, made)

    def repeat(self, publish: Callable[[], object], hz: float, seconds: float) -> tuple[int, int]:
        """Publish at least once, then at this rate for so long. Returns the times before and after, monotonic ns."""
        begin_ns = self.now_ns()
        publish()
        while self.now_ns() - begin_ns < seconds * 1e9:
            self.pause(1.0 / hz)
            publish()
        return begin_ns, self.now_ns()

    # -- breaking -----------------------------------------------------------------------------------------

    def kill(self, name: str) -> int:
        """SIGKILL; the time just before, monotonic ns."""
        process, at_ns = self._supervisor.processes.get(name), self.now_ns()
        if process is not None:  # that it has ended by itself is a violation already
            self._killed.add(name)
            process.send_signal(signal.SIGKILL)
        return at_ns

    @contextmanager
    def may_end(self, name: str) -> Iterator[None]:
        """A block in which this process may end, again and again, without a violation."""
        self._may_end.add(name)
        try:
            yield
        finally:
            self._may_end.discard(name)

    def started_again_ns(self, name: str, since_ns: int) -> int:
        """Just before the process was started again after that time; now, if it was not."""
        at_ns = self._started_again_ns.get(name, 0)
        return at_ns if at_ns > since_ns else self.now_ns()

    @contextmanager
    def stopped(self, name: str) -> Iterator[int]:
        """SIGSTOP for a block, SIGCONT after it, whatever happens in it; gives the time just before. Of a process that
        has ended by itself there is nothing to stop: that is a violation of its own."""
        process, at_ns = self._supervisor.processes.get(name), self.now_ns()
        if process is not None:
            process.send_signal(signal.SIGSTOP)
        try:
            yield at_ns
        finally:
            if process is not None:
                process.send_signal(signal.SIGCONT)

    @contextmanager
    def given(self, node: str, **parameters: Any) -> Iterator[None]:
        """Other parameters for a node that is started within a block."""
        before = self._supervisor.override(node, {})
        self._supervisor.override(node, {**before, **parameters})
        try:
            yield
        finally:
            self._supervisor.override(node, before)

    # -- what is heard ------------------------------------------------------------------------------------

    def left_armed(self, since_ns: int) -> int | None:
        """When the first command since then was sent that no chunk made; None where none comes."""
        return self.first(lambda each: each.state != "armed", self.judge.sent, since_ns)

    def first_of(self, state: str, since_ns: int, patience_s: float | None = None) -> int | None:
        """When the first command of that state since then was sent; None where none comes."""
        return self.first(lambda each: each.state == state, self.judge.sent, since_ns, patience_s)

    def first(
        self, wanted: Wanted, sent: Iterable[ReceivedAction], since_ns: int, patience_s: float | None = None
    ) -> int | None:
        """When the first of these commands since then was sent that is wanted; None where none comes."""
        found: list[int] = []

        def heard() -> bool:
            found[:] = [each.mono_ns for each in sent if each.mono_ns >= since_ns and wanted(each)][:1]
            return bool(found)

        return found[0] if self.until(heard, patience_s) else None

    def driven_ns(self, since_ns: int) -> list[int]:
        """When commands of chunks were sent since then."""
        return [each.mono_ns for each in self.judge.sent if each.mono_ns > since_ns and each.state == "armed"]

    def fresh_chunk_ns(self, since_ns: int) -> int | None:
        """When the first chunk of an observation that was made since then was published; None without one."""
        return next((each.published_ns for each in self.witness.chunks if each.origin_mono_ns > since_ns), None)

    def undisturbed(self, since_ns: int, what: str) -> None:
        """It must have been driven since then, and must be now, with no hold longer than a second."""
        self.goes_on()
        times_ns = [since_ns, *self.driven_ns(since_ns), self.now_ns()]
        longest_ms = max(after - before for before, after in itertools.pairwise(times_ns)) / MS
        if longest_ms > UNDISTURBED_MS:
            self.judge.violate("disturbed", f"not driven for {longest_ms:.0f} ms by {what}")

    def says(self, state: str) -> bool:
        """Whether the actuator comes to say that state."""
        return self.until(lambda: self.witness.state.get("state") == state)

    def steady(self) -> bool:
        """Whether it comes to be driven for a while without a hold; it must.

        An agent that ended unasked is a violation of its own; the one after it drives nobody who has not armed again.
        """

        def unbroken() -> bool:
            since_ns = self.now_ns() - STEADY_NS
            newest = [each.state for each in self.judge.sent if each.mono_ns >= since_ns]
            return len(newest) > 10 and set(newest) == {"armed"}

        def another_life() -> bool:
            follows = self.witness.state.get("session")
            return bool(follows) and self.witness.heartbeat.get("session") not in (None, follows)

        found = self.until(lambda: unbroken() or another_life(), RECOVERY_S) and (unbroken() or self.drive())
        text = f"never driven for {STEADY_NS / 1e6:g} ms within {RECOVERY_S:g} s"
        return self.expect(unbroken, "not steady", text, RECOVERY_S if found else 0.0)

    def goes_on(self) -> None:
        """It must be driven again by itself."""
        text = f"not driven within {RECOVERY_S:g} s, without anybody's asking"
        self.expect(lambda: self.witness.driving, "did not go on", text, RECOVERY_S)

    def used(self, begin_ns: int, end_ns: int, what: str) -> None:
        """Good messages must be used after bad ones, and the robot must have been driven meanwhile."""
        self.expect(lambda: self.fresh_chunk_ns(end_ns), "good ones not used", f"no chunk after {what}")
        self.undisturbed(begin_ns, what)

    # -- asking -------------------------------------------------------------------------------------------

    def answer(self, ask: Callable[[], Any], patience_s: float = ANSWER_S) -> Any:
        """The response to a call; None where nobody answers in time."""
        future = ask()
        if future is None:
            self.pause(RETRY_S)
            return None
        return future.result() if self.until(future.done, patience_s) else None

    def agrees(self, ask: Callable[[], Any]) -> bool:
        """Whether the answer to a call comes, and is yes."""
        response = self.answer(ask)
        return response is not None and bool(response.success)

    def call(self, service: str) -> bool:
        """Whether a service of the loop answers yes."""
        return self.agrees(lambda: self.witness.call(service))

    def sets(self, name: str, value: Any) -> bool | None:
        """Whether the actuator takes a parameter; None where it does not answer."""
        response = self.answer(lambda: self.witness.set_parameter(name, value), PATIENCE_S)
        return None if response is None else bool(response.results[0].successful)

    def new_table(self) -> None:
        """Another one, which is nobody's to be moved on: disarmed for it, and armed again."""
        self.call("actuator/disarm")
        self.call("pusht/reset")
        self.pause(TOLD_S)
        self.drive()

    def arm(self) -> bool:
        """Ask once; whether it is armed."""
        self.judge.ask()
        response = self.answer(lambda: self.witness.call("actuator/arm"))
        self.judge.answered(response is None or response.success, self.now_ns())
        return response is not None and bool(response.success)

    def drive(self) -> bool:
        """Arm until it is driven. Whether it is, in time."""
        end_s = time.monotonic() + RECOVERY_S
        while time.monotonic() < end_s:
            if self.witness.state.get("state") == "stopped":
                self.call("actuator/disarm")
            state = self.witness.state
            if state.get("emergency_stop") or state.get("emergency_stop_latched"):  # if refused, the answer says why
                self.call("actuator/release_stop")
            if self.arm() and self.until(lambda: self.witness.driving, ANSWER_S):
                return True
            self.pause(RETRY_S)
        self.judge.violate("not recovered", f"not driven within {RECOVERY_S:g} s: {self.witness.state.get('reason')}")
        return False


@contextmanager
def _until_left(destroy: Callable[[Any], object], made: Any) -> Iterator[Any]:
    try:
        yield made
    finally:
        destroy(made)
