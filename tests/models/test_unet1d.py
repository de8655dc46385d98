"""The noise network: its shapes, its timestep embedding, and that rows of a batch are independent.

Guards: rows at different diffusion steps that leak into each other; a condition that is not used.
"""

from __future__ import annotations

import math

import pytest
import torch

from auras_ros.models.unet1d import ConditionalUnet1d, TimestepEmbedding

CONDITION = 10


def tiny() -> ConditionalUnet1d:
    torch.manual_seed(0)
    return ConditionalUnet1d(2, CONDITION, (8, 8, 16)).eval()


def inputs(rows: int, horizon: int = 8) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(rows)
    actions = torch.randn(rows, horizon, 2, generator=random)
    return actions, torch.arange(rows) * 30, torch.randn(rows, CONDITION, generator=random)


@pytest.mark.parametrize("horizon", [4, 8, 16])
def test_shape(horizon: int) -> None:
    assert tiny()(*inputs(3, horizon)).shape == (3, horizon, 2)


@pytest.mark.parametrize("horizon", [6, 9])
def test_a_horizon_that_cannot_be_halved_twice_is_refused(horizon: int) -> None:
    with pytest.raises(RuntimeError):
        tiny()(*inputs(1, horizon))


@torch.no_grad()
def test_rows_of_a_batch_do_not_see_each_other() -> None:
    network, (actions, timestep, condition) = tiny(), inputs(3)
    together = network(actions, timestep, condition)
    for row in range(3):
        one = slice(row, row + 1)
        alone = network(actions[one], timestep[one], condition[one])
        torch.testing.assert_close(together[one], alone, rtol=1e-4, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("changed", ["actions", "timestep", "condition"])
def test_every_input_matters(changed: str) -> None:
    network, (actions, timestep, condition) = tiny(), inputs(1)
    before = network(actions, timestep, condition)
    given = {"actions": actions, "timestep": timestep, "condition": condition}
    given[changed] = given[changed] + 1
    assert (network(*given.values()) - before).abs().max() > 1e-4


def test_timestep_embedding_is_sines_then_cosines_of_falling_frequencies() -> None:
    embedding = TimestepEmbedding(8)
    embedding.mlp = torch.nn.Identity()  # type: ignore[assignment]
    got = embedding(torch.tensor([0, 7]))
    frequencies = [10_000 ** (-i / 3) for i in range(4)]
    expected = [[f(t * w) for f in (math.sin, math.cos) for w in frequencies] for t in (0, 7)]
    torch.testing.assert_close(got, torch.tensor(expected))


def test_the_frequencies_are_no_part_of_the_weights() -> None:
    assert not [name for name in tiny().state_dict() if "frequencies" in name]
