"""The `seq` mode: one request at a time, perception then generation, the whole request in one frame.

This is the baseline that every schedule is measured against, and the simplest that is right: each chunk comes from
one observation, latched at the frame's start.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from auras_ros.action import Chunk, Provenance
from auras_ros.clock import Clock
from auras_ros.observation import Observation
from auras_ros.policies.checkpoint import Checkpoint
from auras_ros.policies.noise import noise_tape
from auras_ros.policies.policy import generate


@dataclass(frozen=True)
class Identity:
    """What stays the same in every provenance of one life of an agent."""

    host: str = ""
    session: str = ""


@dataclass(frozen=True)
class Frame:
    """One finished frame: its chunk, and when each part of it ended, ns on the executor's clock."""

    chunk: Chunk
    latched_ns: int
    perceived_ns: int
    generated_ns: int


class Sequential:
    """Runs one request a frame. `plan` names one of the checkpoint's plans; `seed` fixes every request's noise."""

    def __init__(self, checkpoint: Checkpoint, plan: str, seed: int, clock: Clock, identity: Identity) -> None:
        self.checkpoint, self.plan, self.seed = checkpoint, plan, seed
        self._policy = checkpoint.policy(plan)
        self.clock, self._identity = clock, identity
        self._frames, self._requests, self._epoch = 0, 0, 0

    @property
    def frames(self) -> int:
        """Frames finished since the start; warm-up is not counted."""
        return self._frames

    def reset(self, first_request: int | None = None) -> None:
        """Begin a new epoch (design rule 9); `first_request` restarts the noise tape there, for paired evaluation."""
        self._epoch += 1
        if first_request is not None:
            self._requests = first_request

    def warm_up(self, runs: int = 3) -> None:
        """Run the stages on random input; discarded (design rule 10)."""
        spec = self.checkpoint.spec
        height, width = spec.image_size
        states = 0 if spec.state is None else len(spec.state.names)
        random = np.random.default_rng(0)
        images = random.normal(size=(spec.history, len(spec.cameras), 3, height, width)).astype(np.float32)
        state = random.normal(size=(spec.history, states)).astype(np.float32)
        for _ in range(runs):
            self._generate(self._perceive(images, state), request=0)

    def run(self, observation: Observation) -> Frame:
        """One frame: observation in, chunk with its provenance out."""
        latched_ns = self.clock.now_ns()
        context = self._perceive(observation.images, observation.state)
        perceived_ns = self.clock.now_ns()
        actions = self._generate(context, self._requests)
        generated_ns = self.clock.now_ns()
        provenance = Provenance(
            origin_stamp_ns=observation.origin_stamp_ns,
            origin_mono_ns=observation.origin_mono_ns,
            host=self._identity.host,
            session=self._identity.session,
            frame=self._frames,
            request=self._requests,
            epoch=self._epoch,
            context_age_ns=(perceived_ns - observation.origin_mono_ns,),
            plan=self.plan,
            checkpoint=f"{self.checkpoint.name}@{self.checkpoint.digest[:12]}",
        )
        reference = self._reference(observation)
        self._frames += 1
        self._requests += 1
        return Frame(Chunk(actions, provenance, reference), latched_ns, perceived_ns, generated_ns)

    def _perceive(self, images: NDArray[np.float32], state: NDArray[np.float32]) -> torch.Tensor:
        return self._policy.perceive(torch.from_numpy(images)[None], torch.from_numpy(state)[None])

    def _generate(self, context: torch.Tensor, request: int) -> NDArray[np.float64]:
        noise = noise_tape(self._policy.noise_shape, self.seed, request)[None]
        actions: NDArray[np.float64] = generate(self._policy, noise, context)[0].numpy()
        return actions

    def _reference(self, observation: Observation) -> NDArray[np.float64] | None:
        """The state at the origin in channel order, NaN where no joint has the channel's name."""
        spec = self.checkpoint.spec.state
        if spec is None:
            return None
        at = dict(zip(spec.names, observation.position, strict=True))
        return np.array([at.get(name, np.nan) for name in self.checkpoint.contract.names])
