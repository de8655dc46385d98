"""The sizes of the pi0, pi0.5 and SmolVLA fixtures in place of those that LeRobot's names of networks mean.

The fixtures' scripts replace the same sizes in LeRobot's own code.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from auras_ros.models.presets import SMOLVLAS
from auras_ros.policies.loaders import lerobot_pi, lerobot_smolvla
from tests.policies.loaders.reference import DATA

FOLDERS = ("lerobot_pi0", "lerobot_pi05", "lerobot_smolvla", "lerobot_smolvla_tokens")
WORDS = 82


def shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    """For one test: what the names in config.json mean is tiny."""
    gemmas = {
        name: replace(
            lerobot_pi.GEMMAS[name], vocabulary=WORDS, width=width, layers=2, hidden=hidden, heads=2, head_dim=16
        )
        for name, width, hidden in (("gemma_2b", 32, 48), ("gemma_300m", 16, 24))
    }
    vision = replace(lerobot_pi.VISION, width=24, depth=2, heads=2, hidden=32)
    monkeypatch.setattr(lerobot_pi, "VISION", vision)
    monkeypatch.setattr(lerobot_pi, "GEMMAS", gemmas)
    tiny = SMOLVLAS["smolvla-tiny"]
    vlm = lerobot_smolvla.VlmSizes(tiny.vision, replace(tiny.language, vocabulary=WORDS, layers=4), tiny.fold)
    monkeypatch.setattr(lerobot_smolvla, "VLMS", dict.fromkeys(lerobot_smolvla.VLMS, vlm))
    monkeypatch.setattr(lerobot_smolvla, "expert_hidden", lambda width: 2 * width)


def shrink_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with the sizes of the folders that `lerobot_matrix.py` writes."""
    gemmas = {
        name: replace(
            lerobot_pi.GEMMAS[name], vocabulary=WORDS, width=width, layers=2, hidden=hidden, heads=8, head_dim=4
        )
        for name, width, hidden in (("gemma_2b", 16, 24), ("gemma_300m", 8, 16))
    }
    monkeypatch.setattr(lerobot_pi, "VISION", replace(lerobot_pi.VISION, width=8, depth=2, heads=2, hidden=16))
    monkeypatch.setattr(lerobot_pi, "GEMMAS", gemmas)
    tiny = SMOLVLAS["smolvla-tiny"]
    vision = replace(tiny.vision, width=16, depth=2, heads=2, hidden=24)
    language = replace(tiny.language, vocabulary=WORDS, width=16, layers=4, hidden=24, heads=4, kv_heads=2, head_dim=4)
    vlm = lerobot_smolvla.VlmSizes(vision, language, tiny.fold)
    monkeypatch.setattr(lerobot_smolvla, "VLMS", dict.fromkeys(lerobot_smolvla.VLMS, vlm))
    monkeypatch.setattr(lerobot_smolvla, "expert_hidden", lambda width: 2 * width)


def copied(name: str, to: Path) -> Path:
    """A fixture that a test may spoil."""
    return Path(shutil.copytree(DATA / name, to / name))
