"""The family of a checkpoint's `type`: ours, and those of other packages. Nothing here reads a file."""

from __future__ import annotations

from collections.abc import Mapping

from auras_ros import registry
from auras_ros.policies.act import Act
from auras_ros.policies.autoregressive_family import Autoregressive
from auras_ros.policies.diffusion_family import Diffusion
from auras_ros.policies.family import Family
from auras_ros.policies.flow_family import Flow
from auras_ros.policies.mlp import BehaviourCloning
from auras_ros.policies.robomimic.family import Robomimic
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
    "mlp": BehaviourCloning(),
    "robomimic": Robomimic(),
}


FLOAT32_ALONE = ("x-transformers", "robomimic")  # the libraries compute in it


def find(kind: object) -> Family:
    """The family of a checkpoint's `type`: ours, or another package's that is registered. Raises ValueError by name."""
    return registry.find(ENTRY_POINTS, FAMILIES, "type", kind)
