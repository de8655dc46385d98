"""A policy on a device whose memory cannot hold all of its weights: runs that show which weights a request needs.

`device.offload` decides which weights are offloaded, and brings them back. Nothing here depends on frames.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from auras_ros.device import DeviceError
from auras_ros.device.offload import Offload, PlacedWeights, place, placed_before
from auras_ros.device.weights import Use
from auras_ros.pipeline.perception import run_blocks
from auras_ros.policies.family import LoadedPolicy
from auras_ros.policies.policy import BlockPolicy, CausalPolicy
from auras_ros.policies.precision import cast


def place_policy(
    policy: LoadedPolicy, device: torch.device, offload: Offload | None, dtype: torch.dtype | None = None
) -> PlacedWeights:
    """Move a policy to `device`, all of it unless `offload` is given, its weights in this type (None: unchanged).
    Raises DeviceError by name."""
    if dtype is not None and isinstance(policy, torch.nn.Module):
        cast(policy, dtype)
    if not isinstance(policy, torch.nn.Module):
        if offload is not None:
            raise DeviceError(f"max_memory_mb: {type(policy).__name__} is no torch.nn.Module")
        policy.to(device)
        return PlacedWeights(0)
    if offload is None:
        policy.to(device)
        return placed_before(policy)
    return place(policy, device, offload, lambda: uses(policy))


@torch.no_grad()
def uses(policy: LoadedPolicy) -> Sequence[Use]:
    """Everything that stages run of a policy, on one random observation in host memory, and how often a request runs
    it."""
    images, state = policy.example(1, torch.Generator().manual_seed(0))
    context = policy.perceive(images, state)
    found = [Use(_quietly(lambda: policy.perceive(images, state)))]
    if isinstance(policy, BlockPolicy):
        blocks = policy.perception_blocks()
        found.append(Use(_quietly(lambda: run_blocks(blocks, (images, state))), 0))
    if isinstance(policy, CausalPolicy):
        return [*found, *_causal(policy, context)]
    return [*found, Use(_quietly(lambda: _step(policy, context)), policy.steps)]


def _step(policy: LoadedPolicy, context: Tensor) -> None:
    noise = torch.zeros((1, *policy.noise_shape))
    index = torch.zeros(1, dtype=torch.int64)
    policy.finish(policy.step(policy.begin(noise), context, index))


def _causal(policy: CausalPolicy, context: Tensor) -> list[Use]:
    """Decoding token by token, and the forward that several requests share, with and without a KV cache."""
    prefix = context.shape[1]
    tokens = policy.begin(torch.zeros((1, *policy.noise_shape)))[0]

    def merged() -> None:
        policy.refresh(tokens, context, policy.steps)
        policy.refresh(tokens, context, policy.steps, policy.workspace(1, prefix), torch.arange(prefix))

    def alone() -> None:
        policy.finish(policy.complete(context, policy.workspace(1, prefix)))

    return [Use(_quietly(alone)), Use(_quietly(merged), 0)]


def _quietly(run: Callable[[], object]) -> Callable[[], object]:
    """Run without autograd, as stages do."""
    return torch.no_grad()(run)
