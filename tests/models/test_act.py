"""ACT's own parts against torch's: positions, layers before and after normalisation, one memory for the whole chunk.

The whole network against LeRobot's own is tests/policies/loaders/test_lerobot_networks.py.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from auras_ros.models.act import ActConfig, ActDecoder, ActDecoderLayer, ActEncoder, ActEncoderLayer, positions_2d
from auras_ros.models.resnet import ResNet18

TINY = {"width": 16, "heads": 2, "hidden": 24, "encoder_layers": 1, "decoder_layers": 1, "latent": 4}


def test_positions_are_sinusoids_of_scaled_places() -> None:
    """Carion et al. 2020: rows in the first half, sine and cosine in turn, places from 1 scaled to two pi."""
    height, width, size = 2, 3, 8
    got = positions_2d(height, width, size).view(height, width, size)
    for y in range(height):
        for x in range(width):
            for i in range(size):
                place, last = ((y + 1, height), (x + 1, width))[i >= size // 2]
                j = i % (size // 2)
                angle = place / last * 2 * math.pi / 10_000 ** (2 * (j // 2) / (size // 2))
                expected = math.cos(angle) if j % 2 else math.sin(angle)
                assert got[y, x, i] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("pre_norm", [True, False])
@torch.no_grad()
def test_without_positions_the_layers_are_torchs_own(activation: str, pre_norm: bool) -> None:
    torch.manual_seed(0)
    config = ActConfig(**TINY, activation=activation, pre_norm=pre_norm)  # type: ignore[arg-type]
    x, memory, none = torch.randn(2, 5, 16), torch.randn(2, 7, 16), torch.zeros(1, 1, 16)
    common = {"dropout": 0.0, "activation": activation, "batch_first": True, "norm_first": pre_norm}
    theirs = nn.TransformerEncoderLayer(16, 2, 24, **common).eval()  # type: ignore[arg-type]
    ours = ActEncoderLayer(config)
    ours.load_state_dict(theirs.state_dict())
    torch.testing.assert_close(ours(x, none), theirs(x))
    decoding = nn.TransformerDecoderLayer(16, 2, 24, **common).eval()  # type: ignore[arg-type]
    mine = ActDecoderLayer(config)
    mine.load_state_dict(decoding.state_dict())
    torch.testing.assert_close(mine(x, none, memory, none), decoding(x, memory))


@torch.no_grad()
def test_positions_go_into_queries_and_keys_alone() -> None:
    """A constant shift of all keys changes no attention; of values it would."""
    torch.manual_seed(0)
    layer, x = ActEncoderLayer(ActConfig(**TINY)), torch.randn(1, 5, 16)
    layer.self_attn.in_proj_weight[:16] = 0  # queries do not depend on the token
    shift = torch.randn(1, 1, 16)
    torch.testing.assert_close(layer(x, shift), layer(x, torch.zeros(1, 1, 16)))


@torch.no_grad()
def test_blocks_one_after_another_are_the_encoder() -> None:
    encoder = ActEncoder(ActConfig(**TINY), ResNet18((4, 4, 4, 8), norm="batch"), 2, 3, (64, 96)).eval()
    images, state = torch.randn(2, 2, 3, 64, 96), torch.randn(2, 3)
    memory = encoder(images, state)
    assert memory.shape == (2, 1 + 1 + 2 * 2 * 3, 16) == (2, *encoder.positions().shape[1:])
    carried: tuple[torch.Tensor, ...] = (images, state)
    for _, block in encoder.blocks():
        carried = block(*carried)
    assert torch.equal(carried[0], memory)
    for row in range(2):
        torch.testing.assert_close(memory[row : row + 1], encoder(images[row : row + 1], state[row : row + 1]))


@torch.no_grad()
def test_a_policy_without_state_has_no_token_for_it() -> None:
    encoder = ActEncoder(ActConfig(**TINY), ResNet18((4, 4, 4, 8), norm="batch"), 1, 0, (32, 32)).eval()
    memory = encoder(torch.randn(1, 1, 3, 32, 32), torch.zeros(1, 0))
    assert memory.shape == (1, 2, 16)
    assert ActDecoder(ActConfig(**TINY), 5, 3)(memory, encoder.positions()).shape == (1, 5, 3)


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"width": 18}, "width: 18 is not a multiple of 4 and of heads, 2"),
        ({"heads": 3}, "width: 16 is not a multiple of 4 and of heads, 3"),
        ({"latent": 0}, "latent: 0 is not a whole number above zero"),
        ({"hidden": 2.0}, "hidden: 2.0 is not"),
        ({"activation": "glu"}, "activation: 'glu' is not known; known: relu, gelu"),
        ({"pre_norm": 1}, "pre_norm: 1 is not true or false"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_by_name(sizes: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=f"act: {said}"):
        ActConfig(**{**TINY, **sizes})  # type: ignore[arg-type]
