"""From offered chunks to one command a tick: the facade that the actuator and lockstep evaluation both run.

Chunks go in when they come, one command comes out a tick: aligned by executed index, joined at seams,
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
from .contract import Contract, FloatArray
from .ensemble import DEFAULT_ENSEMBLE_DECAY
from .in_force import Due, InForce
from .limits import DEFAULT_CLIP_TOLERANCE, Limits
from .options import Options
from .output import Output, Sent
from .safety import Event, Safety, SafetyState
from .tally import Tally
from .verdict import Accepted, Refusal, Rejected


class ActionStream:
    """See the module's docstring.

    `tick_ns`: the period between ticks. `seam`, how a chunk follows another: "blend" fades over `blend_ms`,
    "ensemble" averages all chunks that cover a tick with `ensemble_decay` (see `ensemble`), "switch" does
    neither. `hold_after_ms`: after the last valid action the last command stays in force this long
    (increments: none), then the hold policies apply. `max_chunk_age_ms`: no action is executed when its
    chunk's origin is older. `clip_tolerance`: see `limits`. `host`: where given, chunks from another host's
    monotonic clock are refused.

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
        seam: str = "blend",
        ensemble_decay: float = DEFAULT_ENSEMBLE_DECAY,
        clip_tolerance: float = DEFAULT_CLIP_TOLERANCE,
        host: str | None = None,
    ) -> None:
        options = Options(tick_ns, blend_ms, hold_after_ms, max_chunk_age_ms, seam, ensemble_decay, clip_tolerance)
        options.check(contract)
        self.contract, self.tick_ns = contract, tick_ns
        self._hold_after_ns, max_age_ns = options.hold_after_ns, options.max_age_ns
        self._limits = Limits(contract, tick_ns, clip_tolerance)
        self._timeline = Timeline(tick_ns, max_age_ns, len(contract.channels))
        self._in_force = InForce(
            contract, self._timeline, self._limits, max_age_ns, options.blend_ticks, options.ensemble(contract)
        )
        self._admission = Admission(contract, max_age_ns, host)
        self._safety = Safety()
        self._lock = threading.Lock()
        self._output = Output(self._limits, self._timeline)
        self._nothing: FloatArray = np.full(len(contract.channels), np.nan)
        self._nothing.flags.writeable = False
        self._authority = False  # from arm until the final command: only then is anything published
        self._leaving = False  # on the way to the final command
        self._valid_ns = 0
        self._tally = Tally()
        self._starved = "awaiting a chunk"

    # -- chunks -------------------------------------------------------------------------------------------

    def offer(self, chunk: Chunk, now_ns: int) -> Accepted | Rejected:
        """Take a chunk for the ticks from now on, or say why not. Newest (epoch, origin, request) wins."""
        with self._lock:
            verdict = (
                self._safety.refuse()
                or self._admission.refuse(chunk, now_ns)
                or self._in_force.place(chunk, now_ns, self._output.motion.anchor)
            )
            self._tally.offered(verdict)
            if isinstance(verdict, Accepted):
                self._admission.admit(chunk.provenance)
            elif verdict.reason in (Refusal.NON_FINITE, Refusal.OVER_LIMIT):
                self._drop(now_ns, f"chunk refused: {verdict.detail}")
            return verdict

    # -- ticks --------------------------------------------------------------------------------------------

    def tick(self, now_ns: int) -> Command:
        """The command for this tick. Missed periods are counted, never made up."""
        with self._lock:
            last_ns = self._timeline.last_ns
            if last_ns is not None and now_ns < last_ns:
                self._clock_went_back(now_ns)
            missed = self._timeline.advance(now_ns)
            if missed:
                self._tally.late(missed)
                self._output.missed()
            if self._leaving:
                return self._leave()
            if not self._authority:
                return self._command(None, "none")
            command = self._execute(now_ns)
            return self._hold(now_ns) if command is None else command

    def _execute(self, now_ns: int) -> Command | None:
        """What the plan wants, as a command; None where it wants nothing, and then it is dropped."""
        due = self._in_force.due(now_ns)
        if not isinstance(due, Due):
            if due is not None:
                self._starve(due)
            return None
        sent = self._output.follow(due.wanted)
        if sent is None:
            self._drop(now_ns, "a command would not have been finite")
            return None
        self._valid_ns = now_ns
        self._safety.resume(now_ns, "valid chunk")
        return self._command(sent, due.source, due.index, due.age_ns, due.provenance)

    def _hold(self, now_ns: int) -> Command:
        if self._safety.state is SafetyState.ARMED and now_ns - self._valid_ns <= self._hold_after_ns:
            sent = self._output.repeat()
        else:
            self._safety.hold(now_ns, self._starved)
            sent = self._output.hold()
        if sent is not None:
            self._tally.held()
        return self._command(sent, "stop" if self._safety.state is SafetyState.STOPPED else "hold")

    def _leave(self) -> Command:
        """One command nearer to rest; the one that reaches it is the last."""
        sent = self._output.rest()
        if sent is None or self._output.resting:
            self._leaving = self._authority = False
            self._output.forget()
        return self._command(sent, "hold")

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

        `current` [channels]: the measured position, NaN where unknown; the first command keeps its rate from
        there (a velocity's from zero, or from its last command). Without it a position is held only once one
        was commanded. While holding this re-arms: a new session's chunks are taken, and channels that are still
        being braked go on from their last command. Refused when stopped.
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
            self._leaving, self._authority = False, True
            self._forget()
            self._safety.arm(now_ns, "awaiting a chunk")
            return Accepted(detail="armed")

    def disarm(self, now_ns: int, reason: str = "disarm requested") -> Accepted:
        """Stop publishing: the next commands bring every channel to rest, and the one that does is the last.

        That is the next tick's, unless a bound on an acceleration asks for more: see `silent`.
        """
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
        self._leaving = self._authority
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

    @property
    def silent(self) -> bool:
        """Whether nothing is published any more: not armed, and the final command is out. At most
        `limits.MAX_BRAKING_S` of ticks after disarm."""
        return not self._authority

    def drain_events(self) -> list[Event]:
        """Transitions since the last call, for the log."""
        with self._lock:
            return self._safety.drain()

    def counters(self) -> dict[str, Any]:
        """Totals since the start, for diagnostics; `refused` maps reason to number."""
        with self._lock:
            published, limited = self._output.published, self._output.limited_ticks
            return {**self._tally.totals(), "published": published, "limited_ticks": limited}

    def horizon(self, now_ns: int) -> Horizon | None:
        """What the chunk in force still holds, checked like commands at one policy step apart.

        None unless armed. Blends and tick phases are left out; increments are per policy step.
        """
        with self._lock:
            if self._safety.state is not SafetyState.ARMED:
                return None
            ahead = self._in_force.ahead(now_ns, self._output.motion)
        # A tick is not kept waiting while the rows are checked.
        return None if ahead is None else ahead.checked()
