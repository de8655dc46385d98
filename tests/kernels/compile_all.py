"""`python -m tests.kernels.compile_all`: every tiling of the catalogue for every GPU, and which of them do not fit."""

from __future__ import annotations

import sys

from auras_ros.kernels.lora_ahead import SHARED_KIB, compiled
from auras_ros.kernels.lora_tilings import CATALOGUE


def main() -> int:
    bad = 0
    for capability in SHARED_KIB:
        for phase, tilings in CATALOGUE.items():
            for tiling in tilings:
                made = compiled(phase, tiling, capability, parts=3)
                bad += not made.fits(capability)
                print(
                    f"sm_{capability} {phase} {tiling.name}: {made}{'' if made.fits(capability) else ' DOES NOT FIT'}"
                )
    return min(bad, 1)


if __name__ == "__main__":
    sys.exit(main())
