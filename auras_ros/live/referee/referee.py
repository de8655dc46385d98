"""Plays episodes as a researcher's test harness would: clear the world, arm, watch, write down, again.

This is the logic alone: it is told what was heard and what services answered, and says which service to call next.
It knows no ROS, reads no clock (times are handed in, ns on the monotonic one), and never touches an action.

An episode: disarm; reset the world to a seed not yet played; once the new world was shown, reset the agent, so that
its history holds nothing of the old one; arm; watch until the world says done. Within an episode it interferes with
nothing: when the agent dies the actuator's hold is noted, and it is armed again only for the next episode.
"""

from __future__ import annotations

from enum import Enum

from auras_ros.live.referee.episode import LiveEpisode, Rules, WorldStatus

NS_PER_S = 1_000_000_000
CALL_TIMEOUT_NS = 3 * NS_PER_S
RETRY_NS = NS_PER_S // 4
MAX_VOID_IN_A_ROW = 3


class Call(str, Enum):
    """The services that the referee uses; all std_srvs/Trigger."""

    DISARM = "actuator/disarm"
    RESET_WORLD = "reset"  # of the world's node
    RESET_AGENT = "agent/reset"
    ARM = "actuator/arm"


class RefereePhase(str, Enum):
    """Where the referee stands. Each but the last three waits for a service's answer."""

    DISARMING = "disarming"
    RESETTING = "resetting the world"
    FORGETTING = "resetting the agent"
    ARMING = "arming"
    SHOWING = "waiting for the new world"
    PLAYING = "playing"
    FINISHED = "finished"


_CALLS = {
    RefereePhase.DISARMING: Call.DISARM,
    RefereePhase.RESETTING: Call.RESET_WORLD,
    RefereePhase.FORGETTING: Call.RESET_AGENT,
    RefereePhase.ARMING: Call.ARM,
}


class Referee:
    """Feed it what is heard; ask `due` for the call to make; stop when `phase` is FINISHED.

    `episodes`: finished ones, in order. `void`: attempts that do not count, with the reason. `unfinished`: the
    episode that was running at the end, or None. `fault`: why no further episode could be started, or "".
    """

    def __init__(self, rules: Rules, now_ns: int, status: WorldStatus | None = None) -> None:
        """status: the world's newest one, if any was heard: an untouched world is played without a reset."""
        self.rules = rules
        self.episodes: list[LiveEpisode] = []
        self.void: list[str] = []
        self.unfinished: LiveEpisode | None = None
        self.fault = ""
        self.began_ns: int | None = None  # when the first episode was armed, and when the newest one was finished
        self.finished_ns: int | None = None
        self.status = status
        self.actuator = "unknown"
        self._played: set[int] = set()
        self._attempt = LiveEpisode(-1)
        self._number = -1
        self._shown_after_ns = self._armed_ns = 0
        self._was_armed = False
        self._void_in_a_row = 0
        self._refusal = ""
        self._begun_ns = self._next_call_ns = now_ns
        self._begin(now_ns)

    @property
    def successes(self) -> int:
        return sum(episode.success for episode in self.episodes)

    @property
    def playing(self) -> bool:
        return self.phase is RefereePhase.PLAYING

    # -- calls --------------------------------------------------------------------------------------------

    def due(self, now_ns: int) -> Call | None:
        """The service to call now; None while an answer may still come, or a phase needs no call."""
        call = _CALLS.get(self.phase)
        if call is None or now_ns < self._next_call_ns:
            return None
        self._next_call_ns = now_ns + CALL_TIMEOUT_NS
        return call

    def on_answer(self, call: Call, success: bool, message: str, now_ns: int) -> None:
        """What a service answered. Answers to calls that are no longer waited for are ignored."""
        if call is not _CALLS.get(self.phase):
            return
        if not success:
            self._refusal = f"{call.value} answered: {message}"
            self._next_call_ns = now_ns + RETRY_NS
        elif call is Call.DISARM:
            self._enter(RefereePhase.SHOWING if self._world_is_new() else RefereePhase.RESETTING)
            self._shown_after_ns = now_ns
        elif call is Call.RESET_WORLD:
            self._enter(RefereePhase.SHOWING)
            self._shown_after_ns = now_ns  # a step of the old world may still be on its way
        elif call is Call.RESET_AGENT:
            self._enter(RefereePhase.ARMING)
        else:
            self._enter(RefereePhase.PLAYING)
            self._armed_ns, self._was_armed = now_ns, False
            self.began_ns = now_ns if self.began_ns is None else self.began_ns

    def _world_is_new(self) -> bool:
        """Whether the world as shown may be played: untouched, and of a seed not yet played."""
        return self.status is not None and self.status.waiting and self.status.seed not in self._played

    # -- what is heard ------------------------------------------------------------------------------------

    def on_status(self, status: WorldStatus, now_ns: int) -> None:
        """A control step of the world."""
        before, self.status = self.status, status
        if self.phase is RefereePhase.SHOWING and status.waiting and status.mono_ns > self._shown_after_ns:
            if status.seed in self._played:
                self._enter(RefereePhase.RESETTING)
            else:
                self._attempt, self._number = LiveEpisode(status.seed), status.episode
                self._enter(RefereePhase.FORGETTING)
        elif self.phase is RefereePhase.PLAYING:
            went_back = before is not None and status.step < before.step
            if (status.episode, status.seed) != (self._number, self._attempt.seed) or went_back:
                self._spoil(status.lost or "the world was reset by somebody else", now_ns)
            else:
                self._watch(status, now_ns)

    def _watch(self, status: WorldStatus, now_ns: int) -> None:
        attempt = self._attempt
        if status.waiting:
            if now_ns - self._armed_ns > self.rules.move_s * NS_PER_S:
                self._spoil(f"armed, but no action moved the world for {self.rules.move_s:g} s", now_ns)
            return
        self._played.add(status.seed)
        attempt.steps, attempt.last, attempt.success = status.step, dict(status.sub_goals), status.success
        attempt.best = {name: max(share, attempt.best.get(name, 0.0)) for name, share in status.sub_goals.items()}
        if status.done:
            self.episodes.append(attempt)
            self.finished_ns = now_ns
            self._void_in_a_row = 0
            self._begin(now_ns)

    def on_actuator(self, state: str, reason: str, sent_ns: int, now_ns: int) -> None:
        """The actuator's state. Only what was sent after our arming was answered says anything about it."""
        self.actuator = state
        if self.phase is not RefereePhase.PLAYING or sent_ns <= self._armed_ns:
            return
        if state == "armed":
            self._was_armed = True
        elif state != "holding" or self._was_armed:  # holding until the first chunk is in order
            step = self.status.step if self.status else 0
            note = f"{state}: {reason}"
            if not any(known.startswith(note) for known in self._attempt.notes):
                self._attempt.notes.append(f"{note} (step {step})")
            if state != "holding" and self.status is not None and self.status.waiting:
                self._spoil(note, now_ns)

    def on_time(self, now_ns: int) -> None:
        """Call often: the time limits."""
        if self.phase is RefereePhase.PLAYING:
            if self._over(now_ns, self.rules.grace_s):
                self.interrupt()
        elif self.phase is not RefereePhase.FINISHED:
            if self._over(now_ns, 0.0):
                self._enter(RefereePhase.FINISHED)
            elif now_ns - self._begun_ns > self.rules.patience_s * NS_PER_S:
                what = self._refusal or f"no answer while {self.phase.value}"
                self._fail(f"no episode could be started for {self.rules.patience_s:g} s: {what}")

    def interrupt(self) -> None:
        """End now. The running episode counts as unfinished and is left out."""
        if self.phase is RefereePhase.PLAYING:
            self.unfinished = self._attempt
        self._enter(RefereePhase.FINISHED)

    # -- transitions --------------------------------------------------------------------------------------

    def _begin(self, now_ns: int) -> None:
        """The next episode, if there is to be one."""
        wanted = self.rules.episodes
        if self._over(now_ns, 0.0) or (wanted is not None and len(self.episodes) >= wanted):
            self._enter(RefereePhase.FINISHED)
            return
        self._begun_ns, self._refusal = now_ns, ""
        self._enter(RefereePhase.DISARMING)

    def _enter(self, phase: RefereePhase) -> None:
        self.phase, self._next_call_ns = phase, 0

    def _spoil(self, reason: str, now_ns: int) -> None:
        """The attempt does not count."""
        self.void.append(f"seed {self._attempt.seed}: {reason}")
        self._void_in_a_row += 1
        if self._void_in_a_row >= MAX_VOID_IN_A_ROW:
            self._fail(f"{MAX_VOID_IN_A_ROW} attempts in a row came to nothing, the last one because {reason}")
        else:
            self._begin(now_ns)

    def _fail(self, reason: str) -> None:
        self.fault = reason
        self._enter(RefereePhase.FINISHED)

    def _over(self, now_ns: int, grace_s: float) -> bool:
        limit = self.rules.seconds
        return self.began_ns is not None and limit is not None and now_ns > self.began_ns + (limit + grace_s) * NS_PER_S
