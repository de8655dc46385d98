"""One command per tick: the active chunk's action, else the hold command, else braking, then none.

Combines the active chunks, the safety state and the output. It takes no chunk and grants no transition: `stream`
does, and holds the lock that this module needs.
"""

from __future__ import annotations

import numpy as np

from .active_chunks import ActiveChunks
from .align import Due, Timeline
from .chunk import Provenance
from .command import Command
from .contract import Contract, FloatArray
from .limits import Limits
from .options import ActionStreamOptions
from .output import CommandOutput, GuardedCommand
from .safety import Safety, SafetyState
from .tally import Tally

AWAITING = "awaiting a chunk"


class CommandGenerator:
    """`authority`: from `begin` until the final command; only then is anything published. Not thread-safe."""

    def __init__(self, contract: Contract, options: ActionStreamOptions) -> None:
        self.limits = Limits(contract, options.tick_ns, options.clip_tolerance)
        self.timeline = Timeline(options.tick_ns, options.max_age_ns, len(contract.channels))
        self.plan = ActiveChunks(contract, self.timeline, self.limits, options)
        self.safety, self.tally = Safety(), Tally()
        self.output = CommandOutput(self.limits, self.timeline, self.tally)
        self.authority = False
        self._names, self._hold_after_ns = contract.names, options.hold_after_ns
        self._leaving = False  # braking, until the final command
        self._staying = False  # and set points stay where they were last sent
        self._valid_ns = 0
        self._starved = AWAITING
        self._nothing: FloatArray = np.full(len(contract.channels), np.nan)
        self._nothing.flags.writeable = False

    # -- a tick -------------------------------------------------------------------------------------------

    def command(self, now_ns: int) -> Command:
        """The command for this tick. Missed periods are counted, never made up."""
        missed = self.timeline.advance(now_ns)
        if missed:
            self.tally.late_ticks += 1
            self.tally.missed_ticks += missed
            self.output.motion.stand()  # set points stood still meanwhile, so they start from rest
        if self._leaving:
            return self._leave()
        if not self.authority:
            return self._command(None, "none")
        command = self._execute(now_ns)
        return self._hold(now_ns) if command is None else command

    def _execute(self, now_ns: int) -> Command | None:
        """The active chunk's action as a command; None if nothing is due, and then the chunk is dropped."""
        due = self.plan.due(now_ns)
        if not isinstance(due, Due):
            if due is not None:
                self.starve(due)
            return None
        sent = self.output.follow(due.wanted)
        if sent is None:
            self.drop(now_ns, "a command would not have been finite")
            return None
        self._valid_ns = now_ns
        self.safety.resume(now_ns, "valid chunk")
        return self._command(sent, due.source, due.index, due.age_ns, due.provenance)

    def _hold(self, now_ns: int) -> Command:
        if self.safety.state is SafetyState.ARMED and now_ns - self._valid_ns <= self._hold_after_ns:
            sent = self.output.repeat()
        else:
            self.safety.hold(now_ns, self._starved)
            sent = self.output.hold()
        if sent is not None:
            self.tally.hold_ticks += 1
        return self._command(sent, "stop" if self.safety.state is SafetyState.STOPPED else "hold")

    def _leave(self) -> Command:
        """Brake by one command; the one that reaches rest is the last."""
        sent = self.output.rest(self._staying)
        if sent is None or not self.output.motion.moving.any():
            self._leaving = self._staying = self.authority = False
            self.output.forget()
        return self._command(sent, "hold")

    def _command(
        self,
        sent: GuardedCommand | None,
        source: str,
        index: int | None = None,
        age_ns: int | None = None,
        provenance: Provenance | None = None,
    ) -> Command:
        if sent is None:
            return Command(self._nothing, False, self.safety.state, "none")
        limited = tuple(self._names[i] for i in sent.limited)
        return Command(sent.values, True, self.safety.state, source, index, age_ns, provenance, limited)

    # -- beginning and end --------------------------------------------------------------------------------

    def starve(self, reason: str) -> None:
        """Drop the active chunk, for this reason."""
        self.plan.drop()
        self._starved = reason

    def drop(self, now_ns: int, reason: str) -> None:
        """Hold from the next tick on, for this reason."""
        self.starve(reason)
        self.safety.hold(now_ns, reason)

    def begin(self, now_ns: int) -> None:
        """Publish from now on; hold until a chunk comes."""
        self._leaving = self._staying = False
        self.authority = True
        self.starve(AWAITING)
        self.safety.arm(now_ns, AWAITING)

    def fall_silent(self, now_ns: int, reason: str, unsent: bool) -> None:
        """Publish nothing from now on, not even a last command; a latched stop stays latched. But rates other than zero
        are first braked to zero, while set points stay where they were last sent. unsent: the last command was not
        published."""
        if self.safety.state is not SafetyState.STOPPED:
            self.safety.disarm(now_ns, reason)
        if unsent:
            self.output.take_back()
        self._leaving = self._staying = self.authority = self.output.running
        if self._leaving:
            self.output.motion.stay()
        else:
            self.output.forget()
        self.starve(AWAITING)

    def end(self, now_ns: int, reason: str) -> None:
        """Come to rest, then publish nothing."""
        self.safety.disarm(now_ns, reason)
        self._leaving = self.authority
        self.starve(AWAITING)
