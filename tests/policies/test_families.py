"""What a family cannot do with what a manifest says is refused, not left undone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from auras_ros.policies.architecture import Architecture
from auras_ros.policies.families import FAMILIES
from auras_ros.policies.family import Trained

SHAPE = Architecture("tiny", 1, (24, 24), 1, 2, 4, 2)
ENCODER = {"features": 6, "widths": [8, 8, 8], "maps": 4, "targets": 2}
DECODER = {"layers": 1, "heads": 2, "width": 8, "hidden": 8, "tokens": 1, "bins": 8}
ACT = {"width": 16, "heads": 2, "hidden": 8, "encoder_layers": 1, "latent": 2}
RESNET = {"width": [4, 4, 4, 4], "depth": [1, 1, 1, 1], "norm": "batch"}


def trained(**changes: Any) -> Trained:
    return Trained(SHAPE, torch.zeros(2).double(), torch.ones(2).double(), **changes)


def test_center_and_scale_are_the_same_map_as_lower_and_upper() -> None:
    made = Trained(SHAPE, torch.tensor([-1.0, 2.0]).double(), torch.tensor([3.0, 8.0]).double())
    assert (made.center.tolist(), made.scale.tolist()) == ([1.0, 5.0], [2.0, 3.0])
    assert (made.chunk, trained(executed=(1, 2)).chunk) == (slice(0, 4), slice(1, 3))


@pytest.mark.parametrize("changes", [{"kind": "mean_std"}, {"executed": (1, 2)}])
def test_tokens_are_bins_of_a_range_and_all_of_them_actions(changes: dict[str, Any]) -> None:
    family = FAMILIES["autoregressive"]
    networks = family.networks(ENCODER, DECODER, SHAPE)
    family.policy(networks, trained(), {})
    with pytest.raises(ValueError, match="statistics must be min_max, and all actions are executed"):
        family.policy(networks, trained(**changes), {})


@pytest.mark.parametrize(
    ("encoder", "network", "shape", "said"),
    [
        ({**RESNET, "pool": "average"}, ACT, SHAPE, "encoder: 'pool' is unknown"),
        (RESNET, {**ACT, "layers": 2}, SHAPE, "network: 'layers' is unknown"),
        ({**RESNET, "type": "vit"}, ACT, SHAPE, "encoder: type 'vit' is not known; known: resnet18"),
        ([], ACT, SHAPE, "encoder and network must be objects"),
        (RESNET, ACT, Architecture("tiny", 1, (24, 24), 2, 2, 4, 2), "needs one or more cameras and a history of 1"),
        (RESNET, ACT, Architecture("tiny", 0, (24, 24), 1, 2, 4, 2), "needs one or more cameras"),
        (RESNET, ACT, Architecture("tiny", 1, (24, 24), 1, 2, 0, 2), "horizon: 0 is not a whole number"),
    ],
)
def test_an_act_that_there_is_not_is_refused_by_name(
    encoder: Any, network: Any, shape: Architecture, said: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        FAMILIES["act"].networks(encoder, network, shape)


def test_act_has_no_settings() -> None:
    family = FAMILIES["act"]
    networks = family.networks(RESNET, ACT, SHAPE)
    assert family.policy(networks, trained(), {}).steps == 1
    with pytest.raises(ValueError, match="key 'steps' is unknown"):
        family.policy(networks, trained(), {"steps": 1})
