"""A checkpoint becomes an engine: its weights packed, its blocks allocated, its stages placed and warmed up."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor

import torch

from auras_ros.checkpoints.vlm.open import VlmCheckpoint
from auras_ros.clock import SchedulerClock
from auras_ros.device.cores import checked, occupy
from auras_ros.device.lane import Device
from auras_ros.device.make import make_device
from auras_ros.engine.engine import Engine
from auras_ros.engine.forwards import InlineExecutor, Place, PlacedForwards
from auras_ros.engine.options import MOST_LENGTH, EngineOptions
from auras_ros.engine.scheduler import Stage, StageScheduler
from auras_ros.engine.vision_swap import swap_vision
from auras_ros.engine.workers import (
    DecodeWorker,
    PrefillWorker,
    StageWorker,
    VisionWorker,
    bucket,
    wide,
)
from auras_ros.models.flashinfer_attention import FlashInferAttention
from auras_ros.models.fused_llama import FusedLlama
from auras_ros.models.linear import repack
from auras_ros.models.paged_attention import GatheredAttention, PagedAttention, RowAttention
from auras_ros.models.paged_kv import PagedKVCache
from auras_ros.models.varlen_attention import VarlenAttention


def make_engine(
    checkpoint: VlmCheckpoint,
    options: EngineOptions,
    *,
    device: Device | None = None,
    scheduler: StageScheduler | None = None,
    clock: SchedulerClock | None = None,
) -> Engine:
    """Takes the checkpoint's weights over: it cannot make another engine. Raises ValueError for sizes that do not fit,
    DeviceError for cores that are not there."""
    on = device or make_device("cpu")
    model = checkpoint.model.to(on.tensors)
    decoder = FusedLlama(model.language, options.int8)
    repack(model)
    vision = _executor("vision", options.vision_cores)
    if options.swap_layers:
        swap_vision(checkpoint, options, on, vision)
    length = min(options.length or MOST_LENGTH, checkpoint.length)
    decoder.tabulate(length)
    cache = _cache(decoder, options, length)
    width = min(cache.needed(length), cache.blocks - 1)
    attention = _attention(cache, decoder, bucket(options.running), wide(width))
    decode = DecodeWorker(decoder, attention, on, options.running, width)
    workers: dict[Stage, StageWorker] = {
        "vision": VisionWorker(model, decoder),
        "prefill": PrefillWorker(decoder, attention),
        "decode": decode,
    }
    executors: dict[Place, Executor] = {
        ("vision", None): vision,
        ("prefill", None): _executor("prefill", options.prefill_cores),
        ("decode", None): _executor("decode", options.decode_cores),
    }
    for rows in sorted({bucket(each) for each in range(1, options.running + 1)}):
        executors["decode", None].submit(decode.prepare, rows).result()
    forwards = PlacedForwards(workers, executors, on if device is None else None)
    return Engine(checkpoint, options, cache, forwards, scheduler, clock)


def _attention(cache: PagedKVCache, decoder: FusedLlama, rows: int, width: int) -> PagedAttention:
    """The fastest form that takes this cache. rows, width: of the largest batch and its longest table."""
    if cache.store.device.type == "cpu":
        return RowAttention(cache, rows, width)
    if FlashInferAttention.takes(cache):
        return FlashInferAttention(cache, decoder.config.heads, rows, width)
    return VarlenAttention(cache) if VarlenAttention.takes(cache) else GatheredAttention(cache)


def _cache(decoder: FusedLlama, options: EngineOptions, length: int) -> PagedKVCache:
    """As many blocks as the memory holds, and never more than all requests could use."""
    config = decoder.config
    size = torch.empty(0, dtype=decoder.dtype).element_size()
    block_bytes = config.layers * options.block * 2 * config.kv_heads * config.size_of_head * size
    held = (options.kv_mib << 20) // block_bytes
    most = options.running * -(-length // options.block)
    if held < 1:
        raise ValueError(f"engine: kv_mib: {options.kv_mib} MiB do not hold a block of {block_bytes} bytes")
    return PagedKVCache(
        config.layers, min(held, most) + 1, options.block, config.kv_heads, config.size_of_head,
        dtype=decoder.dtype, device=decoder.device,
    )  # fmt: skip


def _executor(stage: str, cores: Sequence[int]) -> Executor:
    """A thread on these cores, or the engine's own thread."""
    if not cores:
        return InlineExecutor()
    own, threads = checked(stage, cores, len(cores))
    others = torch.get_num_threads()
    executor = ThreadPoolExecutor(1, thread_name_prefix=stage)
    try:
        executor.submit(occupy, stage, own, threads).result()
    except BaseException:
        executor.shutdown()
        raise
    finally:
        torch.set_num_threads(others)  # the default of threads to come, which occupying has changed (`device.cores`)
    return executor
