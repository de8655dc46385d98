"""Prints which operators take an engine's CPU time while eight requests are answered, six of them with an image:
`python -m tests.engine.operator_shares FOLDER [THREADS]`. One thread unless given; the folders of `auras bench
peers-vlm` lie in its --setup, under models/. What takes less than a hundredth is not shown."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from auras_ros.checkpoints.vlm.open import open_vlm
from auras_ros.engine.build import make_engine
from auras_ros.engine.options import EngineOptions
from auras_ros.engine.request import VlmRequest
from tests.engine.making import answers, chat

REQUESTS, WITH_IMAGE, IMAGE_PX, TOKENS = 8, 6, 336, 40
TEXT = "what is on the table? " + "abcdefg " * 25


def main(folder: Path, threads: int) -> None:
    torch.set_num_threads(threads)
    options = EngineOptions(prefix_cache=False, image_cache_mib=0)
    with closing(make_engine(open_vlm(folder, "float32"), options)) as engine:
        for seed in (0, REQUESTS):  # the first ones are not measured
            prompts = [
                chat(engine.checkpoint, TEXT, [(IMAGE_PX, IMAGE_PX)] * (number < WITH_IMAGE), seed + number)
                for number in range(REQUESTS)
            ]
            requests = [VlmRequest(prompt, max_tokens=TOKENS, ignore_eos=True) for prompt in prompts]
            with profile(activities=[ProfilerActivity.CPU]) as measured:
                answers(engine, requests)
    found = measured.key_averages()
    whole = sum(each.self_cpu_time_total for each in found)
    print("| operator | share of the CPU time | calls |\n|---|---|---|")
    for each in sorted(found, key=lambda each: -each.self_cpu_time_total):
        if each.self_cpu_time_total > whole / 100:
            print(f"| {each.key} | {each.self_cpu_time_total / whole:.1%} | {each.count:,} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
