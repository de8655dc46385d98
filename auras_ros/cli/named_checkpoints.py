"""What a config says about its checkpoints, for `auras check`: they are there, the plans are theirs, and a chunk comes
before the actions of the one before are too old.

No weights are read. Of a folder in another library's format it is only said whether it is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from auras_ros import resources
from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.manifest import MANIFEST, read_policy
from auras_ros.nodes.common.config import NodeConfig
from auras_ros.pipeline.plan import Plan, PlanError
from auras_ros.spelling import hint

NODES = ("actuator", "agent", "vlm")  # that have a checkpoint


def problems_with(config: NodeConfig) -> list[str]:
    """A line for each thing that keeps the nodes from starting, or from being armed."""
    return [*_missing(config), *_plans(config)]


def warnings_about(config: NodeConfig) -> list[str]:
    """A line for each plan whose chunks come hardly before the actions of the one before are too old."""
    agent, actuator = _settings(config, "agent"), _settings(config, "actuator")
    if agent is None or actuator is None:
        return []
    return [
        _too_slow(plan, actuator.max_chunk_age_ms)
        for plan in _parsed(agent)
        if 2 * plan.frame_period_ms > actuator.max_chunk_age_ms
    ]


def _too_slow(plan: Plan, limit_ms: float) -> str:
    period_ms = plan.frame_period_ms
    return (
        f"agent: plan '{plan}': a chunk is begun every {period_ms:g} ms, and the actuator executes none older than "
        f"max_chunk_age_ms = {limit_ms:g} ms: it will hold between two chunks unless one is computed within "
        f"{max(0.0, limit_ms - period_ms):g} ms"
    )


def _settings(config: NodeConfig, node: str) -> Any:
    """A node's parameters; None if the file has none."""
    return config.settings(node) if node in config.sections else None


def _folder(settings: Any) -> Path | None:
    try:
        return resources.checkpoint(settings.checkpoint)
    except FileNotFoundError:
        return None


def _missing(config: NodeConfig) -> Iterator[str]:
    for node in NODES:
        settings = _settings(config, node)
        if settings is None or not settings.checkpoint:
            continue
        try:
            resources.checkpoint(settings.checkpoint)
        except FileNotFoundError as error:
            yield f"{node}: {error}"


def _plans(config: NodeConfig) -> Iterator[str]:
    """Plans of the agent that its checkpoint does not have."""
    agent = _settings(config, "agent")
    folder = None if agent is None else _folder(agent)
    if folder is None or not (folder / MANIFEST).is_file():
        return
    try:
        known = list(read_policy(folder / MANIFEST)["plans"])
    except (CheckpointError, TypeError) as error:
        yield f"agent: {error}"
        return
    for plan in _parsed(agent):
        if plan.generation and plan.generation not in known:
            meant = hint(plan.generation, known, show_all=True)
            yield f"agent: plan: checkpoint {folder} has no plan '{plan.generation}'{meant}"


def _parsed(agent: Any) -> tuple[Plan, ...]:
    try:
        plans: tuple[Plan, ...] = agent.plans()
        return plans
    except PlanError:  # which the check of the parameters says
        return ()
