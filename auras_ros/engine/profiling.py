"""A checkpoint's stages on a device become a `StageProfile` (Nova III-C, V-B), through the engine that will serve it.

Every time is that of whole forwards in the thread that runs them. Trials are interleaved in rounds of a random order,
so what slows the machine slows all of them, and a first round warms up and is not counted.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from statistics import median

import numpy as np

from auras_ros.checkpoints.vlm.chat import VlmPrompt
from auras_ros.checkpoints.vlm.open import VlmCheckpoint
from auras_ros.device.lane import Device
from auras_ros.device.partition import Partitions
from auras_ros.engine.build import make_engine
from auras_ros.engine.forwards import ForwardLog
from auras_ros.engine.options import EngineOptions
from auras_ros.engine.probing import PhaseTimes, ProbePhase, Prober, ProbeScheduler, ProbeTrial, Round
from auras_ros.engine.profile import CorunTimes, StageProfile

PIECES = (16, 32, 64, 128, 256, 512)  # tokens of a prefill: a prompt's chunks, and packed prompts
JOINED = 64  # tokens of a prefill within which requests decode, theirs included
QUESTION = "What is to be done next?"
VISION, PREFILL = ProbePhase("vision"), ProbePhase("prefill")  # alone, on the whole device
HYBRID = ProbePhase("prefill", joined=True, size=JOINED)


def open_prober(
    checkpoint: VlmCheckpoint,
    device: Device,
    partitions: Partitions,
    *,
    rows: int = 4,
    probes: int = 3,
    image_px: int = 336,
    seed: int = 0,
) -> Prober:
    """An engine to be profiled, which closes the partitions and takes the checkpoint over. rows: fillers, at most.
    image_px: side of the probes' images, whose pixels are random. Raises what `make_engine` raises, and PictureError
    or PromptError."""
    pixels = np.random.default_rng(seed)
    message = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": QUESTION}]}

    def image_prompt() -> VlmPrompt:
        return checkpoint.prompts.chat([message], [pixels.integers(0, 256, (image_px, image_px, 3), np.uint8)])

    log: ForwardLog = []
    scheduler = ProbeScheduler()
    options = EngineOptions(running=rows + probes, prefix_cache=False, image_cache_mib=0)
    engine = make_engine(checkpoint, options, device=device, scheduler=scheduler, partitions=partitions, log=log)
    with ExitStack() as failing:
        failing.callback(engine.close)
        prober = Prober(engine, scheduler, log, engine.wait, image_prompt, seed=seed)
        failing.pop_all()
    return prober


def beside(phase: ProbePhase, split: int | None) -> ProbePhase:
    """VISION or PREFILL with decode beside it. split: None is without a partition."""
    return replace(phase, beside=True, split=split)


def decode(rows: int, split: int | None = None) -> ProbePhase:
    """Alone, on the whole device or its part of a split."""
    return ProbePhase("decode", size=rows, split=split)


def trials(splits: Sequence[int], rows: int, probes: int, longest: int) -> list[ProbeTrial]:
    """All that a profile needs. longest: tokens of a prompt. Raises ValueError for rows that leave no decode_row or
    nothing of a prefill to join."""
    if not 2 <= rows < JOINED:
        raise ValueError(f"profiling: rows: from 2 to {JOINED - 1}, got {rows}")
    if longest < JOINED:
        raise ValueError(f"profiling: a prefill of {JOINED} tokens is needed, but {longest} is the model's longest")
    found = [ProbeTrial((VISION, PREFILL), probes=probes)]
    for split in (None, *splits):
        found.append(ProbeTrial((beside(VISION, split), beside(PREFILL, split)), rows, probes))
    found += [ProbeTrial((ProbePhase("prefill", size=size),), 0, probes, size) for size in PIECES if size <= longest]
    found.append(ProbeTrial((HYBRID,), rows, probes, JOINED - rows))
    return [*found, ProbeTrial((decode(1),), 1), ProbeTrial((decode(rows),), rows)]


def trials_alone(splits: Sequence[int], rows: int, probes: int) -> list[ProbeTrial]:
    """Each stage alone on its part of each split: a profile does not have these."""
    parts = [(replace(VISION, split=split), replace(PREFILL, split=split)) for split in splits]
    return [ProbeTrial(phases, probes=probes) for phases in parts] + [
        ProbeTrial((decode(rows, split),), rows) for split in splits
    ]


def rounds(
    prober: Prober, todo: Sequence[ProbeTrial], count: int, order: random.Random, before: Callable[[int], None]
) -> Iterator[Round]:
    """Each time all trials in another order. before: called before each trial with the round's number, of which 0 warms
    up; what it raises ends the rounds."""
    for number in range(count + 1):
        found: dict[ProbePhase, PhaseTimes] = {}
        for trial in order.sample(todo, len(todo)):
            before(number)
            found |= prober.run(trial)
        if number:
            yield found


def profile_of(found: Sequence[Round], *, device: str, model: str, units: int, prompt: int, rows: int) -> StageProfile:
    """Of each field the median over the rounds of the median of a round's forwards (a round in which they are quick has
    more of them):

    vision, prefill: of images, whole prompts and PIECES, alone on the whole device; one request a forward.
    decode: of one row, alone; decode_row: what each further one of `rows` takes more.
    token_row: what `rows` that decode within a prefill of JOINED tokens take more than so many tokens of a prompt.
    corun, shared: of vision and prefill the forwards beside decodes of `rows`; of decode the slowdown beside them, as
    a multiple of `decode`."""

    def own(phase: ProbePhase) -> float:
        return _median(each[phase].own_ms for each in found)

    def decode_beside(phase: ProbePhase) -> float:
        return one * _median(each[phase].decode_ms for each in found) / all_rows

    def corun(split: int | None) -> CorunTimes:
        vision, whole = beside(VISION, split), beside(PREFILL, split)
        return CorunTimes(own(vision), own(whole), decode_beside(vision), decode_beside(whole))

    one, all_rows = own(decode(1)), own(decode(rows))
    pieces = (ProbePhase("prefill", size=size) for size in PIECES)
    prefill = {phase.size: own(phase) for phase in pieces if phase in found[0]} | {prompt: own(PREFILL)}
    splits = sorted(phase.split for phase in found[0] if phase == beside(VISION, phase.split) and phase.split)
    return StageProfile(
        device=device,
        model=model,
        units=units,
        vision=own(VISION),
        prefill=dict(sorted(prefill.items())),
        prompt=prompt,
        decode=one,
        decode_row=max(all_rows - one, 0.0) / (rows - 1),
        token_row=max(own(HYBRID) - prefill[JOINED], 0.0) / rows,
        corun={split: corun(split) for split in splits},
        shared=corun(None),
    )


def _median(times: Iterable[Sequence[float]]) -> float:
    return median(median(each) for each in times)
