"""From offered chunks to one command per tick: the facade that the actuator and lockstep evaluation both run.

Chunks are offered when they come, and each tick returns one command: aligned by executed index, joined at seams,
limited, or a hold command if nothing is valid. All times are arguments, in nanoseconds on one monotonic clock
(in lockstep: integer steps times dt); nothing here reads a clock, sleeps, logs or uses a message. `tick` runs in
the actuator's tick thread, `stop` in that of the emergency stop and everything else in its executor's: one
briefly held lock protects the state.

A command with `publish` set counts as executed. The node publishes it, or calls `fall_silent` with `unsent`.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from .admission import Admission
from .ahead import Ahead
from .chunk import Chunk
from .command import Command
from .command_generator import AWAITING, CommandGenerator
from .contract import Contract
from .options import ActionStreamOptions
from .safety import Event, SafetyState
from .verdict import Accepted, ChunkRefusal, Rejected


class ActionStream:
    """See the module's docstring.

    `host`: if given, chunks from another host's monotonic clock are refused. A chunk with NaN, Inf or a value beyond
    its limits is refused, and the active chunk is dropped too: the stream holds from the next tick until a valid chunk
    comes. Raises ContractError.
    """

    def __init__(self, contract: Contract, options: ActionStreamOptions, host: str | None = None) -> None:
        options.check(contract)
        self.contract, self.tick_ns = contract, options.tick_ns
        self._generator = CommandGenerator(contract, options)
        self._admission = Admission(contract, options.max_age_ns, host)
        self._lock = threading.Lock()

    # -- chunks -------------------------------------------------------------------------------------------

    def offer(self, chunk: Chunk, now_ns: int) -> Accepted | Rejected:
        """Take a chunk for the ticks from now on, or return the refusal. The newest (epoch, origin, request) wins."""
        with self._lock:
            generator = self._generator
            verdict = (
                generator.safety.refuse()
                or self._admission.refuse(chunk, now_ns)
                or generator.plan.place(chunk, now_ns, generator.output.motion.anchor)
            )
            generator.tally.count_offer(verdict)
            if isinstance(verdict, Accepted):
                self._admission.admit(chunk.provenance)
            elif verdict.reason in (ChunkRefusal.NON_FINITE, ChunkRefusal.OVER_LIMIT):
                generator.drop(now_ns, f"chunk refused: {verdict.detail}")
            return verdict

    # -- ticks --------------------------------------------------------------------------------------------

    def tick(self, now_ns: int) -> Command:
        """The command for this tick. Missed periods are counted, never made up."""
        with self._lock:
            last_ns = self._generator.timeline.last_ns
            if last_ns is not None and now_ns < last_ns:  # all ages are meaningless now
                self._disarm(now_ns, "the clock went back")
                self._generator.timeline.clear()
            return self._generator.command(now_ns)

    # -- transitions --------------------------------------------------------------------------------------

    def arm(self, now_ns: int, current: npt.ArrayLike | None = None, *, stay: bool = False) -> Accepted | Rejected:
        """Allow commands; the state is holding until the first valid chunk.

        `current` [channels]: the measured position, NaN if unknown; rate limits of the first command count from
        there (a velocity's from zero, or from its last command). Without it a position is held only once one
        was commanded. While holding this arms again: a new session's chunks are taken, and commands continue from
        the last one, not from `current`. Refused when stopped.

        stay: the first command is `current` for set points, even if a chunk has come by then or the hold policy asks
        for another value.
        """
        with self._lock:
            generator = self._generator
            if generator.safety.state is SafetyState.STOPPED:
                return Rejected(ChunkRefusal.STOPPED, f"stopped: {generator.safety.reason}; disarm first")
            if generator.safety.state is SafetyState.ARMED:
                return Accepted(detail="already armed")
            if current is not None:
                measured = generator.limits.measured(np.asarray(current, dtype=np.float64))
                if isinstance(measured, Rejected):
                    return measured
                generator.output.place(measured, generator.authority, stay)
            self._admission.forget()
            generator.begin(now_ns)
            return Accepted(detail="armed")

    def disarm(self, now_ns: int, reason: str = "disarm requested") -> Accepted:
        """Stop publishing: the next commands bring every channel to rest, and the one that does so is the last.

        That is the next tick's command, unless an acceleration limit needs more ticks: see `silent`.
        """
        with self._lock:
            self._disarm(now_ns, reason)
            return Accepted(detail="disarmed")

    def stop(self, now_ns: int, reason: str = "stop requested") -> Accepted:
        """Latch the hold command until disarmed. If it was disarmed before, nothing is published."""
        with self._lock:
            self._generator.safety.stop(now_ns, reason)
            self._generator.starve(reason)
            return Accepted(detail="stopped")

    def hold(self, now_ns: int, reason: str = "agent lost") -> None:
        """Drop the active chunk and hold; a valid chunk of the same session ends it."""
        with self._lock:
            self._generator.drop(now_ns, reason)

    def end(self, now_ns: int, reason: str) -> None:
        """Disarm if armed or holding; a latched stop stays latched, even if it is pressed at this moment."""
        with self._lock:
            if self._generator.safety.live:
                self._disarm(now_ns, reason)

    def fall_silent(self, now_ns: int, reason: str, *, unsent: bool = False) -> None:
        """Disarm without a last command: another actuator may drive by now, or the robot is not where it was, so it
        must not be sent back to the last position. A latched stop stays latched.

        Rates and increments other than zero are first braked to zero, because a controller may continue a rate;
        meanwhile the set points are repeated as they were last sent. unsent: the last command was returned by `tick`
        but not published.
        """
        with self._lock:
            self._generator.fall_silent(now_ns, reason, unsent)
            self._admission.forget()

    def reset(self, now_ns: int, reason: str = "reset") -> None:
        """The world was reset: drop the active chunk, forget session, epoch and order, and hold."""
        with self._lock:
            self._generator.drop(now_ns, reason)
            self._generator.starve(AWAITING)
            self._admission.forget()

    def _disarm(self, now_ns: int, reason: str) -> None:
        self._generator.end(now_ns, reason)
        self._admission.forget()

    # -- status -------------------------------------------------------------------------------------------

    @property
    def state(self) -> SafetyState:
        """The safety state."""
        return self._generator.safety.state

    @property
    def reason(self) -> str:
        """Why the state was entered: the first reason, kept until the state is left."""
        return self._generator.safety.reason

    @property
    def session(self) -> str | None:
        """The agent's session that chunks are taken from, None until the first one after arming."""
        return self._admission.session

    @property
    def silent(self) -> bool:
        """Whether nothing is published any more: not armed, and the final command is out. Becomes true within
        `limits.MAX_BRAKING_S` of ticks after disarm."""
        return not self._generator.authority

    def drain_events(self) -> list[Event]:
        """Transitions since the last call, for the log."""
        with self._lock:
            return self._generator.safety.drain()

    def counters(self) -> dict[str, Any]:
        """Totals since the start, for diagnostics; `refused` maps reason to number."""
        with self._lock:
            return self._generator.tally.totals()

    def ahead(self, now_ns: int) -> Ahead | None:
        """The rest of the active chunk, to be limited like commands one policy step apart.

        None unless armed. Blends and the phase of ticks are ignored; increments are per policy step. It is a copy:
        checking it may take longer than a tick and does not delay one.
        """
        with self._lock:
            generator = self._generator
            if generator.safety.state is not SafetyState.ARMED:
                return None
            return generator.plan.ahead(now_ns, generator.output.motion)
