"""The schedulers by name, as options have them: a name, and after a colon its number."""

from __future__ import annotations

from collections.abc import Sequence

from auras_ros.engine.baselines import ChunkScheduler, PfLimitScheduler, StaticUnits
from auras_ros.engine.marginal import MarginalUnits
from auras_ros.engine.nova import NovaScheduler
from auras_ros.engine.options import EngineOptions
from auras_ros.engine.planner import make_plan
from auras_ros.engine.profile import StageProfile
from auras_ros.engine.scheduler import InterleavedScheduler, StageScheduler

SIDE_BY_SIDE = ("nova", "marginal", "static", "multi-stream")  # those that need partitions
PROFILED = ("nova", "marginal")


def needs_partitions(name: str) -> bool:
    return name.partition(":")[0] in SIDE_BY_SIDE


def needs_profile(options: EngineOptions, sizes: Sequence[int]) -> bool:
    """One size leaves nothing to plan. Raises ValueError if there is no file to read."""
    needed = options.scheduler in PROFILED and len(sizes) > 1
    if needed and not options.stage_profile:
        raise ValueError(
            f"engine: stage_profile: {options.scheduler} has {len(sizes)} ways to divide the device and plans by a "
            "profile: `auras bench nova-corun MODEL --profile FILE` makes one"
        )
    return needed


def make_scheduler(
    options: EngineOptions, sizes: Sequence[int] = (), profile: StageProfile | None = None
) -> StageScheduler:
    """options: its `scheduler`. sizes: of the partitions. profile: for those that plan by it. Raises ValueError for a
    name or number that is not known, and for splits that the device has not."""
    name, number = _parse(options.scheduler)
    if name == "interleaved":
        return InterleavedScheduler(number or options.prefill_tokens, options.chunked or number > 0)
    if name == "chunk":
        return ChunkScheduler(number or options.prefill_tokens)
    if name == "pf-limit":
        return PfLimitScheduler(number or 5)
    if name == "multi-stream":
        return NovaScheduler(StaticUnits())
    if not sizes:
        raise ValueError(f"engine: scheduler: {name} divides the cores, and one cannot be divided")
    if number and number not in sizes:
        raise ValueError(f"engine: scheduler: {options.scheduler}: decode can have {', '.join(map(str, sizes))} units")
    if profile is None or name == "static":
        return NovaScheduler(StaticUnits(number or sizes[0], number or sizes[0]))
    if others := set(profile.sizes).difference(sizes):
        raise ValueError(f"engine: stage_profile: it has a split of {min(others)} units, this device {list(sizes)}")
    if name == "marginal":
        return NovaScheduler(MarginalUnits(profile, options.tbt_ms))
    return NovaScheduler(make_plan(profile, options.answer_tokens, options.tbt_ms))


def _parse(text: str) -> tuple[str, int]:
    """Name and number; 0 without one."""
    name, colon, number = text.partition(":")
    numbered = ("interleaved", "chunk", "pf-limit", "static")
    known = ("interleaved", *SIDE_BY_SIDE, "chunk", "pf-limit")
    if name not in known or (colon and (name not in numbered or not number.isdecimal() or int(number) < 1)):
        listed = ", ".join(f"{each}:N" if each in numbered else each for each in known)
        raise ValueError(f"engine: scheduler: {text!r} is none of {listed}")
    return name, int(number or 0)
