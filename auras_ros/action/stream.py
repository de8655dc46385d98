"""From offered chunks to one command a tick: the facade that the actuator and lockstep evaluation both run.

Chunks go in when they come, one command comes out a tick: aligned by executed index, blended at seams,
guarded by limits, held when nothing valid is there. All times are arguments, in nanoseconds on one monotonic
clock (in lockstep: integer steps times dt); nothing here reads a clock, sleeps, logs or knows a message.
`tick` runs in the actuator's tick thread and everything else in its executor's: one short lock keeps them
apart.

A command that says `publish` is taken for executed. The node publishes it, always.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from .admission import Admission
from .align import Timeline
from .chunk import Chunk, Provenance
from .command import Command, Horizon
from .contract import Contract, ContractError, FloatArray
from .in_force import InForce
from .limits import DEFAULT_CLIP_TOLERANCE, Limits
from .output import Output, Sent
from .safety import Event, Safety, SafetyState
from .verdict import Accepted, Refusal, Rejected

MAX_RECORD_TICKS = 100_000  # bounds the memory of the executed record


class ActionStream:
    """See the module's docstring.

    `tick_ns`: the period between ticks. `blend_ms`: length of a seam. `hold_after_ms`: after the last valid
    action the last command stays in force this long (increments: none), then the hold policies apply.
    `max_chunk_age_ms`: no action is executed when its chunk's origin is older. `clip_tolerance`: see
    `limits`. `host`: where given, chunks from another host's monotonic clock are refused.

    A chunk that carries NaN, Inf or a value beyond its limits is refused, and the one in force is dropped
    with it: the stream holds at the next tick until a valid chunk comes. Raises ContractError.
    """

    def __init__(
        self,
        contract: Contract,
        tick_ns: int,
        blend_ms: float = 0.0,
        hold_after_ms: float = 0.0,
        max_chunk_age_ms: float = 2000.0,
        *,
        clip_tolerance: float = DEFAULT_CLIP_TOLERANCE,
        host: str | None = None,
    ) -> None:
        if not isinstance(tick_ns, int) or not 1 <= tick_ns <= contract.dt_ns:
            raise ContractError(f"stream: tick_ns: {tick_ns!r} is not in 1..dt ({contract.dt_ns})")
        self._hold_after_ns = _time_ns("hold_after_ms", hold_after_ms)
        self._max_age_ns = _time_ns("max_chunk_age_ms", max_chunk_age_ms)
        blend_ns = _time_ns("blend_ms", blend_ms)
        if blend_ns > self._max_age_ns:
            raise ContractError(f"stream: blend_ms: {blend_ms} is longer than max_chunk_age_ms")
        if self._max_age_ns // tick_ns > MAX_RECORD_TICKS:
            raise ContractError(f"stream: max_chunk_age_ms: more than {MAX_RECORD_TICKS} ticks")
        self.contract, self.tick_ns = contract, tick_ns
        self._limits = Limits(contract, tick_ns, clip_tolerance)
        self._timeline = Timeline(tick_ns, self._max_age_ns, len(contract.channels))
        self._in_force = InForce(contract, self._timeline, self._limits, blend_ns // tick_ns)
        self._admission = Admission(contract, self._max_age_ns, host)
        self._safety = Safety()
        self._lock = threading.Lock()
        self._output = Output(self._limits, self._timeline)
        self._nothing: FloatArray = np.full(len(contract.channels), np.nan)
        self._nothing.flags.writeable = False
        self._authority = False  # from arm until the final command: only then is anything published
        self._final_due = False
        self._valid_ns = 0
        self._counts = dict.fromkeys(_COUNTERS, 0)
        self._refused: dict[str, int] = {}
        self._starved = "awaiting a chunk"

    # -- chunks -------------------------------------------------------------------------------------------

    def offer(self, chunk: Chunk, now_ns: int) -> Accepted | Rejected:
        """Take a chunk for the ticks from now on, or say why not. Newest (epoch, origin, request) wins."""
        with self._lock:
            verdict = (
                self._not_live()
                or self._admission.refuse(chunk, now_ns)
                or self._in_force.place(chunk, now_ns, self._output.anchor)
            )
            if isinstance(verdict, Accepted):
                self._admission.admit(chunk.provenance)
                self._counts["accepted"] += 1
                self._counts["clipped_values"] += verdict.clipped
            else:
                self._refused[verdict.reason.value] = self._refused.get(verdict.reason.value, 0) + 1
                if verdict.reason in (Refusal.NON_FINITE, Refusal.OVER_LIMIT):
                    self._drop(now_ns, f"chunk refused: {verdict.detail}")
            return verdict

    def _not_live(self) -> Rejected | None:
        if self._safety.live:
            return None
        if self._safety.state is SafetyState.STOPPED:
            return Rejected(Refusal.STOPPED, f"stopped: {self._safety.reason}")
        return Rejected(Refusal.DISARMED, "not armed")

    # -- ticks --------------------------------------------------------------------------------------------

    def tick(self, now_ns: int) -> Command:
        """The command for this tick. Missed periods are counted, never made up."""
        with self._lock:
            last_ns = self._timeline.last_ns
            if last_ns is not None and now_ns < last_ns:
                self._clock_went_back(now_ns)
            missed = self._timeline.advance(now_ns)
            if missed:
                self._counts["late_ticks"] += 1
                self._counts["missed_ticks"] += missed
            if self._final_due:
                return self._final()
            if not self._authority:
                return self._command(None, "none")
            command = self._execute(now_ns)
            return self._hold(now_ns) if command is None else command

    def _execute(self, now_ns: int) -> Command | None:
        """The active chunk's command; None where it has none, and then it is dropped."""
        chunk = self._in_force.chunk
        if chunk is None:
            return None
        age_ns = now_ns - chunk.provenance.origin_mono_ns
        if age_ns > self._max_age_ns:
            self._starve(f"the chunk's origin is older than {self._max_age_ns / 1e6:g} ms")
            return None
        due = self._in_force.due()
        if due is None:
            self._starve("the chunk's horizon is used up")
            return None
        sent = self._output.send(due.wanted)
        if sent is None:
            self._drop(now_ns, "a command would not have been finite")
            return None
        self._valid_ns = now_ns
        self._safety.resume(now_ns, "valid chunk")
        source = "blend" if due.blended else "chunk"
        return self._command(sent, source, due.index, age_ns, chunk.provenance)

    def _hold(self, now_ns: int) -> Command:
        if self._safety.state is SafetyState.ARMED and now_ns - self._valid_ns <= self._hold_after_ns:
            sent = self._output.repeat()
        else:
            self._safety.hold(now_ns, self._starved)
            sent = self._output.hold()
        self._counts["hold_ticks"] += sent is not None
        return self._command(sent, "stop" if self._safety.state is SafetyState.STOPPED else "hold")

    def _final(self) -> Command:
        self._final_due = self._authority = False
        return self._command(self._output.final(), "hold")

    def _command(
        self,
        sent: Sent | None,
        source: str,
        index: int | None = None,
        age_ns: int | None = None,
        provenance: Provenance | None = None,
    ) -> Command:
        if sent is None:
            return Command(self._nothing, False, self._safety.state, "none")
        limited = tuple(self.contract.names[i] for i in sent.limited)
        return Command(sent.values, True, self._safety.state, source, index, age_ns, provenance, limited)

    def _starve(self, reason: str) -> None:
        self._in_force.drop()
        self._starved = reason

    def _drop(self, now_ns: int, reason: str) -> None:
        """Hold from the next tick on, for this reason."""
        self._starve(reason)
        self._safety.hold(now_ns, reason)

    # -- transitions --------------------------------------------------------------------------------------

    def arm(self, now_ns: int, current: npt.ArrayLike | None = None) -> Accepted | Rejected:
        """Allow commands; the state is holding until the first valid chunk.

        `current` [channels]: the measured position (for a velocity the measured rate), NaN where unknown;
        the first command keeps its rate from there. Without it a position is held only once one was
        commanded. While holding this re-arms: a new session's chunks are taken. Refused when stopped.
        """
        with self._lock:
            if self._safety.state is SafetyState.STOPPED:
                return Rejected(Refusal.STOPPED, f"stopped: {self._safety.reason}; disarm first")
            if self._safety.state is SafetyState.ARMED:
                return Accepted(detail="already armed")
            if current is not None:
                measured = self._limits.measured(np.asarray(current, dtype=np.float64))
                if isinstance(measured, Rejected):
                    return measured
                self._output.place(measured)
            self._final_due, self._authority = False, True
            self._forget()
            self._safety.arm(now_ns, "awaiting a chunk")
            return Accepted(detail="armed")

    def disarm(self, now_ns: int, reason: str = "disarm requested") -> Accepted:
        """Stop publishing: the next tick's command is the last, and it holds."""
        with self._lock:
            self._disarm(now_ns, reason)
            return Accepted(detail="disarmed")

    def stop(self, now_ns: int, reason: str = "stop requested") -> Accepted:
        """Latch the hold command until disarmed. From disarmed nothing is published either."""
        with self._lock:
            self._starve(reason)
            self._safety.stop(now_ns, reason)
            return Accepted(detail="stopped")

    def agent_lost(self, now_ns: int, reason: str = "agent lost") -> None:
        """Drop the chunk in force and hold; a valid chunk of the same session ends it."""
        with self._lock:
            self._drop(now_ns, reason)

    def reset(self, now_ns: int, reason: str = "reset") -> None:
        """The world was reset: drop the chunk in force, forget session, epoch and order, and hold."""
        with self._lock:
            self._drop(now_ns, reason)
            self._forget()

    def _forget(self) -> None:
        self._admission.forget()
        self._starve("awaiting a chunk")

    def _disarm(self, now_ns: int, reason: str) -> None:
        self._safety.disarm(now_ns, reason)
        self._final_due = self._authority
        self._forget()

    def _clock_went_back(self, now_ns: int) -> None:
        """All ages are meaningless now: a clock that starts anew disarms."""
        self._disarm(now_ns, "the clock went back")
        self._timeline.clear()

    # -- looking in ---------------------------------------------------------------------------------------

    @property
    def state(self) -> SafetyState:
        """The safety state."""
        return self._safety.state

    @property
    def reason(self) -> str:
        """Why the state was entered: the first reason, kept until the state is left."""
        return self._safety.reason

    @property
    def session(self) -> str | None:
        """The agent's session that chunks are taken from, None until the first one after arming."""
        return self._admission.session

    def drain_events(self) -> list[Event]:
        """Transitions since the last call, for the log."""
        with self._lock:
            return self._safety.drain()

    def counters(self) -> dict[str, Any]:
        """Totals since the start, for diagnostics; `refused` maps reason to number."""
        with self._lock:
            sent = {"published": self._output.published, "limited_ticks": self._output.limited_ticks}
            return {**self._counts, **sent, "refused": dict(self._refused)}

    def horizon(self, now_ns: int) -> Horizon | None:
        """What the chunk in force still holds, checked like commands at one policy step apart.

        None unless armed. Seams and tick phases are left out; increments are per policy step.
        """
        with self._lock:
            if self._safety.state is not SafetyState.ARMED:
                return None
            return self._in_force.horizon(now_ns, self._output.anchor)


_COUNTERS = ("accepted", "clipped_values", "hold_ticks", "late_ticks", "missed_ticks")


def _time_ns(name: str, value_ms: float) -> int:
    if not np.isfinite(value_ms) or value_ms < 0:
        raise ContractError(f"stream: {name}: {value_ms!r} is not a time of zero or more")
    return round(value_ms * 1e6)
