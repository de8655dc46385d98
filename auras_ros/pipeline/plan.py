"""The plan: how a policy's work is laid over frames. Frozen; the tuner produces it, the executor runs it.

A plan never names a checkpoint or a device, and contains no time but its own frame period.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

from auras_ros.spelling import nearest

MODES = ("seq", "dec", "par", "auras")
MERGES = ("step", "frame")
EMITS = ("own", "newest")
REUSES = ("none", "exact", "approximate")
GUIDES = ("none", "inpaint", "rtc")
MAX_STAGES = 64


class PlanError(ValueError):
    """A plan that cannot work, named by its field."""


class TooSlowError(PlanError):
    """This machine was too slow for the plan when it was measured. The plan is not wrong, and may fit another time."""


@dataclass(frozen=True)
class Plan:
    """Auras section 4.3. Raises PlanError, naming the field.

    generation: one of the checkpoint's generation plans (sampler and steps); empty: its first. pp_perception,
    pp_generation: stages that a request passes, one a frame (only auras). fetch_offset: 0 generates from the context
    of the same frame; -1 from that of the previous frame, beside perception. alpha: skew of the generation steps
    towards the last stage. batched: rows of one frame share one call of the network. frame_period_ms: 0 runs frames
    back to back; for par it is the interval between requests, and 0 spaces them evenly. concurrency: requests at a time
    (only par). together: these requests begin together, on one observation, and run as one batch, each with all of its
    own work (only par).

    For autoregressive policies (`pipeline.merged`): merge: one forward for each token that a stage has left ("step"),
    or one for the whole frame ("frame"). emit: all tokens as they are when the request ends ("newest"), or those that
    it took in its stages ("own", as in the paper). reuse: which keys and values of the previous frame are kept: those
    before the first change ("exact"), or all but the changed ones ("approximate").

    guide: how a chunk continues the active one (`policies.guidance`), for policies that denoise; not for par.
    """

    generation: str = ""
    mode: str = "seq"
    pp_perception: int = 1
    pp_generation: int = 1
    fetch_offset: int = 0
    alpha: float = 0.0
    batched: bool = True
    frame_period_ms: float = 0.0
    concurrency: int = 1
    together: bool = False
    merge: str = "step"
    emit: str = "newest"
    reuse: str = "none"
    guide: str = "none"

    def __post_init__(self) -> None:
        choices = {"mode": MODES, "merge": MERGES, "emit": EMITS, "reuse": REUSES, "guide": GUIDES}
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise PlanError(f"plan: {name}: must be one of {', '.join(known)}, got {getattr(self, name)!r}")
        if not isinstance(self.generation, str) or set(self.generation) & set(",= "):
            raise PlanError(f"plan: generation: must name a generation plan of the checkpoint, got {self.generation!r}")
        for name in ("batched", "together"):
            if type(getattr(self, name)) is not bool:
                raise PlanError(f"plan: {name}: must be true or false, got {getattr(self, name)!r}")
        for name, (low, high) in _RANGES.items():
            value, whole = getattr(self, name), isinstance(low, int)
            is_number = type(value) is int if whole else type(value) in (int, float)
            if not is_number or not low <= value <= high:
                what = "whole number" if whole else "number"
                raise PlanError(f"plan: {name}: must be a {what} in [{low:g}, {high:g}], got {value!r}")
        for name, mode in _ONLY.items():
            default = _DEFAULTS[name]
            if self.mode != mode and getattr(self, name) != default:
                raise PlanError(
                    f"plan: {name}: {getattr(self, name)!r} has no meaning in mode {self.mode}, only {mode}"
                )

        if self.mode == "par" and self.guide != "none":
            raise PlanError(
                "plan: guide: has no meaning in mode par: a request begins before the active chunk is there"
            )

    @classmethod
    def parse(cls, text: str, mode: str = "seq") -> Plan:
        """From `ddpm100,mode=auras,pp_generation=8,alpha=0.5`: first the generation plan, then the fields that differ
        from their defaults. Without a generation plan it is the checkpoint's first. mode: if the text names none."""
        first, *rest = (part.strip() for part in text.split(","))
        settings: dict[str, Any] = {}
        for part in rest if "=" not in first else [first, *rest]:
            name, equals, value = part.partition("=")
            if not equals or name not in _DEFAULTS:
                meant, known = nearest(name, _DEFAULTS) if equals else "", ", ".join(_DEFAULTS)
                hint = f"did you mean {meant}?" if meant else f"expected NAME=VALUE, with a name of {known}"
                raise PlanError(f"plan: {part!r}: {hint}")
            if name in settings:
                raise PlanError(f"plan: {name}: given twice")
            settings[name] = _value(name, value)
        if "=" not in first:
            if "generation" in settings:
                raise PlanError("plan: generation: given twice")
            settings["generation"] = first
        return cls(**{"mode": mode, **settings})

    def __str__(self) -> str:
        """The text that `parse` reads."""
        changed = [f.name for f in fields(self)[1:] if getattr(self, f.name) != _DEFAULTS[f.name]]
        named = [self.generation] if self.generation else []
        return ",".join([*named, *(f"{name}={_text(getattr(self, name))}" for name in changed)])

    def named(self, first: str) -> Plan:
        """The same plan with a generation plan: `first`, the checkpoint's first, if it has none."""
        return self if self.generation else replace(self, generation=first)

    def as_mode(self, mode: str, concurrency: int = 1, together: bool = False) -> Plan:
        """The same generation and frame period in another mode, without the fields that only this mode has.
        concurrency, together: of par."""
        kept = {name: _DEFAULTS[name] for name, only in _ONLY.items() if only != mode}
        if mode == "par":
            kept |= {"concurrency": concurrency, "together": together, "guide": "none"}
        changes: dict[str, Any] = {"mode": mode, **kept}
        return replace(self, **changes)

    @property
    def latency_frames(self) -> int:
        """L: how many frames a request lives (rule 3 of docs/pipeline.md). For par a frame is the interval between
        requests, or with `together` a whole batch."""
        if self.mode == "par":
            return 1 if self.together else self.concurrency
        if self.mode == "dec":
            return 2  # perceived in one frame, generated in the next
        return self.pp_perception + self.pp_generation - 1 - self.fetch_offset

    def interval_ns(self, duration_ns: int) -> int:
        """Time from one chunk to the next, if a request (par) or the longest worker's frame takes duration_ns. With
        `together`, from one batch to the next: its chunks come at one instant, and answer one observation."""
        if self.together:
            return max(duration_ns, self.admission_ns)
        each_ns = duration_ns // self.concurrency if self.mode == "par" else duration_ns
        return max(each_ns, round(self.frame_period_ms * 1e6))

    @property
    def admission_ns(self) -> int:
        """Least time between two admissions (par): of one request, or with `together` of one batch."""
        period_ns = round(self.frame_period_ms * 1e6) if self.mode == "par" else 0
        return period_ns * self.concurrency if self.together else period_ns

    def oldest_ns(self, duration_ns: int) -> int:
        """Age of the oldest action that is executed: the age of its observation when the next chunk takes over.

        A chunk's observation was latched `frames` frames before the chunk is finished (rule 3 of docs/pipeline.md), and
        the chunk is used for one more interval. The camera's own latency, which is not known here, comes on top.
        """
        frames = {"dec": 2, "auras": self.pp_perception - self.fetch_offset}.get(self.mode, 1)
        return frames * self.interval_ns(duration_ns) + duration_ns

    def check_horizon(self, frame_ns: int, horizon_ns: int) -> None:
        """Refuse a plan whose chunks would be used up before they come (rule 9 of docs/pipeline.md).

        Raises PlanError if the plan's own frame period is too long, TooSlowError if the measured frame_ns is: that may
        be shorter another time.
        """
        frames = self.latency_frames + 2
        if frames * frame_ns > horizon_ns:
            wrong = frames * round(self.frame_period_ms * 1e6) > horizon_ns
            raise (PlanError if wrong else TooSlowError)(
                f"plan: {frames} frames (L + 2) of {frame_ns / 1e6:.1f} ms outlast the horizon of "
                f"{horizon_ns / 1e6:.0f} ms: use fewer stages or less concurrency, or a faster generation plan"
            )


_RANGES = {
    **dict.fromkeys(("pp_perception", "pp_generation", "concurrency"), (1, MAX_STAGES)),
    "fetch_offset": (-1, 0),
    "alpha": (0.0, 10.0),
    "frame_period_ms": (0.0, 60_000.0),
}
_AURAS = ("pp_perception", "pp_generation", "fetch_offset", "alpha", "batched", "merge", "emit", "reuse")
_ONLY = {**dict.fromkeys(_AURAS, "auras"), "concurrency": "par", "together": "par"}  # field -> the mode that has it
_DEFAULTS: dict[str, Any] = {f.name: f.default for f in fields(Plan)}


def _value(name: str, text: str) -> Any:
    default = _DEFAULTS[name]
    if isinstance(default, bool):
        if text not in ("true", "false"):
            raise PlanError(f"plan: {name}: must be true or false, got {text!r}")
        return text == "true"
    kind = type(default)
    try:
        return kind(text)
    except ValueError:
        raise PlanError(f"plan: {name}: must be a {'whole ' if kind is int else ''}number, got {text!r}") from None


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def stage_steps(steps: int, stages: int, alpha: float) -> tuple[int, ...]:
    """How many of `steps` generation steps each stage does, the first stage first.

    Auras 4.3.2, rule 6 of docs/pipeline.md.
    Stage i has weight e^(i alpha); rounding is cumulative, so that every step is done exactly once, and each stage has
    at least one. Raises PlanError for fewer steps than stages.
    """
    if steps < stages:
        raise PlanError(f"plan: pp_generation: {stages} stages for {steps} generation steps; each needs at least one")
    weights = [math.exp(i * alpha) for i in range(stages)]
    total, running, bounds = sum(weights), 0.0, [0]
    for i, weight in enumerate(weights):
        running += weight
        most = steps - (stages - 1 - i)
        bounds.append(max(bounds[-1] + 1, min(most, round(steps * running / total))))
    bounds[-1] = steps
    return tuple(after - before for before, after in pairwise(bounds))
