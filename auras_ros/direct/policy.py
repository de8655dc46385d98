"""`auras_ros.load(...).act(...)`: a policy called from Python, without topics, nodes or a schedule.

One call is one request in mode seq: the preprocessing, the networks and the units are those that the nodes run. Time is
counted in policy steps, one for each observation; how long a call takes means nothing here. Nothing is limited, aligned
or blended either: what moves a robot is the actuator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from auras_ros import resources
from auras_ros.device.make import kind_of
from auras_ros.loading.pipeline import executor_on, to_latched
from auras_ros.observation import Assembler, ObservationFault
from auras_ros.pipeline.plan import Plan, PlanError
from auras_ros.policies.checkpoint import Checkpoint
from auras_ros.policies.loaders.open import load as open_checkpoint

AGE_LIMIT_MS = 1e9  # nothing gets old where no time passes


@dataclass(frozen=True, eq=False)
class Actions:
    """One chunk: `values` float64 [horizon, channels] in physical units, a row every `dt_ms` from the observation on;
    `names` of the channels. What a value refers to (set point, increment, rate) is the contract's kind."""

    values: NDArray[np.float64]
    names: tuple[str, ...]
    dt_ms: float


class DirectPolicy:
    """Made by `load`. Not thread-safe. `checkpoint.contract` says what the channels mean."""

    def __init__(self, checkpoint: Checkpoint, plan: Plan, seed: int, device: str) -> None:
        if plan != Plan(plan.generation):
            raise PlanError(f"plan: {plan}: act makes one request at a time: name how it generates alone")
        self.checkpoint, self.plan = checkpoint, str(plan)
        self._policy = policy = checkpoint.policy(plan.generation)
        self._assembler = Assembler(checkpoint.spec, AGE_LIMIT_MS, AGE_LIMIT_MS, 0.0)
        self._executor = executor_on(device, checkpoint, policy, plan, seed)
        self._now_ns = 0
        self.prompt = "" if checkpoint.language is None else checkpoint.language.prompt.text

    def act(
        self,
        images: Mapping[str, ArrayLike] | None = None,
        state: Mapping[str, float] | ArrayLike | None = None,
        prompt: str | None = None,
    ) -> Actions:
        """The chunk for this observation, which is one policy step after the one before (see `observe`).

        images: camera -> uint8 RGB [height, width, 3], as the camera delivers it. state: joint -> position (more joints
        than needed may be there), or the positions in the order of `joints`. prompt: None keeps the one before. Raises
        ValueError, naming what is missing or wrong.
        """
        tokens = self._tokens(prompt)
        self.observe(images, state)
        seen = self._assembler.latch(self._now_ns)
        if isinstance(seen, ObservationFault):
            raise ValueError(f"act: {seen}")
        if tokens is not None:  # only now: a call that is refused changes no prompt
            self._tell(tokens, str(prompt))
        emission = self._executor.frame(to_latched(seen, self.checkpoint), self._now_ns)
        assert emission is not None, "every observation is newer than the one before"
        contract = self.checkpoint.contract
        return Actions(emission.actions[0].numpy().copy(), contract.names, contract.dt_ms)

    def observe(
        self, images: Mapping[str, ArrayLike] | None = None, state: Mapping[str, float] | ArrayLike | None = None
    ) -> None:
        """What is seen at a policy step at which no chunk is wanted: a policy that looks at several instants wants it,
        any other needs no such call. As for `act`."""
        given = {} if images is None else dict(images)
        if unknown := [name for name in given if name not in self.cameras]:
            known = ", ".join(self.cameras) or "none"
            raise ValueError(f"images: no camera '{unknown[0]}' in this policy; its cameras: {known}")
        if missing := [name for name in self.cameras if name not in given]:
            raise ValueError(f"images: camera '{missing[0]}' is missing: uint8 RGB {list(self.cameras[missing[0]])}")
        names, positions = self._positions(state)
        self._now_ns += self.checkpoint.spec.dt_ns
        at = self._now_ns
        faults = [self._assembler.put_image(name, np.array(frame), at, at) for name, frame in given.items()]
        faults.append(self._assembler.put_state(names, positions, at, at))
        for fault in faults:
            if fault is not None:
                raise ValueError(f"act: {fault}")

    def reset(self) -> None:
        """A new episode: no history, and the noise from its beginning. The prompt stays."""
        self._assembler.reset()
        self._executor.reset(first_request=0)

    def close(self) -> None:
        """Let go of the device."""
        self._executor.close()

    @property
    def cameras(self) -> dict[str, tuple[int, int, int]]:
        """Name -> (height, width, 3) of what `act` takes."""
        return {each.name: (each.height, each.width, 3) for each in self.checkpoint.spec.cameras}

    @property
    def joints(self) -> tuple[str, ...]:
        """Of the state, in the policy's order; empty for a policy that does not see it."""
        return () if self.checkpoint.spec.state is None else self.checkpoint.spec.state.names

    def __repr__(self) -> str:
        spec, contract = self.checkpoint.spec, self.checkpoint.contract
        cameras = ", ".join(f"{name} {list(shape)}" for name, shape in self.cameras.items()) or "none"
        told = f"; prompt '{self.prompt}'" if self.checkpoint.language is not None else ""
        return (
            f"{self.checkpoint.name}, plan {self.plan} of {', '.join(self.checkpoint.plans)}: cameras {cameras}; "
            f"joints {', '.join(self.joints) or 'none'}; history {spec.history}{told} -> "
            f"{self.checkpoint.horizon} actions of {', '.join(contract.names)}, {contract.dt_ms:g} ms apart"
        )

    def _positions(self, state: Mapping[str, float] | ArrayLike | None) -> tuple[Sequence[str], Any]:
        """Names and values, as a message of joint states has them."""
        joints = self.joints
        if state is None:
            if joints:
                raise ValueError(f"state: is missing: positions of {', '.join(joints)}")
            return (), ()
        if not joints:
            raise ValueError("state: this policy sees none")
        if isinstance(state, Mapping):
            if missing := [name for name in joints if name not in state]:
                raise ValueError(f"state: joint '{missing[0]}' is missing; this policy needs {', '.join(joints)}")
            return list(state), list(state.values())
        values = np.asarray(state)
        if values.shape != (len(joints),):
            raise ValueError(f"state: shape {list(values.shape)}, expected {[len(joints)]}: {', '.join(joints)}")
        return joints, values

    def _tokens(self, prompt: str | None) -> torch.Tensor | None:
        """Of another prompt than the one before; None: it stays."""
        language = self.checkpoint.language
        if prompt is None or (language is not None and prompt == self.prompt):
            return None
        if language is None:
            raise ValueError("prompt: this policy takes none")
        return torch.tensor(list(language.ids(prompt)), dtype=torch.int64)

    def _tell(self, tokens: torch.Tensor, prompt: str) -> None:
        self._policy.set_prompt(tokens)  # type: ignore[attr-defined]  # a policy with language has it
        if torch.cuda.is_available():  # the next request runs on a stream of its own
            torch.cuda.synchronize()
        self.prompt = prompt


def load(
    checkpoint: str | Path, *, plan: str = "", device: str = "cpu", seed: int = 0, dtype: str = "auto"
) -> DirectPolicy:
    """See `auras_ros.load`."""
    folder = checkpoint if isinstance(checkpoint, Path) else resources.checkpoint(checkpoint)
    opened = open_checkpoint(folder, dtype, kind_of(device))
    return DirectPolicy(opened, Plan.parse(plan or opened.first_plan), seed, device)
