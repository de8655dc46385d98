"""Observations that are always at hand."""

from __future__ import annotations

from itertools import pairwise

import torch

from auras_ros.measure.executors import Bench


def test_observations_are_always_newer_and_never_the_one_before(bench: Bench) -> None:
    looks = [bench.feed(5) for _ in range(20)]
    stamps = [seen.origin.mono_ns for seen in looks]
    assert stamps == sorted(set(stamps))
    assert not any(torch.equal(a.images, b.images) for a, b in pairwise(looks))
    assert all(seen.images.abs().max() > 0.1 for seen in looks)
