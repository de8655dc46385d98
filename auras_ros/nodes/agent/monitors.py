"""Whether what monitors say lets the policy run: a gate around the prompt's.

A rule that pauses stops the chunks at once: nothing of the old epoch is published any more, the heartbeat tells the
actuator to hold, and when no rule pauses a new epoch begins. Without a fresh verdict of every rule's question the
policy pauses too: a monitor that is silent has not said that all is well. Nothing here publishes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from auras_ros.clock import MonotonicClock
from auras_ros.nodes.agent.monitor_rules import MonitorRule, MonitorVerdict, read_verdict
from auras_ros.nodes.agent.prompt import PromptGate
from auras_ros.nodes.common.diagnostics import DiagnosticReport, Level
from auras_ros.nodes.common.texts import MessageError
from auras_ros.repeated_lines import RepeatedLines

ANSWER = "answer"  # the topic
SHOWN = 40  # characters of a name or a label


class RuleState:
    """Whether a rule is in force, by the verdicts in a row."""

    def __init__(self, rule: MonitorRule) -> None:
        self.rule, self.active = rule, False
        self.times = 0  # how often it began
        self._row = 0  # newest verdicts in a row that ask for a change

    def hear(self, verdict: MonitorVerdict) -> None:
        said = verdict.says(self.rule)
        self._row = 0 if said is self.active else self._row + 1
        if self._row >= (self.rule.clear_frames if self.active else self.rule.for_frames):
            self.active, self._row = said, 0
            self.times += said

    def interrupt(self) -> None:
        """No verdict came in time: those before it are no row any more."""
        self._row = 0

    def __str__(self) -> str:
        return f"'{self.rule.standing:.{SHOWN}}' says '{self.rule.label:.{SHOWN}}'"


class MonitorGate:
    """`on_answer`, `connect` and `check` are called in the executor's thread; `answered` by whoever holds `lock`, all
    else in any thread. now_ns: the clock of the images' stamps. age_limit_ms: of the image that a verdict is about.
    changed: called in the executor's thread when a verdict has begun or ended a pause."""

    def __init__(
        self,
        rules: Sequence[MonitorRule],
        age_limit_ms: float,
        prompts: PromptGate,
        now_ns: Callable[[], int],
        logger: Any,
        changed: Callable[[], None],
    ) -> None:
        self._prompts, self._now_ns, self._logger, self._changed = prompts, now_ns, logger, changed
        self._limit_ns, self._monotonic = round(age_limit_ms * 1e6), MonotonicClock()
        self._rules = [RuleState(each) for each in rules]
        began_ns = self._monotonic.now_ns()
        # By standing question: until when its newest verdict counts, and that verdict. Replaced as one, never changed.
        self._heard: dict[str, tuple[int, MonitorVerdict | None]] = {each.standing: (began_ns, None) for each in rules}
        self._paused, self._since_ns = "", began_ns  # why, by verdicts; beside it a verdict may be missing
        self._since_epoch = 0  # chunks of this epoch and later may be published
        self._begin_epoch: Callable[[Callable[[], None]], None] = lambda change: change()
        self._next_epoch: Callable[[], int] = lambda: 0
        self._said = ""  # in the log
        self._lines = RepeatedLines()
        self.verdicts, self.refused, self.pauses, self._refusal = 0, 0, 0, ""

    @property
    def lock(self) -> AbstractContextManager[Any]:
        return self._prompts.lock

    def connect(self, begin_epoch: Callable[[Callable[[], None]], None], next_epoch: Callable[[], int]) -> None:
        self._prompts.connect(begin_epoch, next_epoch)
        self._begin_epoch, self._next_epoch = begin_epoch, next_epoch

    def on_answer(self, text: str) -> None:
        """Take a message of the topic. What cannot be read is refused and counted, and is no verdict."""
        try:
            verdict = read_verdict(text, self._heard)
        except MessageError as error:
            self.refuse(str(error))
            return
        if verdict is not None:
            self._hear(verdict)

    def refuse(self, reason: str) -> None:
        """Count a message of the topic that is no verdict."""
        self.refused, self._refusal = self.refused + 1, reason
        if line := self._lines.line("answer", f"refused: {reason}"):
            self._logger.warning(line)

    def _hear(self, verdict: MonitorVerdict) -> None:
        at_ns = self._monotonic.now_ns()
        age_ns = max(verdict.age_ns, self._now_ns() - verdict.stamp_ns)
        if age_ns > self._limit_ns:
            limits = f"{age_ns / 1e6:.0f} ms old, limit {self._limit_ns / 1e6:g} ms"
            self.refuse(f"answer of '{verdict.standing:.{SHOWN}}': its image is {limits}")
            return
        self._refusal = ""
        own = [each for each in self._rules if each.rule.standing == verdict.standing]
        with self.lock:
            before = self._reason(at_ns)
            if before and not self._paused:
                self._enter(before, self._missing_since_ns())
            if self._heard[verdict.standing][0] < at_ns:
                for each in own:
                    each.interrupt()
            for each in own:
                each.hear(verdict)
            self.verdicts += 1
            self._heard = {**self._heard, verdict.standing: (at_ns + self._limit_ns - age_ns, verdict)}
            after = self._by_rules() or self._missing(at_ns)
            if after and not self._paused:
                self._enter(after, at_ns)
            elif after:
                self._paused = after
        prompts = [each.rule.prompt for each in self._rules if each.active and each.rule.do == "prompt"]
        self._prompts.run_instead(prompts[0] if prompts else None)
        if before and not after:
            self._begin_epoch(self._resume)
        if bool(before) is not bool(after):
            self._changed()
        self._say(after)

    def _enter(self, reason: str, since_ns: int) -> None:
        self._paused, self._since_ns = reason, since_ns
        self.pauses += 1

    def _resume(self) -> None:
        with self.lock:  # no chunk is published before the new epoch, which rises right after
            self._paused, self._since_epoch = "", self._next_epoch()

    def _by_rules(self) -> str:
        return next((str(each) for each in self._rules if each.active and each.rule.do == "pause"), "")

    def _missing(self, at_ns: int) -> str:
        """Why a verdict is missing; empty if each question has a fresh one."""
        for standing, (until_ns, verdict) in self._heard.items():
            if verdict is None:
                return f"no verdict of '{standing:.{SHOWN}}' yet"
            if until_ns < at_ns:
                return f"no fresh verdict of '{standing:.{SHOWN}}'"
        return ""

    def _missing_since_ns(self) -> int:
        return min(until_ns for until_ns, _ in self._heard.values())

    def _reason(self, at_ns: int) -> str:
        return self._missing(at_ns) or self._paused

    @property
    def paused_because(self) -> str:
        """Why the policy pauses; empty if it may run."""
        return self._reason(self._monotonic.now_ns())

    @property
    def blocked_because(self) -> str:
        return (f"paused: {reason}" if (reason := self.paused_because) else "") or self._prompts.blocked_because

    def answered(self, epoch: int) -> str | None:
        return None if self.paused_because or epoch < self._since_epoch else self._prompts.answered(epoch)

    def _say(self, reason: str) -> None:
        if bool(reason) is not bool(self._said):
            text = f"the policy pauses: {reason}" if reason else "no monitor pauses the policy any more"
            line = self._lines.line("pause", text, cause=str(bool(reason)), is_event=False)
            if not line:
                return  # the next call tries again
            self._logger.warning(line)
        self._said = reason

    def check(self) -> DiagnosticReport:
        at_ns = self._monotonic.now_ns()
        reason, missing = self._reason(at_ns), self._missing(at_ns)
        self._say(reason)
        values: dict[str, object] = {"verdicts": self.verdicts, "refused": self.refused, "pauses": self.pauses}
        for standing, (until_ns, verdict) in self._heard.items():
            said = "none" if verdict is None else f"{verdict.label:.{SHOWN}} {verdict.score:.2f}"
            values[f"{standing} verdict"] = said
            if verdict is not None:
                values[f"{standing} age_ms"] = f"{(at_ns - until_ns + self._limit_ns) / 1e6:.0f}"
        for place, each in enumerate(self._rules):
            state = "active" if each.active else "not active"
            values[f"monitors[{place}]"] = f"{each.rule.do} while {each}: {state}, began {each.times} times"
        refusal = f"the newest was refused: {self._refusal}" if self._refusal else ""
        if reason:
            since_ns = self._since_ns if self._paused else self._missing_since_ns()
            values["paused for_ms"] = f"{(at_ns - since_ns) / 1e6:.0f}"
            text = "; ".join(filter(None, (f"the policy pauses: {reason}", refusal)))
            return DiagnosticReport(Level.ERROR if missing else Level.WARN, text, values)
        return DiagnosticReport(Level.WARN if refusal else Level.OK, refusal or "no monitor pauses the policy", values)
