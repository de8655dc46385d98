"""The user's requirements on a plan: rate, success and age, absolute or relative to seq of the same run."""

from __future__ import annotations

import math
from dataclasses import dataclass

from auras_ros.evaluate.settings import SettingsError


@dataclass(frozen=True)
class Requirements:
    """rate_hz, rate_of_seq: least chunks per second, absolute and as a multiple of seq's. success, below_seq: least
    share of successful episodes, and how much less than seq's it may be on the same seeds. max_age_ms: greatest age of
    an action when the next chunk takes over. None: no requirement.
    """

    rate_hz: float | None = None
    rate_of_seq: float | None = None
    success: float | None = None
    below_seq: float | None = None
    max_age_ms: float | None = None

    @classmethod
    def parse(cls, rate: str | None, success: str | None, max_age_ms: float | None) -> Requirements:
        """rate: `12` (chunks per second) or `2x` (of seq's). success: `0.8` or `seq-0.03`. Raises SettingsError."""
        hz = times = least = below = None
        if rate is not None:
            multiple = rate.strip().endswith("x")
            number = _number("rate", rate.strip().removesuffix("x"), 0.0, math.inf, "12, or 2x for twice seq's")
            hz, times = (None, number) if multiple else (number, None)
        if success is not None:
            text = success.replace(" ", "")
            if text.startswith("seq"):
                number = _number("success", text.removeprefix("seq") or "0", -1.0, 1.0, "0.8, or seq-0.03")
                below = -number
            else:
                least = _number("success", text, 0.0, 1.0, "0.8, or seq-0.03")
        if max_age_ms is not None and not 0 < max_age_ms < math.inf:
            raise SettingsError(f"max age: expected milliseconds above 0, got {max_age_ms:g}")
        return cls(hz, times, least, below, max_age_ms)

    def before_playing(self, rate_hz: float, seq_rate_hz: float, oldest_ms: float) -> str:
        """Why a plan need not be played at all, by its rate and the age of its actions; empty if it should be."""
        if self.rate_hz is not None and rate_hz < self.rate_hz:
            return f"{rate_hz:.2f} chunks/s, wanted {self.rate_hz:g}"
        if self.rate_of_seq is not None and rate_hz < self.rate_of_seq * seq_rate_hz:
            return f"{rate_hz / seq_rate_hz:.2f} times seq's rate, wanted {self.rate_of_seq:g}"
        if self.max_age_ms is not None and oldest_ms > self.max_age_ms:
            return f"actions get {oldest_ms:.0f} ms old, wanted at most {self.max_age_ms:g}"
        return ""

    def after_playing(self, success: float, above_seq: float) -> str:
        """Why its success is not enough; empty if it is. above_seq: success minus seq's on the same seeds."""
        if self.success is not None and success < self.success:
            return f"success {success:.1%}, wanted {self.success:.1%}"
        if self.below_seq is not None and above_seq < -self.below_seq:
            return f"success {100 * above_seq:+.1f} points against seq, wanted {-100 * self.below_seq:+.1f}"
        return ""

    def words(self) -> str:
        """The requirements as text."""
        parts = [
            None if self.rate_hz is None else f"rate >= {self.rate_hz:g} chunks/s",
            None if self.rate_of_seq is None else f"rate >= {self.rate_of_seq:g} x seq",
            None if self.success is None else f"success >= {self.success:.1%}",
            None if self.below_seq is None else f"success >= seq {-100 * self.below_seq:+g} points",
            None if self.max_age_ms is None else f"age <= {self.max_age_ms:g} ms",
        ]
        return ", ".join(part for part in parts if part) or "no requirements"


def _number(name: str, text: str, low: float, high: float, example: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not low <= number <= high or math.isinf(number):
        raise SettingsError(f"{name}: expected a value such as {example}, got {text!r}")
    return number
