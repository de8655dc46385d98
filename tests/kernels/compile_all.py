"""`python -m tests.kernels.compile_all [CAPABILITY ...]`: every tiling of the catalogue, and those of the rule, as the
engine launches them, for every GPU: says which of them do not fit, and how many do. Where no size is a multiple of 16
some may spill."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from auras_ros.kernels.lora_ahead import ENGINE, SHARED_KIB, Specialization, compiled
from auras_ros.kernels.lora_batch import LoraShape
from auras_ros.kernels.lora_tilings import CATALOGUE, Tiling, rule

TOKENS, RANKS = (4, 64, 256, 4096), (8, 16, 64)


def launches() -> Iterator[tuple[str, Tiling, Specialization]]:
    """Phase, tiling and the rest of each."""
    for phase, tilings in CATALOGUE.items():
        rules = [rule(LoraShape(phase, tokens, rank, 4096, 4096, 3, 4)) for tokens in TOKENS for rank in RANKS]
        for tiling in dict.fromkeys([*tilings, *rules]):
            for launch in ENGINE[phase]:
                yield phase, tiling, launch


def main(capabilities: list[int]) -> int:
    count, bad = 0, 0
    for capability in capabilities:
        for phase, tiling, launch in launches():
            made = compiled(phase, tiling, capability, launch, parts=3)
            count += 1
            if not (made.fits(capability) if launch.divisible else made.starts(capability)):
                bad += 1
                print(f"sm_{capability} {phase} {tiling.name} {launch}: {made} DOES NOT FIT", flush=True)
    print(f"{count - bad} of {count} launches fit: sm_{', sm_'.join(map(str, capabilities))}")
    return min(bad, 1)


if __name__ == "__main__":
    sys.exit(main([int(each) for each in sys.argv[1:]] or list(SHARED_KIB)))
