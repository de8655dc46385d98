"""What adapter_config.json says of an adapter's layers: their ranks and scales, and that it is a plain LoRA.

A key that changes what an adapter computes is refused by its name, one that only says how it was trained is not looked
at. Patterns come from a file that nobody vouches for, so they are bounded before they are tried.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from auras_ros.checkpoints.config_reader import ConfigReader
from auras_ros.values import shown

MOST_RANK, MOST_ALPHA = 1024, 1e6
T = TypeVar("T")
MOST_PATTERN = 256  # characters
# Ways in which the patterns of a key can be tried on a name, `MANY` for a repetition: a thousand layers take seconds.
MOST_WAYS, MANY = 4096, 16
PIECE = re.compile(r"\\\D|\[\^?(?:\\[dw.-]|[\w.-])+\]|\((?:\?:|(?!\?))|[^\\\[\]{}(]")
# Keys that say how an adapter was trained or by what, and none that changes what it computes.
IGNORED = {
    "auto_mapping", "base_model_name_or_path", "corda_config", "ensure_weight_tying", "eva_config", "exclude_modules",
    "inference_mode", "layers_pattern", "layers_to_transform", "loftq_config", "lora_dropout", "lora_ga_config",
    "megatron_core", "peft_version", "qalora_group_size", "revision", "runtime_config", "target_modules", "task_type",
}  # fmt: skip
# Initialisations that leave the base model's weights as they are: an adapter of another one needs weights of its own.
STARTS = (True, False, "gaussian", "eva", "orthogonal", "mica")
# What an adapter of another kind has: key, and its values that mean a plain LoRA.
PLAIN: Mapping[str, tuple[Any, ...]] = {
    "alora_invocation_tokens": (None, []),
    "arrow_config": (None,),
    "bias": ("none",),
    "fan_in_fan_out": (False,),
    "kasa_config": (None,),
    "layer_replication": (None, []),
    "lora_bias": (False,),
    "megatron_config": (None,),
    "modules_to_save": (None, []),
    "monteclora_config": (None,),
    "target_parameters": (None, []),
    "trainable_token_indices": (None, [], {}),
    "use_bdlora": (None, False),
    "use_dora": (False,),
    "use_qalora": (False,),
    "velora_config": (None,),
}


class RankAndScale(NamedTuple):
    """Of one published layer: the rank and the scale that the configuration gives it."""

    rank: int
    scale: float


def layer_scales(read: ConfigReader) -> Callable[[str], RankAndScale]:
    """What gives a published layer's rank and scale. Raises ModelConfigError."""
    read.only("peft_type", "LORA")
    for key, plain in PLAIN.items():
        if (value := read.get(key)) is not None and value not in plain:
            raise read.error(key, f"{shown(value)} is not supported")
    start = read.get("init_lora_weights", True)
    if start not in STARTS:
        text = f"{shown(start)} may change the base model too; save it as a plain LoRA (PEFT converts it)"
        raise read.error("init_lora_weights", text)
    rank = read.integer("r", least=1, most=MOST_RANK)
    alpha = _alpha(read, "lora_alpha", 8.0)
    stabilised = bool(read.only("use_rslora", False, True))
    ranks = _patterns(read, "rank_pattern", lambda inner, name: inner.integer(name, least=1, most=MOST_RANK))
    alphas = _patterns(read, "alpha_pattern", _alpha)
    read.finish(IGNORED)

    def scale(layer: str) -> RankAndScale:
        own = _first(ranks, layer, rank)
        return RankAndScale(own, _first(alphas, layer, alpha) / (math.sqrt(own) if stabilised else own))

    return scale


def _alpha(read: ConfigReader, key: str, default: float | None = None) -> float:
    value = read.number(key, default)
    if value > MOST_ALPHA:
        raise read.error(key, f"{value:g} is more than {MOST_ALPHA:g}")
    return value


def _patterns(
    read: ConfigReader, key: str, value_of: Callable[[ConfigReader, str], T]
) -> list[tuple[re.Pattern[str], T]]:
    """Numbers by a regular expression of layers' names, which PEFT fits to a name's end. Raises ModelConfigError."""
    inner, ways = read.inner(key), 0
    found = list[tuple[re.Pattern[str], T]]()
    for name in inner.values:
        if len(name) > MOST_PATTERN:
            raise read.error(key, f"{shown(name)} is longer than {MOST_PATTERN} characters")
        ways += _ways(name)
        if ways > MOST_WAYS:
            raise read.error(
                key, f"{shown(name)} has too many repetitions or alternatives, or uses what is not supported"
            )
        try:
            expression = re.compile(rf"(.*\.)?({name})$")
        except re.error as error:
            raise read.error(key, f"{shown(name)} is not a regular expression: {error}") from error
        found.append((expression, value_of(inner, name)))
    return found


def _first(patterns: Sequence[tuple[re.Pattern[str], T]], layer: str, default: T) -> T:
    return next((value for expression, value in patterns if expression.match(layer)), default)


def _ways(pattern: str) -> int:
    """In how many ways a regular expression can be tried on a name, at most; more than `MOST_WAYS` where that is not
    known: a repeated group, or what refers, looks around or counts."""
    pieces = PIECE.findall(pattern)
    if "".join(pieces) != pattern or any(f"){sign}" in pattern for sign in "*+"):
        return MOST_WAYS + 1
    ways, alternatives = 1, [1]
    for piece in pieces:
        if piece in ("(", "(?:"):
            alternatives.append(1)
        elif piece == "|":
            alternatives[-1] += 1
        elif piece == ")":
            if len(alternatives) == 1:  # it closes the group around the pattern
                return MOST_WAYS + 1
            ways *= alternatives.pop()
        elif piece in "*+?":
            ways *= 2 if piece == "?" else MANY
    return ways * alternatives.pop()
