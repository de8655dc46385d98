"""The config of `auras tune`: what its agent can run is searched, and it is written again with the chosen plan."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from auras_ros import resources
from auras_ros.cli.outputs import written
from auras_ros.nodes.common.config import ConfigError, NodeConfig, read_parameters_file

if TYPE_CHECKING:
    from auras_ros.pipeline.plan import Plan


@dataclass(frozen=True)
class Template:
    """The config that a plan is written into: its name, its contents, and in these the agent's parameters. The new file
    may be in another folder, so paths relative to this one are made absolute."""

    name: str
    document: dict[str, Any]
    agent: dict[str, Any]


def follow(config: Path, options: argparse.Namespace, parser: argparse.ArgumentParser) -> Template:
    """Set the options for what the config's agent can run: its checkpoint, and others if given beside it, on its
    device, within its `max_age_ms`. Raises ConfigError if it has no agent; exits with status 2 if the options
    contradict it."""
    read = read_parameters_file(config)
    agent, template = read.section("agent"), template_of(read)
    named = str(agent.get("checkpoint", "pusht"))
    given = options.checkpoint or [named]
    if resources.checkpoint(named).resolve() not in [resources.checkpoint(name).resolve() for name in given]:
        parser.error(f"--checkpoint: {','.join(given)} is not that of the agent in {config}: {named}")
    options.checkpoint = given
    device = options.device or str(agent.get("device", "cpu"))
    if device not in ("auto", "cpu", "cuda"):
        parser.error(f"--config: {config}: device: no {device!r}; known: auto, cpu, cuda")
    options.device = ("cuda" if has_cuda() else "cpu") if device == "auto" else device
    options.dtype = options.dtype or str(agent.get("dtype", "auto"))
    ages = [age for age in (options.max_age_ms, float(agent.get("max_age_ms", 0.0)) or None) if age is not None]
    options.max_age_ms = min(ages, default=None)
    return template


def template_of(config: NodeConfig) -> Template:
    """Raises ConfigError if a node has no section into which its parameters can be written."""
    document = yaml.safe_load(config.path.read_text(encoding="utf-8"))
    sections = {name.strip("/"): section for name, section in document.items()}
    for node in ("agent", *config.placed):
        if node not in sections:
            raise ConfigError(f"{config.path}: {node}: auras tune needs a top-level section of this name")
        sections[node]["ros__parameters"].update(config.placed.get(node, {}))
    return Template(config.path.name, document, sections["agent"]["ros__parameters"])


def has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


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
