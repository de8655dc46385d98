"""The family of a checkpoint's `type`: ours, and those of other packages. Nothing here reads a file."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points

from auras_ros.policies.act import Act
from auras_ros.policies.autoregressive_family import Autoregressive
from auras_ros.policies.diffusion_family import Diffusion
from auras_ros.policies.family import Family
from auras_ros.policies.flow_family import Flow
from auras_ros.policies.tinyvla_family import TinyVla
from auras_ros.policies.vision_language_family import OpenVla, Rt2
from auras_ros.policies.x_transformers import XTransformers

ENTRY_POINTS = "auras_ros.policies"  # group of other packages' families: type = module:family

FAMILIES: Mapping[str, Family] = {
    "diffusion": Diffusion(),
    "autoregressive": Autoregressive(),
    "x-transformers": XTransformers(),
    "openvla": OpenVla(),
    "rt2": Rt2(),
    "tinyvla": TinyVla(),
    "flow": Flow(),
    "act": Act(),
}


FLOAT32_ALONE = ("x-transformers",)  # the library computes partly in float32


def find(kind: object) -> Family:
    """The family of a checkpoint's `type`: ours, or another package's that is registered. Raises ValueError by name."""
    if isinstance(kind, str) and kind in FAMILIES:
        return FAMILIES[kind]
    others = entry_points(group=ENTRY_POINTS)
    if not isinstance(kind, str) or kind not in others.names:
        raise ValueError(f"type '{kind}' is not known; known: {', '.join([*FAMILIES, *sorted(others.names)])}")
    (other,) = others.select(name=kind)
    try:
        family: Family = other.load()
    except Exception as error:  # another package's module: its import may raise anything
        text = f"type '{kind}': entry point {other.value} cannot be loaded: {type(error).__name__}: {error}"
        raise ValueError(text) from error
    return family
