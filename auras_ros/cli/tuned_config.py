"""The config that `auras tune` writes: a given one with the plan that was chosen, and the checkpoint of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from auras_ros import resources
from auras_ros.cli.outputs import written
from auras_ros.nodes.common.config import ConfigError, NodeConfig

if TYPE_CHECKING:
    from auras_ros.pipeline.plan import Plan


@dataclass(frozen=True)
class Template:
    """The config that a plan is written into: its name, its contents, and in these the agent's parameters. The new file
    may be in another folder, so paths relative to this one are made absolute."""

    name: str
    document: dict[str, Any]
    agent: dict[str, Any]


def template_of(config: NodeConfig) -> Template:
    """Raises ConfigError if a node has no section into which its parameters can be written."""
    document = yaml.safe_load(config.path.read_text(encoding="utf-8"))
    sections = {name.strip("/"): section for name, section in document.items()}
    for node in ("agent", *config.placed):
        if node not in sections:
            raise ConfigError(f"{config.path}: {node}: auras tune needs a top-level section of this name")
        sections[node]["ros__parameters"].update(config.placed.get(node, {}))
    return Template(config.path.name, document, sections["agent"]["ros__parameters"])


def write_config(template: Template, checkpoint: str, plan: Plan, where: Mapping[str, str], path: Path) -> None:
    """Write the config with this plan for its agent, on the device and in the type with which it was measured. Where it
    names the agent's checkpoint, for the actuator too, it gets the plan's."""
    from auras_ros.report.result import write_whole

    before, folder = str(template.agent.get("checkpoint", "pusht")), resources.checkpoint(checkpoint)
    if resources.checkpoint(before).resolve() != folder.resolve():
        named = str(folder.resolve()) if resources.is_path(checkpoint) else checkpoint
        template.agent["checkpoint"] = before
        for section in template.document.values():
            parameters = section.get("ros__parameters", {})
            if parameters.get("checkpoint") == before:
                parameters["checkpoint"] = named
    template.agent.update({"plan": str(plan), **where})
    text = yaml.safe_dump(template.document, sort_keys=False)
    written(path, lambda to: write_whole(to, f"# {template.name} with the plan that auras tune chose\n{text}"))
