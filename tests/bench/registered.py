"""A tiny policy under a name of the registry, so that a bench runs as a user runs it, in a moment."""

from __future__ import annotations

from auras_ros.policies.architecture import Architecture
from auras_ros.policies.architectures import ArchitecturePreset

NAME = "tiny"
RECIPE = ArchitecturePreset(
    Architecture(NAME, cameras=1, image_px=(24, 24), history=2, state=2, horizon=8, actions=2),
    {"type": "keypoint", "features": 6, "widths": [8, 8, 8], "maps": 4, "targets": 2},
    {"type": "unet1d", "widths": [8, 8, 16]},
)
