"""A copy of what the package is built from, with one probe file of every kind that ships."""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (
    "package.xml",
    "setup.py",
    "setup.cfg",
    "pyproject.toml",
    "LICENSE",
    "resource",
    "auras_ros",
    "kernels",
    "sim",
    "tests",
    "launch",
    "config",
    "checkpoints",
)
ENTRY_POINTS = {
    "auras": "auras_ros.cli.main:main",
    "agent": "auras_ros.nodes.agent.node:program",
    "actuator": "auras_ros.nodes.actuator.node:main",
    "button": "auras_ros.nodes.button.node:main",
    "vlm": "auras_ros.nodes.vlm.node:program",
    "sim_bridge": "auras_ros.sim.bridge.node:main",
}
# The probes make every test say something even where a folder is still empty.
PROBES = (
    "config/probe.yaml",
    "launch/probe.launch.py",
    "checkpoints/probe/policy.json",
    "checkpoints/probe/parts/weights.safetensors",
)


def copy_sources(target: Path) -> Path:
    """Copies the sources to the new folder `target`, symbolic links as links; adds the probes."""
    target.mkdir(parents=True)
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, symlinks=True, ignore=ignore)
        elif source.exists():
            shutil.copy2(source, target / name)
    for probe in PROBES:
        (target / probe).parent.mkdir(parents=True, exist_ok=True)
        (target / probe).write_text("probe\n", encoding="utf-8")
    return target
