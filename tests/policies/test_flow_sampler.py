"""The sampler of flow matching: a straight path is followed exactly, whatever the number of steps.

Guards: time that runs the other way; rows of one batch that influence each other; a plan that follows as a velocity
what a network predicts as noise.
"""

from __future__ import annotations

import pytest
import torch

from auras_ros.policies.flow_sampler import TIMESTEPS, FlowSampler
from tests.policies import tiny


@pytest.mark.parametrize("steps", [1, 3, 5, 100])
def test_the_velocity_of_a_straight_path_leads_to_its_end(steps: int) -> None:
    sampler, random = FlowSampler(steps), torch.Generator().manual_seed(steps)
    noise, actions = torch.randn(2, 4, 16, 3, generator=random)
    actions, sample = actions.clamp(-1, 1), noise
    for number in range(steps):
        index = torch.full((4,), number)
        time = sampler.timesteps[index] / TIMESTEPS
        torch.testing.assert_close(sample, actions + time[:, None, None] * (noise - actions))
        torch.testing.assert_close(sampler.clean(sample, noise - actions, index), actions, rtol=0, atol=1e-5)
        sample = sampler.step(sample, noise - actions, None, index)
    torch.testing.assert_close(sample, actions, rtol=0, atol=1e-5)


def test_rows_take_the_step_that_is_theirs() -> None:
    sampler, random = FlowSampler(5), torch.Generator().manual_seed(0)
    sample, predicted = torch.randn(2, 5, 16, 3, generator=random)
    together = sampler.step(sample, predicted, None, torch.arange(5))
    alone = [sampler.step(sample[i : i + 1], predicted[i : i + 1], None, torch.tensor([i])) for i in range(5)]
    assert torch.equal(together, torch.cat(alone))
    assert together[4].abs().max() <= 1.0
    assert together[:4].abs().max() > 1.0


@pytest.mark.parametrize("steps", [0, 1001, 2.0, True])
def test_a_number_of_steps_that_cannot_be_is_refused(steps: int) -> None:
    with pytest.raises(ValueError, match="flow: steps must be a whole number in"):
        FlowSampler(steps)


def test_a_plan_must_fit_what_the_network_predicts() -> None:
    flow, ddim = {"sampler": "flow", "steps": 5}, {"sampler": "ddim", "steps": 5}
    velocity = tiny.checkpoint(prediction="velocity", plans={"flow5": flow, "ddim": ddim})
    policy = velocity.policy("flow5")
    assert (policy.steps, policy.noise_shape) == (5, (1, 8, 2))
    with pytest.raises(ValueError, match="prediction must be 'sample' or 'epsilon', got 'velocity'"):
        velocity.policy("ddim")
    with pytest.raises(ValueError, match="follows a velocity, which this network does not predict"):
        tiny.checkpoint(plans={"flow5": flow}).policy("flow5")
    with pytest.raises(ValueError, match="flow: key 'spacing' is unknown"):
        tiny.checkpoint(prediction="velocity", plans={"flow5": {**flow, "spacing": "leading"}}).policy("flow5")
