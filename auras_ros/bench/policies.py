"""Policies of the published architectures with random weights, by name, in the sizes that a figure needs.

A size is an exponent of two: at -2 a module has about a quarter of its parameters, by half the width at the same depth.
If memory cannot hold a vision-language model, its layers share their parameters (`Built.shared`): it does as much work
and reads as many bytes, in less memory. Only modules far larger than any cache are shared. `where_built` says where
they are built, and how much is free there.
"""

from __future__ import annotations

import argparse
import copy
import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from auras_ros.checkpoints.dtype import runtime_dtype
from auras_ros.device.make import kind_of
from auras_ros.models.action_tokens import Rt2Tokens
from auras_ros.models.llama import Llama, LlamaConfig
from auras_ros.models.openvla import OpenVlaConfig, build_openvla
from auras_ros.models.presets import OPENVLAS, RT2S, TINYVLAS
from auras_ros.models.rt2 import Rt2Config, build_rt2
from auras_ros.models.vision_language import VisionLanguage
from auras_ros.models.vit import VitConfig
from auras_ros.pipeline.modes import check_plan, family_offset
from auras_ros.pipeline.plan import Plan
from auras_ros.policies import architectures
from auras_ros.policies.architecture import Architecture
from auras_ros.policies.architectures import ArchitecturePreset, policy_of
from auras_ros.policies.autoregressive import AutoregressivePolicy
from auras_ros.policies.diffusion import DiffusionPolicy
from auras_ros.policies.family import LoadedPolicy
from auras_ros.policies.tinyvla import make_tinyvla
from auras_ros.policies.vision_language import VisionLanguagePrefix, random_ids

PROMPT = 24  # token ids after the image
TOKENS = 7  # of one action
KEPT = 0.6  # of the free memory that parameters may take
MULTIPLES = {"resnet18": 16, "keypoint": 8, "unet1d": 8}  # channels of a normalisation's group
VlaConfig = OpenVlaConfig | Rt2Config
PUBLISHED = torch.bfloat16  # of the files of policies that write tokens
MEMORY = Path("/proc/meminfo")


@dataclass(frozen=True)
class Built:
    """million: parameters of each module in millions; every layer counts, even if layers share parameters."""

    policy: LoadedPolicy
    perception_million: float
    generation_million: float
    shared: bool = False
    dtype: torch.dtype = torch.float32

    def fields(self) -> dict[str, Any]:
        millions = {"perception_million": self.perception_million, "generation_million": self.generation_million}
        return {**millions, "shared_layers": self.shared, "dtype": str(self.dtype).removeprefix("torch.")}


def names() -> list[str]:
    return [*architectures.RECIPES, *RT2S, *OPENVLAS, *TINYVLAS]


def is_causal(name: str) -> bool:
    """Whether it is autoregressive."""
    return name in RT2S or name in OPENVLAS


def generation_of(name: str, steps: int) -> str:
    """The `generation` of its plans; steps: denoising steps."""
    return "quick" if is_causal(name) else f"ddpm{steps}"


def auras_plan(name: str, policy: LoadedPolicy, options: argparse.Namespace) -> Plan:
    """With a stage for each token, or with --pp-generation stages of denoising. Raises PlanError."""
    stages = policy.steps if is_causal(name) else options.pp_generation
    generation = generation_of(name, options.steps)
    plan = Plan(generation, "auras", pp_generation=stages, fetch_offset=family_offset(policy))
    check_plan(policy, plan)
    return plan


def build(
    name: str,
    *,
    steps: int = 100,
    perception: int = 0,
    generation: int = 0,
    tokens: int = TOKENS,
    prefix: int | None = None,
    cameras: int = 1,
    free: int = 2**62,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Built:
    """A policy with random weights. steps: of denoising. perception, generation: exponents of two.

    Autoregressive: tokens: of a chunk. prefix: its length, most of it patches of one square picture for each of
    `cameras`; None: the published picture and PROMPT ids. device, dtype: the others are built on the CPU in float32.
    free: bytes of free memory on the device. Raises ValueError, naming a policy or size that cannot be built.
    """
    if is_causal(name):
        named: VlaConfig = RT2S[name] if name in RT2S else OPENVLAS[name]
        config, prompt = scaled(named, perception, generation), PROMPT
        if prefix is not None:
            side = int(((prefix - 1) // cameras) ** 0.5)
            config, prompt = _seeing(config, lambda vit: replace(vit, image_px=side * vit.patch_px)), prefix - 1
            prompt -= cameras * side * side
        px = (config.dinov2 if isinstance(config, OpenVlaConfig) else config.vision).image_px
        shape = Architecture(name, cameras, (px, px), 1, 0, 1, tokens, 6 if name in OPENVLAS else 3)
        return _vision_language(shape, config, prompt, free, torch.device(device), dtype)
    if name in TINYVLAS and not perception and not generation:
        return _counted(make_tinyvla(name, seed=0))
    if name not in architectures.RECIPES:
        raise ValueError(f"policy '{name}' is not known or has only one size; known: {', '.join(names())}")
    recipe = architectures.RECIPES[name]
    networks = _described(recipe.encoder, perception), _described(recipe.network, generation)
    return _counted(policy_of(ArchitecturePreset(recipe.architecture, *networks), seed=0, steps=steps))


def _counted(policy: DiffusionPolicy) -> Built:
    return Built(policy, _million(policy.encoder), _million(policy.network))


def _million(module: nn.Module) -> float:
    return sum(each.numel() for each in module.parameters()) / 1e6


# -- diffusion ----------------------------------------------------------------------------------------


def _described(sizes: Mapping[str, Any], exponent: int) -> dict[str, Any]:
    """A network's description with its widths times 2^(exponent / 2), rounded to the nearest possible width."""
    kind = sizes["type"]
    multiple = sizes.get("heads") or sizes.get("groups") or MULTIPLES[kind]
    made = dict(sizes)
    for name in ("width", "widths", "down_dims"):
        if name in sizes:
            made[name] = _widths(sizes[name], exponent, multiple)
    if kind == "resnet18" and exponent:  # a width for each of its layers, so that small ones can be rounded
        first = sizes.get("width", 64)
        made["width"] = [_widths(first * 2**layer, exponent, multiple) for layer in range(4)]
    elif kind == "transformer":
        made["width"] = _widths(sizes.get("width", 256), exponent, 2 * multiple)  # even: half sines, half cosines
    return made


def _widths(width: Any, exponent: int, multiple: int) -> Any:
    if isinstance(width, list):
        return [_widths(each, exponent, multiple) for each in width]
    return max(1, round(width * 2 ** (exponent / 2) / multiple)) * multiple


# -- vision-language ----------------------------------------------------------------------------------


def scaled(config: VlaConfig, perception: int, generation: int) -> VlaConfig:
    """Scales the widths of vision encoders and decoder; the size of a head, vocabulary and patches stay about equal."""
    seeing = _seeing(config, lambda vit: _vit(vit, perception))
    return replace(seeing, language=_llama(config.language, generation))


def _seeing(config: VlaConfig, change: Callable[[VitConfig], VitConfig]) -> VlaConfig:
    """The same with its vision encoders changed."""
    if isinstance(config, Rt2Config):
        return replace(config, vision=change(config.vision))
    return replace(config, dinov2=change(config.dinov2), siglip=change(config.siglip))


def _vit(config: VitConfig, exponent: int) -> VitConfig:
    factor = 2 ** (exponent / 2)
    heads = max(1, round(config.heads * factor))
    width = max(1, round(config.width * factor / heads)) * heads
    return replace(config, width=width, heads=heads, hidden=max(1, round(config.hidden * factor)))


def _llama(config: LlamaConfig, exponent: int) -> LlamaConfig:
    factor, group = 2 ** (exponent / 2), config.heads // config.kv_heads
    kv_heads = max(1, round(config.kv_heads * factor))
    heads = kv_heads * group if config.heads * factor >= group else 1
    width = max(1, round(config.width * factor / (2 * heads))) * 2 * heads
    return replace(
        config, width=width, heads=heads, kv_heads=min(kv_heads, heads), hidden=max(1, round(config.hidden * factor))
    )


def _vision_language(
    shape: Architecture, config: VlaConfig, prompt: int, free: int, device: torch.device, dtype: torch.dtype
) -> Built:
    """prompt: number of ids after the pictures."""
    with torch.device("meta"):
        sized = _network(config)
    seeing = _million(sized.vision) + _million(sized.projector)  # type: ignore[arg-type]
    writing = _million(sized.language)
    shared = 1e6 * dtype.itemsize * (seeing + writing) > KEPT * free
    with drawn(device, dtype):
        network = _sharing(config) if shared else _network(config)
    vocabulary, tokens = config.language.vocabulary, shape.actions
    before, after = random_ids(1, vocabulary, 1), random_ids(prompt, vocabulary, 2)
    prefix = VisionLanguagePrefix(network, before, after, shape.cameras)
    codec = Rt2Tokens([-1.0] * tokens, [1.0] * tokens, first=vocabulary - 256)
    policy = AutoregressivePolicy(prefix, network.language, codec, shape)
    return Built(policy.eval().requires_grad_(False), seeing, writing, shared, dtype)


@contextmanager
def drawn(device: torch.device, dtype: torch.dtype) -> Iterator[None]:
    """Networks built inside draw their weights directly on this device in this dtype. Drawing 7 B weights on the host
    would take a minute, and rounding them afterwards twice the memory. The caller's random state does not change."""
    before = torch.get_default_dtype()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), device:
        torch.manual_seed(0)
        torch.set_default_dtype(dtype)
        try:
            yield
        finally:
            torch.set_default_dtype(before)


def _network(config: VlaConfig) -> VisionLanguage:
    return build_openvla(config) if isinstance(config, OpenVlaConfig) else build_rt2(config)


def _sharing(config: VlaConfig) -> VisionLanguage:
    """The network with one set of parameters for all layers of each module."""
    thin = _seeing(config, lambda vit: replace(vit, depth=-vit.feature_layer))  # with only one layer built
    network: Any = _network(replace(thin, language=replace(config.language, layers=1)))
    if isinstance(config, OpenVlaConfig):
        both = network.vision.featurizer, network.vision.fused_featurizer
        vits = list(zip(both, (config.dinov2, config.siglip), strict=True))
    else:
        vits = [(network.vision, config.vision)]
    for vit, sizes in vits:
        vit.config, vit.layers = sizes, repeated(vit.layers, sizes.built)
    language: Llama = network.language
    language.config, language.layers = config.language, repeated(language.layers, config.language.layers)
    for i, layer in enumerate(network.language.layers):
        layer.self_attn.layer = i  # its index in the KV cache
    return cast(VisionLanguage, network)


def repeated(layers: nn.ModuleList, count: int) -> nn.ModuleList:
    """The one layer `count` times: separate modules with the same parameters."""
    (layer,) = layers
    kept = {id(each): each for each in (*layer.parameters(), *layer.buffers())}
    return nn.ModuleList(copy.deepcopy(layer, dict(kept)) for _ in range(count))


def where_built(device: str) -> dict[str, Any]:
    """`build`'s arguments `device` and `free` (bytes of free memory there). Frees unused memory first."""
    gc.collect()
    torch.cuda.empty_cache()  # does nothing without a GPU
    kind = kind_of(device)
    if kind == "cuda":
        return {"device": kind, "free": int(torch.cuda.mem_get_info()[0])}
    lines = MEMORY.read_text(encoding="utf-8").splitlines() if MEMORY.exists() else []
    free = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return {"device": kind, "free": free[0] if free else 2**62}


def where_built_as_run(device: str) -> dict[str, Any]:
    """The same, with the dtype in which autoregressive policies run there."""
    return {**where_built(device), "dtype": runtime_dtype("auto", kind_of(device), PUBLISHED)}
