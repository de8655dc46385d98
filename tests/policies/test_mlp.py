"""Behaviour cloning's family: what its manifest may say. Its numbers are compared in loaders/test_robomimic.py.

Guards: sizes that are guessed; a policy without cameras that is given one and looks away.
"""

from __future__ import annotations

from typing import Any

import pytest

from auras_ros.policies.architecture import Architecture
from auras_ros.policies.families import find
from auras_ros.policies.networks import build_encoder

NO_CAMERAS = {"type": "none"}


def architecture(**changes: Any) -> Architecture:
    sizes: dict[str, Any] = {"cameras": 0, "image_px": (0, 0), "history": 1, "state": 3, "horizon": 1, "actions": 2}
    return Architecture("tiny", **{**sizes, **changes})


@pytest.mark.parametrize(
    ("network", "changes", "said"),
    [
        ({"hidden": [4]}, {"horizon": 2}, "horizon: 2 is not 1"),
        ({"hidden": []}, {}, "hidden: \\[\\] is not a list of widths"),
        ({"hidden": [4, 0]}, {}, "hidden: 0 is not a whole number above zero"),
        ({"hidden": [4] * 300}, {}, "layers of hidden: 300 is more than 256"),
        ({"hidden": [4], "modes": 0}, {}, "modes: 0 is not a whole number above zero"),
        ({"hidden": [4], "widths": 3}, {}, "network: 'widths' is unknown"),
        ({}, {}, "network: 'hidden' is missing"),
        ({"hidden": [4]}, {"cameras": 1}, "encoder: type 'none' sees nothing of 1 cameras"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(network: dict[str, Any], changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        find("mlp").networks(NO_CAMERAS, network, architecture(**changes))


def test_the_encoder_of_no_cameras_has_no_sizes() -> None:
    assert build_encoder(NO_CAMERAS, 0).features == 0
    with pytest.raises((TypeError, ValueError), match="features"):
        build_encoder({**NO_CAMERAS, "features": 3}, 0)
