"""Training of the autoregressive Push-T policy: the next token of discretised actions, given frozen features.

Loops count steps, not seconds, so that a seed gives the same run on any machine up to rounding. Nothing in the training
knows of merging: the policy learns plain next-token prediction, and merged generation takes it as it is.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from auras_ros.policies.autoregressive import AutoregressivePolicy
from auras_ros.policies.observation_tokens import ObservationTokens
from auras_ros.report.result import Say
from auras_ros.train.diffusion import Windows
from auras_ros.train.loops import Curve, fit
from auras_ros.train.pusht_task import HALF_PX

HORIZON = 8  # actions of a chunk, two tokens each
BATCH = 64  # small enough for the caches of one core: larger ones cost more a window
SPREAD_BINS = 1.0  # of the target over neighbouring bins: 2 px beside is nearly right
NETWORK = {"layers": 4, "heads": 4, "width": 128, "hidden": 352, "tokens": 4, "bins": 256}


def train_decoder(
    policy: AutoregressivePolicy, windows: Windows, steps: int, peak: float, curve: Curve, progress: Say
) -> nn.Module:
    """Train prefix map and decoder (not the encoder); returns the moving average of the weights."""
    learner = copy.deepcopy(policy).train()
    prefix = learner.prefix
    assert isinstance(prefix, ObservationTokens)
    assert isinstance(learner.decoder, nn.Module)
    trained = [*prefix.embed.parameters(), *learner.decoder.parameters()]
    for parameter in trained:
        parameter.requires_grad_(True)

    def loss() -> Tensor:
        condition, actions = windows.batch(BATCH)
        return token_loss(learner, prefix.tokens(condition), (actions[:, :HORIZON] + 1) * HALF_PX)

    optimizer = torch.optim.AdamW(trained, lr=peak, weight_decay=1e-2, betas=(0.9, 0.95))
    return fit(learner, [optimizer], loss, steps, 200, curve, lambda text: progress(f"decoder {text}"))


def token_loss(policy: AutoregressivePolicy, prefix: Tensor, actions: Tensor) -> Tensor:
    """Mean cross entropy of every token of actions [B, horizon, channels] (physical units), each from the true ones
    before it; the target is spread over the bins beside it."""
    decoder, codec = policy.decoder, policy.codec
    ids = codec.encode(actions).flatten(1)
    embedded = torch.cat([prefix, decoder.embed(ids[:, :-1])], 1)
    logits = decoder.logits(decoder(embedded)[:, prefix.shape[1] - 1 :])
    bins = torch.arange(logits.shape[-1])
    target = torch.softmax(-0.5 * ((bins - ids[..., None]) / SPREAD_BINS).square(), -1)
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(0, 1))
