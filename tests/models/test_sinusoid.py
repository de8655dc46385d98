"""The timestep's embedding: sines, then cosines, of frequencies from 1 to 1/10000.

Guards: halves swapped, or frequencies of another base, which published weights would not bear.
"""

from __future__ import annotations

import math

import pytest
import torch

from auras_ros.models.sinusoid import Sinusoid


def test_sines_then_cosines_of_falling_frequencies() -> None:
    got = Sinusoid(8)(torch.tensor([0, 7, 159]))
    frequencies = [10_000 ** (-i / 3) for i in range(4)]
    expected = [[f(t * w) for f in (math.sin, math.cos) for w in frequencies] for t in (0, 7, 159)]
    torch.testing.assert_close(got, torch.tensor(expected), rtol=1e-4, atol=1e-4)


def test_the_frequencies_are_no_weights() -> None:
    assert not Sinusoid(8).state_dict()


@pytest.mark.parametrize("width", [2, 7])
def test_a_width_that_cannot_be_halved_is_refused(width: int) -> None:
    with pytest.raises(ValueError, match=f"width {width} is not an even number"):
        Sinusoid(width)
