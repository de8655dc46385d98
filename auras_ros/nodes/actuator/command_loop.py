"""The tick thread: at a fixed rate, one command from the action stream to the outputs.

Everything that can end a motion passes here. It subscribes to nothing, does not log from the tick thread, and decides
nothing that the stream decides.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from auras_ros.action import Accepted, ActionStream, ActionStreamOptions, Contract, Event, Rejected, SafetyState
from auras_ros.action.contract import FloatArray
from auras_ros.action.limits import MAX_BRAKING_S
from auras_ros.clock import SchedulerClock
from auras_ros.nodes.actuator.agent_watch import AgentWatch
from auras_ros.nodes.actuator.commands import LEASE_MS, CommandPublishers
from auras_ros.nodes.actuator.position import PositionMonitor
from auras_ros.nodes.actuator.realtime import (
    IntervalMeter,
    RealtimeGranted,
    TickGrid,
    configure_process,
    enter_realtime,
)
from auras_ros.nodes.actuator.settings import ActuatorSettings
from auras_ros.nodes.common.messages import host_id


class CommandLoop:
    """Owns the stream. `stop` is called in the emergency stop's thread, `_tick` in the tick thread, all else in the
    executor's."""

    def __init__(
        self,
        settings: ActuatorSettings,
        contract: Contract,
        outputs: CommandPublishers,
        clock: SchedulerClock,
        checkpoint: str,
    ) -> None:
        """checkpoint: digest of the checkpoint that has this contract."""
        self._settings, self._outputs, self._clock = settings, outputs, clock
        self.agent = AgentWatch(settings.agent_timeout_ms, checkpoint)
        self.position = PositionMonitor(contract, settings.place_tolerance if settings.measured_start else 0.0)
        self.stop_thread_fault: Callable[[], str] = lambda: ""  # why nobody listens to the buttons; "" if all is well
        self._tick_began_ns = 0  # by the stream's clock
        self.stopped_by_person = False  # or disarmed: arm_on_start has no effect any more
        self.stream = self._stream_for(contract)
        self._next: ActionStream | None = None
        self._last_reason = ""  # why the previous stream was disarmed, until the next arming
        self._events: deque[Event] = deque()  # last transitions of the previous stream
        self.meter, self.scheduling = IntervalMeter(settings.period_ns), "not started"
        self.granted = RealtimeGranted("not started", "not started", "not started")
        self.ticks = self.skipped = self.stalls = 0
        self._ticked_ns: int | None = None  # by `boot_ns`, the clock by which stalls are measured
        self._sent: FloatArray | None = None  # the newest command
        self.limited = dict.fromkeys(contract.names, 0)  # by channel: number of ticks in which a limit changed it
        self._swap = threading.Lock()
        self._sending = threading.Lock()  # from a tick's command to its last message; never held by `stop`
        self._running = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="tick", daemon=True)

    def _stream_for(self, contract: Contract) -> ActionStream:
        settings = self._settings
        options = ActionStreamOptions(
            settings.period_ns,
            settings.blend_ms,
            settings.hold_after_ms,
            settings.max_chunk_age_ms,
            settings.seam,
            settings.ensemble_decay,
            settings.clip_tolerance,
        )
        return ActionStream(contract, options, host_id())

    # -- the executor's thread ----------------------------------------------------------------------------

    @property
    def live(self) -> bool:
        """Whether chunks may be executed."""
        return self.stream.state in (SafetyState.ARMED, SafetyState.HOLDING)

    @property
    def limits_pending(self) -> bool:
        """Whether new limits wait for the final command."""
        return self._next is not None

    @property
    def reason(self) -> str:
        """Why the state was entered."""
        stream = self.stream
        return self._last_reason if self._last_reason and stream.state is SafetyState.DISARMED else stream.reason

    @property
    def superseded(self) -> int:
        """Number of trajectories that were not sent because a newer one came."""
        return self._outputs.superseded

    def arm(self, position: list[float] | None) -> Accepted | Rejected:
        """Arm from a measured position [channels]; the first command of a set point is that position. Until the first
        chunk names a session, the newest heartbeat counts."""
        if self.stream.state is not SafetyState.ARMED:
            self.agent.follow()
        verdict = self.stream.arm(self._clock.now_ns(), position, stay=True)
        if verdict.ok:
            self._last_reason = ""
        return verdict

    def drain_events(self) -> list[Event]:
        """Transitions since the last call."""
        events = [self._events.popleft() for _ in range(len(self._events))]
        return events + self.stream.drain_events()

    def stop(self, reason: str) -> Accepted:
        """Latch the hold command. Reads no clock: the transition gets the time of the newest tick."""
        self.stopped_by_person = True
        with self._swap:
            return self.stream.stop(self._tick_began_ns, reason)

    def disarm(self) -> Accepted:
        """Disarm on request: the only way out of a latched stop."""
        self.stopped_by_person = True
        return self.stream.disarm(self._clock.now_ns())

    def robot_moved(self, reason: str) -> None:
        """The robot is not where the commands brought it: publish nothing more, not even a last command."""
        with self._sending:
            if not self.stream.silent:
                self.stream.fall_silent(self._clock.now_ns(), f"{reason}: arm again")
                self._outputs.end(self._sent)

    def end(self, reason: str) -> None:
        """Disarm if armed or holding; a latched stop stays latched."""
        self.stream.end(self._clock.now_ns(), reason)

    def use(self, contract: Contract, reason: str) -> None:
        """Use a contract with other limits: at once while disarmed, else after the final command.

        Makes a new stream, because a chunk in use was checked against the old limits; the counters start from zero.
        """
        self._next = self._stream_for(contract)
        self.end(reason)
        if not self._thread.is_alive():
            self._take_limits()

    def configure_process(self) -> None:
        """Raise the priority of the whole process, so that inference does not delay a thread that holds the interpreter
        lock. The threads of the ticks and of the emergency stop have one more; they are started after this."""
        self.granted = configure_process(self._settings.realtime_priority, lock=self._settings.lock_memory)

    def start(self) -> None:
        """Start the tick thread."""
        self._running.set()
        self._thread.start()

    def working(self) -> bool:
        """Whether the threads that tick and publish are alive."""
        return self._thread.is_alive() and self._outputs.working()

    def halt(self) -> None:
        """Orderly shutdown: disarm, publish until the final command (it may have to brake first), end the thread."""
        self.stream.disarm(self._clock.now_ns(), "shutting down")
        self._running.clear()
        if self._thread.is_alive():
            self._thread.join(timeout=MAX_BRAKING_S + 1.0)
        self._outputs.close()

    # -- the tick thread ----------------------------------------------------------------------------------

    def _loop(self) -> None:
        priority = self._settings.realtime_priority
        self.scheduling = enter_realtime(priority + 1 if priority else 0)
        grid = TickGrid(self._clock, self._settings.period_ns)
        while self._running.is_set() or not self.stream.silent:
            now_ns = grid.wait()
            with self._sending:
                self._tick(now_ns)
            self.skipped = grid.skipped

    def _tick(self, now_ns: int) -> None:
        self._tick_began_ns = now_ns
        self.meter.tick(now_ns)
        stream, began_ns = self.stream, self._clock.boot_ns()
        if not stream.silent:
            self._watch_stalls(now_ns, began_ns)
        self._ticked_ns = began_ns
        if self.live:  # also while holding: chunks may come, but must not be executed
            if fault := self.stop_thread_fault():
                self.stop(fault)
            elif self.agent.lost(now_ns):
                stream.hold(now_ns, f"agent silent for more than {self._settings.agent_timeout_ms:g} ms")
            elif pause := self.agent.pause:
                stream.hold(now_ns, f"the agent pauses: {pause}")
            elif missed := self.position.silent(now_ns):
                stream.hold(now_ns, missed)
        command = stream.tick(now_ns)
        self.ticks += 1
        if command.publish:
            if self._watch_stalls(now_ns, self._clock.boot_ns(), unsent=True):
                return
            self._sent = command.values
            self.position.commanded(command.values)
            self._outputs.send(command, stream, self.ticks, now_ns)
            for name in command.limited:
                self.limited[name] += 1
        elif self._next is not None:
            self._take_limits()

    def _watch_stalls(self, now_ns: int, boot_ns: int, *, unsent: bool = False) -> bool:
        """After a stall longer than the command lease another actuator may have taken over; publishing now would make
        two. unsent: the stall came after this tick began, so its command was not published yet."""
        stood_ns = 0 if self._ticked_ns is None else boot_ns - self._ticked_ns
        if stood_ns <= LEASE_MS * 1_000_000:
            return False
        self._ticked_ns = boot_ns
        self.stalls += 1
        reason = f"this process stood still for {stood_ns / 1e9:.1f} s: somebody else may drive"
        self.stream.fall_silent(now_ns, reason, unsent=unsent)
        self._outputs.end(None)
        return True

    def _take_limits(self) -> None:
        """Use the new limits once the final command is out, but not while a stop is latched; arming is refused until
        then."""
        with self._swap:
            stream = self.stream
            if self._next is None or stream.state is not SafetyState.DISARMED or not stream.silent:
                return
            self._last_reason = self.reason
            self._events.extend(self.stream.drain_events())
            self.stream, self._next = self._next, None
