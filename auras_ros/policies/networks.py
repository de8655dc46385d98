"""The networks that a checkpoint or the registry can name, made from their descriptions; wrong ones refused by name.

A description is plain JSON: `type` and the sizes. Without `type`, the first one of each list is used, as in the first
checkpoints. Nothing here reads a file or knows a sampler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from auras_ros.models.blocks import Block, Blocks, alone, chain
from auras_ros.models.conditional_unet1d import DiffusionUnet1d, UnetSizes
from auras_ros.models.diffusion_transformer import DiffusionTransformer
from auras_ros.models.keypoint_encoder import KeypointEncoder
from auras_ros.models.resnet import ResNetEncoder
from auras_ros.models.unet1d import ConditionalUnet1d

NO_CAMERAS = "none"


class NoCameras(nn.Module):
    """The encoder of a policy that sees the state alone: images [0, 3, h, w] -> features [0, 0]."""

    def __init__(self) -> None:
        super().__init__()
        self.features = 0
        self.sizes = {"type": NO_CAMERAS}

    def blocks(self) -> Blocks:
        return [(NO_CAMERAS, alone(self.forward))]

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)[:, :0]


Encoder = KeypointEncoder | ResNetEncoder | NoCameras
Network = ConditionalUnet1d | DiffusionUnet1d | DiffusionTransformer

ENCODERS: dict[str, type[Encoder]] = {"keypoint": KeypointEncoder, "resnet18": ResNetEncoder, NO_CAMERAS: NoCameras}
NETWORKS: dict[str, type[Network]] = {
    "unet1d": ConditionalUnet1d,
    "conditional_unet1d": DiffusionUnet1d,
    "transformer": DiffusionTransformer,
}


WORDS = ("pool", "norm", "activation", "film")  # sizes that are words; the network checks them


class PerCamera(nn.Module):
    """An encoder for each camera; images [N * cameras, 3, h, w] of one instant are adjacent."""

    def __init__(self, each: Sequence[Encoder]) -> None:
        super().__init__()
        self.each = nn.ModuleList(each)
        self.features = each[0].features
        self.sizes = {**each[0].sizes, "separate": len(each)}

    def blocks(self) -> Blocks:
        """The encoders' own parts, side by side."""
        lists = [cast(Encoder, encoder).blocks() for encoder in self.each]
        parts = [(side[0][0], _beside([body for _, body in side])) for side in zip(*lists, strict=True)]
        return [
            ("cameras", lambda x: tuple(x.unflatten(0, (-1, len(lists))).unbind(1))),
            *parts,
            ("join", lambda *each: (torch.stack(each, 1).flatten(0, 1),)),
        ]

    def forward(self, images: Tensor) -> Tensor:
        return chain(self.blocks(), images)


def _beside(bodies: Sequence[Block]) -> Block:
    """Runs each body on its own share of the tensors; all shares have the same size."""

    def run(*carried: Tensor) -> tuple[Tensor, ...]:
        own = len(carried) // len(bodies)
        return tuple(out for i, body in enumerate(bodies) for out in body(*carried[i * own : (i + 1) * own]))

    return run


def build_encoder(described: Mapping[str, Any], cameras: int | None = None) -> Encoder | PerCamera:
    """[N, 3, h, w] -> [N, features]; the module has `features` and `sizes`. `separate`: one encoder for each of so many
    cameras. Raises ValueError or TypeError, naming the key."""
    kind, sizes = _read("encoder", described, ENCODERS)
    if kind == NO_CAMERAS and cameras:
        raise ValueError(f"encoder: type '{kind}' sees nothing of {cameras} cameras")
    separate = sizes.pop("separate", None)
    if separate is None:
        return ENCODERS[kind](**sizes)
    if separate != cameras:
        raise ValueError(f"encoder ({kind}): separate: {separate}, but there are {cameras} cameras")
    return PerCamera([ENCODERS[kind](**sizes) for _ in range(separate)])


def build_network(
    described: Mapping[str, Any], actions: int, condition: int, horizon: object, observations: int
) -> Network:
    """The noise network over [B, horizon, actions], given `condition` numbers from `observations` steps in all.

    Raises ValueError or TypeError, naming the type, the size or the horizon.
    """
    kind, sizes = _read("network", described, NETWORKS)
    network = NETWORKS[kind]
    if network is DiffusionTransformer:
        return network(actions, condition, _horizon(horizon, 1), observations, **sizes)
    if network is DiffusionUnet1d:
        unet = network(actions, condition, UnetSizes(**sizes))
        _horizon(horizon, unet.horizon_multiple)
        return unet
    _horizon(horizon, 4)
    return ConditionalUnet1d(actions, condition, **sizes)


def _horizon(horizon: object, multiple: int) -> int:
    if type(horizon) is not int or horizon < multiple or horizon % multiple:
        raise ValueError(f"horizon: {horizon!r} is not a positive multiple of {multiple}")
    return horizon


def _read(part: str, described: Mapping[str, Any], known: Mapping[str, object]) -> tuple[str, dict[str, Any]]:
    """(type, sizes) of a description, every size a whole number above zero or a list of them."""
    if not isinstance(described, Mapping):
        raise TypeError(f"{part}: {described!r} is not an object")
    sizes = dict(described)
    kind = sizes.pop("type", next(iter(known)))
    if not isinstance(kind, str) or kind not in known:
        raise ValueError(f"{part}: type {kind!r} is not known; known: {', '.join(known)}")
    for name, value in sizes.items():
        for size in value if isinstance(value, list | tuple) else [value]:
            if name not in WORDS and (type(size) is not int or size < 1):
                raise ValueError(f"{part} ({kind}): {name}: {value!r} is not a whole number above zero")
    return kind, sizes
