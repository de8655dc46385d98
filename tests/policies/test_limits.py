"""What a manifest may ask for has bounds, wherever the number stands, and each is named.

Guards: a folder of a few bytes whose numbers make the agent build networks, or list steps, until somebody kills it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.policies.checkpoint import check_limits, load
from tests.policies import tiny
from tests.policies.spoil import edit_manifest

FAULTS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "horizon": (lambda m: m.update(horizon=4 * 10**8), "policy.json: horizon: 400000000 is more than 1024"),
    "history": (lambda m: m["observation"].update(history=10**8), "observation: history: 100000000 is more than 64"),
    "plan": (lambda m: m["plans"]["quick"].update(steps=10**9), "plans: quick: steps: 1000000000 is more than 1000"),
    "layers": (lambda m: m["network"].update(layers=257), "network: layers: 257 is more than 256"),
    "depth of a decoder": (lambda m: m["network"].update(decoder={"depth": 400}), "network: decoder: depth: 400 is"),
    "width": (lambda m: m["encoder"].update(width=65_537), "encoder: width: 65537 is more than 65536"),
    "one of several widths": (lambda m: m["network"].update(down_dims=[8, 1 << 62]), "network: down_dims: .* is more"),
    "vocabulary": (lambda m: m["network"].update(language={"vocabulary": 1 << 21}), "language: vocabulary: 2097152 is"),
    "a prompt's room": (lambda m: m["network"].update(prompt_limit=10**9), "network: prompt_limit: 1000000000 is more"),
    "a number without a text": (lambda m: m.update(horizon=10**4000), "horizon: a number of 13288 bits is more than"),
    "infinity": (lambda m: m["network"].update(width=float("inf")), "network: width: inf is more than"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_beyond_a_bound_is_refused_by_key(fault: str, written: Path, tmp_path: Path) -> None:
    change, said = FAULTS[fault]
    folder = Path(shutil.copytree(written, tmp_path / "spoilt"))
    edit_manifest(folder, change)
    with pytest.raises(CheckpointError, match=said):
        load(folder)


def test_a_description_that_nests_without_end_is_refused() -> None:
    nested: Any = 1
    for _ in range(20):
        nested = [nested]
    with pytest.raises(ValueError, match="network: is nested deeper"):
        check_limits({**tiny.MANIFEST, "network": nested})


def test_numbers_that_are_no_sizes_are_left_alone() -> None:
    network = {"rope_theta": 1e6, "prompt": [250_000], "numbers": [[250_000]], "vocabulary": 257_152, "hidden": 65_536}
    check_limits({**tiny.MANIFEST, "network": {"language": network}})
