"""The noise tape: the same for the same (seed, request), another one for any other.

Guards: a generator that drops the high bits of its seed, so that two seeds share their tapes.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from auras_ros.pipeline.noise import noise_tape

SEEDS, REQUESTS = st.integers(0, 2**31 - 1), st.integers(0, 2**32 - 1)


@given(SEEDS, REQUESTS)
@settings(max_examples=30, deadline=None)
def test_the_same_numbers_give_the_same_tape(seed: int, request: int) -> None:
    tape = noise_tape((3, 2), seed, request)
    assert tape.dtype == torch.float32
    assert tape.shape == (3, 2)
    assert torch.equal(tape, noise_tape((3, 2), seed, request))


@given(st.lists(st.tuples(SEEDS, REQUESTS), min_size=2, max_size=8, unique=True))
@settings(max_examples=30, deadline=None)
def test_other_numbers_give_another_tape(pairs: list[tuple[int, int]]) -> None:
    assert len({tuple(noise_tape((8,), *pair).tolist()) for pair in pairs}) == len(pairs)


def test_neighbouring_seeds_and_requests_share_nothing() -> None:
    pairs = [(seed, request) for seed in (0, 1, 2, 2**31 - 1) for request in (0, 1, 2, 2**32 - 1)]
    assert len({tuple(noise_tape((8,), *pair).tolist()) for pair in pairs}) == len(pairs)


def test_a_tape_ignores_and_leaves_alone_the_global_generator() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = noise_tape((4,), 0, 0)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(noise_tape((4,), 0, 0), first)


def test_a_tape_is_standard_normal() -> None:
    tape = noise_tape((100, 16, 20), 3, 4)
    assert float(tape.mean()) == pytest.approx(0, abs=0.03)
    assert float(tape.std()) == pytest.approx(1, abs=0.03)
    assert float((tape.abs() < 1).float().mean()) == pytest.approx(0.683, abs=0.02)


@pytest.mark.parametrize(("seed", "request_number"), [(-1, 0), (2**31, 0), (0, -1), (0, 2**32)])
def test_numbers_out_of_bounds_are_refused(seed: int, request_number: int) -> None:
    with pytest.raises(ValueError, match=f"got {seed} and {request_number}"):
        noise_tape((1,), seed, request_number)
