"""How an engine is set up: sizes and limits, checked once."""

from __future__ import annotations

from dataclasses import dataclass, fields

MOST_LENGTH = 8192  # where none is asked for
LEAST = {
    "length": 0,
    "waiting": 0,
    "image_cache_mib": 0,
    "swap_layers": 0,
    "swap_core": -1,
    "max_loras": 0,
}  # the other numbers: 1


@dataclass(frozen=True)
class EngineOptions:
    """device: where the model runs: cpu, cuda, or auto (cuda if there is a GPU). length: tokens of prompt and answer
    together; 0 is the model's own length, at most MOST_LENGTH. block: tokens of a block of keys and values. kv_mib:
    memory for keys and values. running: sequences that decode together. waiting: requests that are accepted beyond
    those that run; one more is refused. prefill_tokens: of one prefill. chunked: a longer prompt is divided into
    prefills of that size, and requests that decode make a token within each; otherwise it is one. prefix_cache: blocks
    of earlier prompts are used again. image_cache_mib: memory for embeddings of earlier images. int8: the decoder's
    layers multiply in 8 bits. scheduler: its name, with a number where it takes one (`schedulers`). stage_profile: the
    file of a `StageProfile`, for schedulers that plan by one. tbt_ms: what they let a decode of one request take beside
    another stage. answer_tokens: of an answer, in the mean, for Nova's plan. swap_layers: physical layers that hold the
    vision encoder's layers in turn; 0: all stay in memory. swap_folder: for their file, where one is needed. swap_core:
    of the thread that reads it; -1: any. max_loras: adapters that are in memory at once; 0: none can be asked for.
    max_lora_rank: of an adapter. lora_policy: which requests run and what is merged meanwhile (`valora.POLICY_NAMES`).
    lora_theta_ms: what it lets a request wait whose adapter is not merged. lora_thetas: of adapters whose requests may
    wait for another time: name=ms,name=ms. lora_exact: merged weights are a second copy, computed from the base
    model's; without it products are added and taken away again, which takes less memory and drifts by rounding.
    max_merged_loras: copies, and so adapters whose merged weights are there at once. lora_ways: how adapters' products
    are multiplied: a way's name, or the file of a searched table. Raises ValueError, naming the option."""

    device: str = "cpu"
    length: int = 0
    block: int = 16
    kv_mib: int = 512
    running: int = 8
    waiting: int = 16
    prefill_tokens: int = 512
    chunked: bool = False
    prefix_cache: bool = True
    image_cache_mib: int = 64
    int8: bool = False
    scheduler: str = "interleaved"
    stage_profile: str = ""
    tbt_ms: int = 250
    answer_tokens: int = 50
    swap_layers: int = 0
    swap_folder: str = ""
    swap_core: int = -1
    max_loras: int = 0
    max_lora_rank: int = 16
    lora_policy: str = "per-forward"
    lora_theta_ms: int = 250
    lora_thetas: str = ""
    lora_exact: bool = True
    max_merged_loras: int = 1
    lora_ways: str = ""

    def __post_init__(self) -> None:
        for each in fields(self):
            value, least = getattr(self, each.name), LEAST.get(each.name, 1)
            if isinstance(each.default, str):
                if not isinstance(value, str):
                    raise ValueError(f"engine: {each.name}: {value!r} is not a text")
                continue
            if isinstance(each.default, bool):
                if not isinstance(value, bool):
                    raise ValueError(f"engine: {each.name}: {value!r} is not true or false")
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"engine: {each.name}: {value!r} is not a whole number from {least}")
