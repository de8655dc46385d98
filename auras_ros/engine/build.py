"""A checkpoint becomes an engine: its weights packed, its blocks allocated, its stages placed and warmed up."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import torch

from auras_ros.checkpoints.vlm.open import VlmCheckpoint
from auras_ros.clock import SchedulerClock
from auras_ros.device.cores import in_own_thread
from auras_ros.device.cpu import CpuDevice
from auras_ros.device.cpu_partition import CpuPartitions
from auras_ros.device.lane import Device, DeviceError, Lane
from auras_ros.device.make import make_device
from auras_ros.device.partition import Partitions
from auras_ros.device.reservation import FrameReservation
from auras_ros.engine.engine import Engine
from auras_ros.engine.forwards import ForwardLog, InlineExecutor, Place, PlacedForwards
from auras_ros.engine.options import MOST_LENGTH, EngineOptions
from auras_ros.engine.profile import read_profile
from auras_ros.engine.scheduler import STAGES, Stage, StageScheduler
from auras_ros.engine.schedulers import make_scheduler, needs_partitions, needs_profile
from auras_ros.engine.tables import EngineMemory
from auras_ros.engine.valora import UNMERGE_ONLY, make_lora_scheduler, most_admitted
from auras_ros.engine.vision_swap import swap_vision
from auras_ros.engine.workers import (
    DecodeWorker,
    PrefillWorker,
    StageWorker,
    VisionWorker,
    bucket,
    wide,
)
from auras_ros.lora.runtime import LoraRuntime, has_kernels
from auras_ros.lora.sites import decoder_sites
from auras_ros.lora.slots import placed_rank, slot_blocks
from auras_ros.lora.vision import VisionAdapter
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
    partitions: Partitions | None = None,
    reservation: FrameReservation | None = None,
    log: ForwardLog | None = None,
) -> Engine:
    """device: the options' if none is given; then it is closed with the engine. partitions: for stages side by side;
    the engine closes them. Without them they are made of all cores of this thread if the options' scheduler divides
    those, else stages take turns in the engine's thread. reservation: of a policy's frames on the same units; forwards
    run between them, and there are no adapters, as nobody knows how long a forward takes that changes the weights.
    log: is given every forward that has ended. Takes the checkpoint's weights over: it cannot make another engine.
    Raises ValueError for sizes and names that do not fit, DeviceError for a device that cannot be divided."""
    if reservation is not None and options.max_loras:
        raise ValueError(f"max_loras: 0 where a policy's frames are a reservation, got {options.max_loras}")
    on = device or make_device(options.device)
    with ExitStack() as failing:
        if device is None:
            failing.callback(on.close)
        if partitions is None and scheduler is None and needs_partitions(options.scheduler):
            partitions = make_partitions(on)
        if partitions is not None:
            failing.callback(partitions.close)
        scheduler = scheduler or _scheduler(options, partitions, checkpoint.name)
        stages = partial(_stages, checkpoint, options, on, partitions)
        workers, executors, memory = in_own_thread(stages)
        forwards = PlacedForwards(workers, executors, partitions, on if device is None else None, log)
        engine = Engine(checkpoint, options, memory, forwards, scheduler, clock, reservation)
        failing.pop_all()
    return engine


def _stages(
    checkpoint: VlmCheckpoint, options: EngineOptions, on: Device, partitions: Partitions | None
) -> tuple[dict[Stage, StageWorker], dict[Place, Executor], EngineMemory]:
    model = checkpoint.model.to(on.tensors)
    decoder = FusedLlama(model.language, options.int8)
    repack(model)
    executors, vision = _in_turn() if partitions is None else _placed(partitions), None
    if options.max_loras:
        names = (each for each in checkpoint.targets.layers if not each.startswith("language."))
        vision = VisionAdapter(model, names, model.vision_layers if options.swap_layers else None)
    if options.swap_layers:
        swap_vision(checkpoint, options, on, executors["vision", None])
        if vision is not None:
            vision.follow()
    length = min(options.length or MOST_LENGTH, checkpoint.length)
    decoder.tabulate(length)
    cache = _cache(decoder, options, length)
    width = min(cache.needed(length), cache.blocks - 1)
    attention = _attention(cache, decoder, bucket(options.running), wide(width))
    lanes, lora = _lanes(on, partitions), None
    if options.max_loras:
        slots, rank = options.max_loras, options.max_lora_rank
        copies = options.max_merged_loras if options.lora_exact else 0
        lora = LoraRuntime(decoder, cache.store, checkpoint.targets, slots, rank, options.lora_ways, copies)
        if options.lora_policy != UNMERGE_ONLY:
            lora.weights.reserve()
    decode = DecodeWorker(decoder, attention, on, lanes, options.running, width, lora)
    workers: dict[Stage, StageWorker] = {
        "vision": VisionWorker(model, decoder, vision),
        "prefill": PrefillWorker(decoder, attention, lora),
        "decode": decode,
    }
    for split in lanes:
        for rows in sorted({bucket(each) for each in range(1, options.running + 1)}):
            executors["decode", split].submit(decode.prepare, rows, split).result()
    return workers, executors, EngineMemory(cache, lora)


def _attention(cache: PagedKVCache, decoder: FusedLlama, rows: int, width: int) -> PagedAttention:
    """The fastest form that takes this cache. rows, width: of the largest batch and its longest table."""
    if cache.store.device.type == "cpu":
        return RowAttention(cache, rows, width)
    if FlashInferAttention.takes(cache):
        return FlashInferAttention(cache, decoder.config.heads, rows, width)
    return VarlenAttention(cache) if VarlenAttention.takes(cache) else GatheredAttention(cache)


def _cache(decoder: FusedLlama, options: EngineOptions, length: int) -> PagedKVCache:
    """As many blocks as the memory holds, and never more than all requests and adapters could use."""
    config = decoder.config
    numbers = options.block * 2 * config.kv_heads * config.size_of_head
    size = torch.empty(0, dtype=decoder.dtype).element_size()
    block_bytes = config.layers * numbers * size
    held = (options.kv_mib << 20) // block_bytes
    most = most_admitted(options) * -(-length // options.block)
    rank = placed_rank(options.max_lora_rank, has_kernels(decoder.device))
    most += options.max_loras * slot_blocks(decoder_sites(config), rank, numbers)
    if held < 1:
        raise ValueError(f"engine: kv_mib: {options.kv_mib} MiB do not hold a block of {block_bytes} bytes")
    return PagedKVCache(
        config.layers, min(held, most) + 1, options.block, config.kv_heads, config.size_of_head,
        dtype=decoder.dtype, device=decoder.device,
    )  # fmt: skip


def _scheduler(options: EngineOptions, partitions: Partitions | None, model: str) -> StageScheduler:
    sizes = () if partitions is None else partitions.sizes
    profile = read_profile(Path(options.stage_profile)) if needs_profile(options, sizes) else None
    if profile is not None and profile.model != model:
        raise ValueError(f"engine: stage_profile: {options.stage_profile} is of '{profile.model}', not of '{model}'")
    if profile is not None and partitions is not None and profile.units != partitions.units:
        raise ValueError(
            f"engine: stage_profile: {options.stage_profile} is of a device of {profile.units} units, this one has"
            f" {partitions.units}"
        )
    made = make_scheduler(options, sizes, profile)
    with_adapters = make_lora_scheduler(made, options)
    return with_adapters if options.max_loras else made


def make_partitions(device: Device, sizes: Sequence[int] | None = None, owner: str = "engine") -> Partitions:
    """Of all cores of this thread, or of a GPU's SMs. sizes: of the first part; those that the device suggests unless
    given. owner: who divides the GPU, for the next one who tries. Raises DeviceError."""
    if isinstance(device, CpuDevice):
        return CpuPartitions(device, sorted(os.sched_getaffinity(0)), sizes)
    from auras_ros.device.cuda import CudaDevice
    from auras_ros.device.cuda_partition import CudaPartitions

    if not isinstance(device, CudaDevice):
        raise DeviceError(f"engine: scheduler: {device.tensors} cannot be divided")
    return CudaPartitions(device, sizes, owner)


def _in_turn() -> dict[Place, Executor]:
    return {(stage, None): InlineExecutor() for stage in STAGES}


def _placed(partitions: Partitions) -> dict[Place, Executor]:
    """Vision and prefill share a thread of their part: they never run side by side there."""
    whole = partitions.whole()
    executors: dict[Place, Executor] = {(stage, None): whole.executor(stage) for stage in STAGES}
    for size in partitions.sizes:
        executors["decode", size] = partitions.first(size).executor("decode")
        executors["vision", size] = executors["prefill", size] = partitions.second(size).executor("encode")
    return executors


def _lanes(device: Device, partitions: Partitions | None) -> dict[int | None, Lane]:
    if partitions is None:
        return {None: device.lane("decode")}
    lanes: dict[int | None, Lane] = {None: partitions.whole().lane("decode")}
    for size in partitions.sizes:
        lanes[size] = partitions.first(size).lane("decode")
    return lanes
