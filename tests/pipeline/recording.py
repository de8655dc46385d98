"""A policy whose actions are a record of how they came about, numbered noise, and a device that keeps no order.

Nothing here is told by the executor what it did: images, states and noise carry integers, the policy copies them to
where they are used, and float32 keeps integers up to 2**24 exactly.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from auras_ros.device import Lane, Mark, Stage
from auras_ros.pipeline.request import Latched, ObservationOrigin
from auras_ros.policies.denoising import DenoisingState

BLOCKS = 3
TRACE = 123  # the blocks of perception write their numbers one after another

# Stages that take no time in virtual time: what surrounds perception and generation.
COPIES_NS = dict.fromkeys(("copy in", "copy noise", "boundary", "fetch", "copy out"), 0)

# Channels of the record. Position i of the horizon tells of step i; the position after the last step is the header.
IMAGE, IMAGE_ENV, STATE, STATE_ENV, PASSED, COUNT, TURN, TAPE, TAPE_ENV = range(9)
CHANNELS = 9
BEGUN, BEGUN_ENV, TURNS = range(3)  # the header's channels: the noise at begin, and the steps in all


class RecordingPolicy:
    """Satisfies `Policy`. images [B, 1, 1, 3, 1, 1] and state [B, 1, 2] both carry (observation, environment)."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._eye = torch.eye(3)

    @property
    def steps(self) -> int:
        return self._steps

    @property
    def noise_shape(self) -> tuple[int, int, int]:
        return (2, self._steps + 1, CHANNELS)

    def perceive(self, images: Tensor, state: Tensor) -> Tensor:
        value: tuple[Tensor, ...] = (images, state)
        for block in self.perception_blocks():
            value = block(*value)
        return value[0]

    def perception_blocks(self) -> list[Callable[..., tuple[Tensor, ...]]]:
        """Three blocks of which each needs the one before; chained they are `perceive`."""

        def first(images: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            features = images.flatten(1) @ self._eye  # a block without operations has no weight in a plan
            return torch.cat([features[:, :2], torch.ones(len(images), 1)], 1), state

        def second(features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            return _marked(features @ self._eye, 2), state

        def third(features: Tensor, state: Tensor) -> tuple[Tensor]:
            features = _marked(features @ self._eye, 3)
            return (torch.cat([features[:, :2], state[:, -1], features[:, 2:]], 1),)

        return [first, second, third]

    def begin(self, noise: Tensor) -> DenoisingState:
        sample = torch.zeros(len(noise), self._steps + 1, CHANNELS)
        sample[:, -1, :2] = noise[:, 0, -1, :2]
        return DenoisingState(sample, noise[:, 1:])

    def step(self, state: DenoisingState, context: Tensor, index: Tensor) -> DenoisingState:
        sample, at = state.sample.numpy().copy(), index.numpy()  # many small writes: numpy takes a third of the time
        if at.min() < 0 or at.max() >= self._steps:
            raise IndexError(f"step {at.tolist()} of {self._steps}")
        rows = np.arange(len(at))
        sample[:, -1, TURNS] += 1
        written = sample[rows, at]
        written[:, : PASSED + 1] = context.numpy()
        written[:, COUNT] += 1
        written[:, TURN] = sample[:, -1, TURNS]
        written[:, TAPE:] = state.tape.numpy()[rows, 0, at, :2]
        sample[rows, at] = written
        return DenoisingState(torch.from_numpy(sample), state.tape)

    def finish(self, state: DenoisingState) -> Tensor:
        return state.sample.double()


def _marked(features: Tensor, block: int) -> Tensor:
    """The last column says which blocks these features have passed, in order."""
    return torch.cat([features[:, :2], features[:, 2:] * 10 + block], 1)


def latched(stamp: int, environments: Sequence[int]) -> Latched:
    """What these environments see at one stamp. The monotonic origin is another number than the camera's."""
    seen = torch.tensor([[float(stamp), float(env)] for env in environments])
    images = torch.cat([seen, torch.zeros(len(seen), 1)], 1).view(len(seen), 1, 1, 3, 1, 1)
    origin = ObservationOrigin(mono_ns(stamp) + 7_000_000, mono_ns(stamp), reference(environments))
    return Latched(images, seen[:, None].clone(), origin)


def mono_ns(stamp: int) -> int:
    return 1_000 * stamp


def stamp_of(seen: ObservationOrigin) -> int:
    return seen.mono_ns // 1_000


def reference(environments: Sequence[int]) -> NDArray[np.float64]:
    return np.array([[float(env)] * CHANNELS for env in environments])


@dataclass
class RecordingNoise:
    """Each request's tape says whose it is; `drawn` lists the requests in the order of their drawing."""

    steps: int
    environments: list[int]
    drawn: list[int] = field(default_factory=list)

    def __call__(self, request: int) -> Tensor:
        self.drawn.append(request)
        tape = torch.zeros(len(self.environments), 2, self.steps + 1, CHANNELS)
        tape[..., 0] = float(request)
        tape[..., 1] = torch.tensor(self.environments, dtype=torch.float32)[:, None, None]
        return tape


def record(request: int, used: Sequence[int], environments: Sequence[int]) -> NDArray[np.float64]:
    """The actions [E, steps + 1, CHANNELS] of a request whose step i used observation `used[i]`, each step once."""
    steps = len(used)
    actions = np.zeros((len(environments), steps + 1, CHANNELS))
    for actions_of, env in zip(actions, environments, strict=True):
        for i, observation in enumerate(used):
            actions_of[i] = [observation, env, observation, env, TRACE, 1, i + 1, request, env]
        actions_of[steps, :3] = [request, env, steps]
    return actions


class LooseMark:
    def __init__(self, device: LooseDevice) -> None:
        self._device = device
        self.over = False

    def wait(self) -> None:
        self._device.run_until(self)

    def done(self) -> bool:
        return self.over


@dataclass
class LooseStage:
    name: str
    body: Callable[[], None]


@dataclass
class LooseLane:
    name: str
    device: LooseDevice
    waiting: list[tuple[LooseStage, LooseMark, Sequence[Mark]]] = field(default_factory=list)

    def launch(self, stage: Stage, after: Sequence[Mark] = ()) -> Mark:
        assert isinstance(stage, LooseStage)
        mark = LooseMark(self.device)
        self.waiting.append((stage, mark, after))
        return mark


class LooseDevice:
    """Runs what was launched as late as it may and in any order that lanes and marks allow.

    A schedule that leans on an order nobody promised gives other actions here. `choose` picks among what could run;
    in other threads than its maker's (warm-up has some) there is another choice, so that their order changes none here.
    """

    tensors = torch.device("cpu")

    def __init__(self, choose: random.Random) -> None:
        self._choose, self._maker = choose, threading.get_ident()
        self._lanes: list[LooseLane] = []
        self._one_at_a_time = threading.Lock()

    def lane(self, name: str, cores: Sequence[int] | None = None, threads: int | None = None) -> Lane:
        self._lanes.append(LooseLane(name, self))
        return self._lanes[-1]

    def capture(self, name: str, body: Callable[[], None], lane: Lane) -> Stage:
        return LooseStage(name, body)

    def close(self) -> None:
        assert not any(lane.waiting for lane in self._lanes), "launched, and nobody waited for it"

    def run_until(self, mark: LooseMark) -> None:
        choose = self._choose if threading.get_ident() == self._maker else random.Random(0)
        with self._one_at_a_time:
            while not mark.over:
                able = [lane for lane in self._lanes if lane.waiting and all(m.done() for m in lane.waiting[0][2])]
                assert able, "every lane waits for another"
                stage, done, _ = choose.choice(able).waiting.pop(0)
                stage.body()
                done.over = True
