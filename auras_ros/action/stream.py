"""From offered chunks to one command a tick: the facade that the actuator and lockstep evaluation both run.

Chunks go in when they come, one command comes out a tick: aligned by executed index, joined at seams,
guarded by limits, held when nothing valid is there. All times are arguments, in nanoseconds on one monotonic
clock (in lockstep: integer steps times dt); nothing here reads a clock, sleeps, logs or knows a message.
`tick` runs in the actuator's tick thread, `stop` in that of the emergency stop and everything else in its
executor's: one short lock keeps them apart.

A command that says `publish` is taken for executed. The node publishes it, or says that it did not (`fall_silent`).
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
from .ensemble import DEFAULT_ENSEMBLE_DECAY
from .limits import DEFAULT_CLIP_TOLERANCE
from .options import ActionStreamOptions
from .safety import Event, SafetyState
from .verdict import Accepted, ChunkRefusal, Rejected


class ActionStream:
    """See the module's docstring.

    `tick_ns`: the period between ticks. `seam`, how a chunk follows another: "blend" fades over `blend_ms`,
    "ensemble" averages all chunks that cover a tick with `ensemble_decay` (see `ensemble`), "switch" does
    neither. `hold_after_ms`: after the last valid action the last command stays active this long
    (increments: none), then the hold policies apply. `max_chunk_age_ms`: no action is executed when its
    chunk's origin is older. `clip_tolerance`: see `limits`. `host`: where given, chunks from another host's
    monotonic clock are refused.

    A chunk that carries NaN, Inf or a value beyond its limits is refused, and the active one is dropped
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
        options = ActionStreamOptions(
            tick_ns, blend_ms, hold_after_ms, max_chunk_age_ms, seam, ensemble_decay, clip_tolerance
        )
        options.check(contract)
        self.contract, self.tick_ns = contract, tick_ns
        self._generator = CommandGenerator(contract, options)
        self._admission = Admission(contract, options.max_age_ns, host)
        self._lock = threading.Lock()

    # -- chunks -------------------------------------------------------------------------------------------

    def offer(self, chunk: Chunk, now_ns: int) -> Accepted | Rejected:
        """Take a chunk for the ticks from now on, or say why not. Newest (epoch, origin, request) wins."""
        with self._lock:
            generator = self._generator
            verdict = (
                generator.safety.refuse()
                or self._admission.refuse(chunk, now_ns)
                or generator.plan.place(chunk, now_ns, generator.output.motion.anchor)
            )
            generator.tally.offered(verdict)
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

    def arm(self, now_ns: int, current: npt.ArrayLike | None = None) -> Accepted | Rejected:
        """Allow commands; the state is holding until the first valid chunk.

        `current` [channels]: the measured position, NaN where unknown; the first command keeps its rate from
        there (a velocity's from zero, or from its last command). Without it a position is held only once one
        was commanded. While holding this re-arms: a new session's chunks are taken, and channels that are still
        being braked go on from their last command. Refused when stopped.
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
                generator.output.place(measured)
            self._admission.forget()
            generator.begin(now_ns)
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
            self._generator.starve(reason)
            self._generator.safety.stop(now_ns, reason)
            return Accepted(detail="stopped")

    def hold(self, now_ns: int, reason: str = "agent lost") -> None:
        """Drop the active chunk and hold; a valid chunk of the same session ends it."""
        with self._lock:
            self._generator.drop(now_ns, reason)

    def end(self, now_ns: int, reason: str) -> None:
        """Disarm where something may move; a latched stop stays latched, one that is pressed at this moment too."""
        with self._lock:
            if self._generator.safety.live:
                self._disarm(now_ns, reason)

    def fall_silent(self, now_ns: int, reason: str, *, unsent: bool = False) -> None:
        """Disarm without a last command: where somebody else may drive by now, or the robot is not where it was, the
        last place is none to go back to. A latched stop stays latched.

        Rates and increments that are not zero are brought there first, each command with the set points as they were
        last sent: a controller goes on with a rate. unsent: the last command was given out, and not published.
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

    # -- looking in ---------------------------------------------------------------------------------------

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
        """Whether nothing is published any more: not armed, and the final command is out. At most
        `limits.MAX_BRAKING_S` of ticks after disarm."""
        return not self._generator.authority

    def drain_events(self) -> list[Event]:
        """Transitions since the last call, for the log."""
        with self._lock:
            return self._generator.safety.drain()

    def counters(self) -> dict[str, Any]:
        """Totals since the start, for diagnostics; `refused` maps reason to number."""
        with self._lock:
            output = self._generator.output
            moved = {"published": output.published, "limited_ticks": output.limited_ticks}
            return {**self._generator.tally.totals(), **moved}

    def ahead(self, now_ns: int) -> Ahead | None:
        """What the active chunk still holds, to be checked like commands at one policy step apart.

        None unless armed. Blends and tick phases are left out; increments are per policy step. A copy: whoever
        checks it may take longer than a tick, and keeps none waiting.
        """
        with self._lock:
            generator = self._generator
            if generator.safety.state is not SafetyState.ARMED:
                return None
            return generator.plan.ahead(now_ns, generator.output.motion)
