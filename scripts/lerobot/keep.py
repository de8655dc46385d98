"""Copies those of the folders that `make test-lerobot` wrote into tests/ which git has.

    python scripts/lerobot/keep.py out/lerobot

Of each kind one: all would be several MB. What differs between releases is kept of each release.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

KEPT = Path(__file__).parents[2] / "tests" / "policies" / "loaders" / "data" / "lerobot_releases"
EVERY_RELEASE = ("pi0_wide_trained", "pi05_wide_trained")
BESIDE = {
    "0.5.1": ("pi0_relative",),  # its step has another name
    "0.6.1": (
        "act_wide_trained", "diffusion_wide_trained", "smolvla_wide_trained", "act_still", "diffusion_still",
        "pi05_still", "pi0_relative", "pi05_relative", "smolvla_lora", "smolvla_lora_base",
    ),
}  # fmt: skip


def main(written: Path) -> None:
    for release in sorted(path.name for path in written.iterdir()):
        for name in (*EVERY_RELEASE, *BESIDE.get(release, ())):
            target = KEPT / release / name
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(written / release / name, target)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
