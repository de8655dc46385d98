"""The settings of an evaluation, checked once where they enter. All parts of one evaluation have equal settings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from auras_ros.evaluate.charged import DURATIONS, Charged
from auras_ros.evaluate.episode_runner import Task
from auras_ros.evaluate.episode_runners import REQUESTS_PER_EPISODE, SEEDS
from auras_ros.evaluate.fit import misfit
from auras_ros.evaluate.lockstep import Timing
from auras_ros.evaluate.paused import Paused
from auras_ros.measure.cores import available
from auras_ros.number_checks import is_int, is_number, shown
from auras_ros.pipeline.plan import MODES, Plan, PlanError
from auras_ros.policies.checkpoint import Checkpoint
from auras_ros.sim.world import Sim
from auras_ros.sim.worlds import find

CLOCKS = ("paused", "charged")
PLAIN, ALIGNED = "par", "par-aligned"
MAX_DURATION_S = 60.0
MOST_COUNT = 1_000_000  # of control steps, requests, cores, actions
PROCESSES = 8  # worlds at a time where each is a process: that of a simulator which draws takes up to a gigabyte


class SettingsError(ValueError):
    """An invalid setting, or two parts with different settings; the message names it."""


@dataclass(frozen=True)
class EvaluatedMode:
    """One mode as it appears in a row. plain: a chunk runs from its index 0 whenever it comes (par, as published)."""

    name: str
    plan: Plan
    plain: bool = False


FRAME_STEPS = 4  # control steps of a paused frame


@dataclass(frozen=True)
class EvaluationSettings:
    """Raises SettingsError, naming the field.

    checkpoint: its name and digest. plan: of auras; the other modes use the fields that they share. sim: the world, as
    `sim.worlds.find` reads it. frame_steps: control steps of a frame on the paused clock. durations_s: duration key ->
    seconds, for the charged clock. jitter: share by which a frame's duration varies there. device: where they are
    measured, `cpu` or `cuda`. dtype: of the policy's weights, as given by the user. cores: number of cores of every
    mode while it is measured; 0 in old reports, which did not record it. actions: an autoregressive policy generates
    only the first so many actions of a chunk; 0: as it was trained. With one action there is nothing to align: it is
    executed when it comes, in every mode.
    """

    checkpoint: str
    plan: str
    sim: str = "pusht"
    max_steps: int = 300
    waits: bool = False
    modes: tuple[str, ...] = MODES
    clocks: tuple[str, ...] = CLOCKS
    concurrency: int = 2
    frame_steps: int = FRAME_STEPS
    durations_s: Mapping[str, float] = field(default_factory=dict)
    device: str = "cpu"
    dtype: str = "auto"
    cores: int = 0
    actions: int = 0
    jitter: float = 0.0

    def __post_init__(self) -> None:
        check_episodes(self.sim, self.max_steps)
        _check_some("modes", self.modes, MODES)
        _check_some("clocks", self.clocks, CLOCKS)
        check_least(self, frame_steps=1, concurrency=1, cores=0, actions=0)
        if not is_number(self.jitter) or not 0 <= self.jitter <= 1:
            raise SettingsError(f"jitter: must be in [0, 1], got {shown(self.jitter)}")
        parse_plan(self.plan)
        for key, seconds in self.durations_s.items():
            if not is_number(seconds) or not 0 <= seconds < MAX_DURATION_S:
                what = f"must be seconds in [0, {MAX_DURATION_S:g}), got {shown(seconds)}"
                raise SettingsError(f"durations: {str(key)[:80]}: {what}")

    def charging(self, durations_s: Mapping[str, float]) -> EvaluationSettings:
        """The same with the durations that the charged clock needs. Raises SettingsError if one is missing."""
        needed = [key for mode in self.modes for key in DURATIONS[mode]] if "charged" in self.clocks else []
        for key in needed:
            if key not in durations_s:
                raise SettingsError(f"durations: {key} is missing; needed are {', '.join(needed)}")
        return replace(self, durations_s={key: durations_s[key] for key in needed})

    @property
    def task(self) -> Task:
        return Task(self.sim, self.max_steps, waits=self.waits)

    @property
    def title(self) -> str:
        jitter = f", durations ±{100 * self.jitter:g} %" if self.jitter else ""
        return f"{self.sim}, {self.plan}{jitter}"

    @property
    def dt_ms(self) -> int:
        """Of the world's control step."""
        return find_sim(self.sim).world.control_dt_ms

    def contenders(self) -> Iterator[EvaluatedMode]:
        """One for each row of a clock; par appears both plain and aligned."""
        for mode in self.modes:
            plan = parse_plan(self.plan).as_mode(mode, self.concurrency)
            yield EvaluatedMode(mode, plan, plain=mode == PLAIN or self.actions == 1)
            if mode == "par" and self.actions != 1:
                yield EvaluatedMode(ALIGNED, plan)

    def timing(self, clock: str, seed: int = 0) -> Timing:
        """seed: of the jitter's draws."""
        if clock == "paused":
            return Paused(self.frame_steps)
        return Charged({key: round(seconds * 1e9) for key, seconds in self.durations_s.items()}, self.jitter, seed)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that `from_dict` reads."""
        raw = asdict(self) | vars(find_sim(self.sim).options)  # the world's options, for readers only
        return {**raw, "modes": list(self.modes), "clocks": list(self.clocks), "durations_s": dict(self.durations_s)}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> EvaluationSettings:
        """Reads reports of earlier versions too, in which a world's options stood beside its name alone."""
        try:
            options = vars(find_sim(raw["sim"]).options)
            other = ",".join(f"{key}={raw[key]}" for key in options if key in raw and raw[key] != options[key])
            values = {key: value for key, value in raw.items() if key not in options}
            values |= {"sim": f"{raw['sim']}:{other}"} if other else {}
            return cls(**{**values, "modes": tuple(values["modes"]), "clocks": tuple(values["clocks"])})
        except (TypeError, KeyError) as error:
            raise SettingsError(f"settings: {error}") from error

    def require_same(self, other: EvaluationSettings) -> None:
        """Raise SettingsError, naming the first difference."""
        mine, theirs = _flat(self.to_dict()), _flat(other.to_dict())
        if "charged" not in self.clocks:  # nothing is timed on the paused clock
            theirs["cores"] = mine["cores"]
        for key in sorted(mine.keys() | theirs.keys()):
            if mine.get(key) != theirs.get(key):
                hint = "; measure once, then give --durations FILE" if key.startswith("durations_s") else ""
                raise SettingsError(f"parts differ in {key}: {mine.get(key)} and {theirs.get(key)}{hint}")


def check_known(name: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raises SettingsError, naming the first that is not known."""
    for one in given:
        if one not in known:
            raise SettingsError(f"{name}: no {one!r}; known: {', '.join(known)}")


def check_least(options: object, **least: int) -> None:
    """Raises SettingsError, naming the option, if a value is no whole number from its minimum to MOST_COUNT."""
    for name, value in least.items():
        given = getattr(options, name)
        if not is_int(given):
            raise SettingsError(f"{name}: must be a whole number, got {given!r:.80}")
        if given < value:
            raise SettingsError(f"{name}: must be at least {value}, got {shown(given)}")
        if given > MOST_COUNT:
            raise SettingsError(f"{name}: must be at most {MOST_COUNT}, got {shown(given)}")


def check_episodes(sim: str, max_steps: int, seeds: range = range(1)) -> None:
    """Raises SettingsError, naming what cannot be played."""
    find_sim(sim)
    if not is_int(max_steps) or not 1 <= max_steps <= REQUESTS_PER_EPISODE:
        raise SettingsError(f"max_steps: must be in [1, {REQUESTS_PER_EPISODE}], got {shown(max_steps)}")
    check_seeds(seeds)


def find_sim(text: str) -> Sim:
    """The world of this name and options. Raises SettingsError by name."""
    try:
        return find(text)
    except ValueError as error:
        raise SettingsError(str(error)) from error


def check_fit(checkpoint: Checkpoint, name: str, sim: str) -> None:
    """Raises SettingsError, with what keeps policy and world apart. name: of the checkpoint, as the user calls it."""
    if why := misfit(checkpoint.contract, [each.name for each in checkpoint.spec.cameras], find_sim(sim).world):
        raise SettingsError(f"checkpoint: {name} does not fit {sim}: {why}")


def batch_of(sim: str, given: int | None, most: int) -> int:
    """How many episodes are stepped together: as given, else `most`, and fewer of worlds in processes of their own.
    Raises SettingsError."""
    if given is not None and given < 1:
        raise SettingsError(f"batch: must be at least 1, got {given}")
    return given or (most if find_sim(sim).environment is None else min(most, PROCESSES))


def check_seeds(seeds: range) -> None:
    """Raises SettingsError for seeds out of range."""
    if seeds.start < 0 or seeds.stop > SEEDS:
        raise SettingsError(f"seed: must be in [0, {SEEDS - 1}], got {seeds.start} to {seeds.stop - 1}")


def cores_for(given: int | None, device: str) -> int:
    """How many cores every mode has while it is timed. On a CPU one by default, so that schedules are compared and not
    cores; with a GPU all, because the host's threads only launch. Raises SettingsError."""
    cores = (1 if device == "cpu" else available()) if given is None else given
    if not 1 <= cores <= available():
        raise SettingsError(f"cores: from 1 to the {available()} of this process, got {cores}")
    return cores


def parse_plan(text: str) -> Plan:
    """The plan of auras from the text of `Plan.parse`, in which `mode=auras` may be omitted. Raises PlanError."""
    plan = Plan.parse(text, mode="auras")
    if plan.mode != "auras":
        raise PlanError(f"plan: mode: an evaluation's plan must be of mode auras, got {plan.mode}; see --modes")
    return plan


def plan_named(text: str, first: str) -> str:
    """The text of a plan with its generation plan: `first` if it names none; empty if `first` is not known yet."""
    if parse_plan(text).generation:
        return text
    return f"{first},{text}".replace(",,", ",").rstrip(",") if first else ""


def parse_durations(text: str) -> dict[str, float]:
    """From `seq=0.36,auras=0.08`, seconds. Raises SettingsError."""
    known = [key for keys in DURATIONS.values() for key in keys]
    durations: dict[str, float] = {}
    for word in text.split(","):
        key, _, value = (part.strip() for part in word.partition("="))
        check_known("durations", [key], known)
        try:
            durations[key] = float(value)
        except ValueError:
            raise SettingsError(f"durations: {key}: must be seconds, got {value!r}") from None
    return durations


def _check_some(name: str, given: tuple[str, ...], known: tuple[str, ...]) -> None:
    check_known(name, given, known)
    if not given or len(set(given)) < len(given):
        raise SettingsError(f"{name}: expected each once and at least one, got {', '.join(given) or 'none'}")


def _flat(raw: Mapping[str, Any]) -> dict[str, Any]:
    flat = {key: value for key, value in raw.items() if key != "durations_s"}
    return {**flat, **{f"durations_s.{key}": value for key, value in raw["durations_s"].items()}}
