"""Weights in huge pages, where there are some.

Guards: numbers or addresses that change; a system without them that fails; a claim that nothing stands behind.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from auras_ros.models import huge_pages
from auras_ros.models.huge_pages import HUGE, move_to_huge_pages

LARGE = torch.arange(3 * HUGE // 4)  # int64: six pages


def kib_in_huge_pages(address: int) -> int:
    """Of the mapping that has this address."""
    within = False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        if (found := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)) is not None:
            within = int(found[1], 16) <= address < int(found[2], 16)
        elif within and line.startswith("AnonHugePages:"):
            return int(line.split()[1])
    raise AssertionError(f"no mapping has {address:#x}")


def test_numbers_and_address_stay() -> None:
    data = LARGE.clone()
    address = data.data_ptr()
    moved = move_to_huge_pages(data)
    assert data.data_ptr() == address
    assert torch.equal(data, LARGE)
    if moved:
        assert kib_in_huge_pages(address + HUGE) >= HUGE >> 10


@pytest.mark.parametrize("advise", [None, lambda *_: -1])
def test_a_system_without_them_goes_on(advise: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huge_pages, "_advise", lambda: advise)
    data = LARGE.clone()
    assert not move_to_huge_pages(data)
    assert torch.equal(data, LARGE)


def test_what_is_whole_within_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """No byte of a neighbour."""
    asked: list[tuple[int, ...]] = []
    monkeypatch.setattr(huge_pages, "_advise", lambda: lambda *given: asked.append(given) or 0)
    data = LARGE.clone()
    assert move_to_huge_pages(data)
    ((first, size, _),) = asked
    assert first % HUGE == size % HUGE == 0
    assert data.data_ptr() <= first
    assert first + size <= data.data_ptr() + 8 * len(data)
    assert size >= 8 * len(data) - 2 * HUGE
    assert not move_to_huge_pages(data[: 2 * HUGE // 8 - 1])
    assert not move_to_huge_pages(data.view(2, -1).t())
    assert len(asked) == 1
