"""The agent in every mode, from its parameters alone: chunks come, and each says what its stages saw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.nodes.agent_child import running

MODES: dict[str, tuple[dict[str, Any], int]] = {
    "seq": ({}, 1),
    "dec": ({}, 1),
    "par": ({"workers": 2}, 1),
    "auras": ({"pp_generation": 4, "alpha": 0.5}, 4),
}


@pytest.mark.parametrize("mode", MODES)
def test_chunks_come_and_say_what_their_stages_saw(mode: str, checkpoint: str, tmp_path: Path) -> None:
    settings, stages = MODES[mode]
    with running(checkpoint, tmp_path, mode=mode, **settings) as agent:
        agent.chunk(f"chunks in mode {mode}")
        chunks = agent.watch.chunks
        agent.watch.until(lambda: len(chunks) >= 5, "five chunks")
        requests = [chunk["request"] for chunk in chunks]
        assert len(set(requests)) == len(requests)
        ages = chunks[-1]["context_age_ns"]
        assert len(ages) == stages
        assert all(age > 0 for age in ages)
        assert "mode=" + mode in chunks[-1]["plan"] or mode == "seq"
