"""The checkpoint family `robomimic`: robomimic's own inference (Mandlekar et al. 2021) behind the four methods.

Its code runs as a process in the environment `robomimic` and is asked for one action at a time (`served`). `perceive`
hands the observation on, the only step of generation asks. For what our networks are not: recurrent policies above all.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from auras_ros.checkpoints.limits import shown
from auras_ros.child.process import ChildProcess, ChildStart
from auras_ros.environments import ROBOMIMIC
from auras_ros.policies.architecture import Architecture
from auras_ros.policies.family import Trained, check_keys, known
from auras_ros.policies.module import ModulePolicy

NAME, SERVED = "robomimic", "auras_ros.policies.robomimic.served"
SEPARATOR = "/"  # in place of the dot in a tensor's name, which no parameter's may have


class RobomimicState(NamedTuple):
    """noise: [B, 1]. actions: [B, 1, actions] in physical units, float64, zero before the step."""

    noise: Tensor
    actions: Tensor


class RobomimicNetworks(nn.Module):
    """The weights under their names of robomimic's file, and the process that has them once it is asked.

    network: the manifest's. layout: how a row is read at the other end.
    """

    def __init__(self, network: Mapping[str, Any], layout: Mapping[str, Any]) -> None:
        super().__init__()
        for name, shape in network["tensors"].items():
            parameter = nn.Parameter(torch.zeros(tuple(shape)), requires_grad=False)
            self.register_parameter(name.replace(".", SEPARATOR), parameter)
        self._order = {**network, **layout}
        self._started: tuple[int, ChildProcess] | None = None
        self._lock = threading.Lock()

    def ask(self, rows: Tensor) -> Tensor:
        """Noise and observation of each request, float32 [B, 1 + C] -> its action, float64 [B, actions]. Raises
        MissingEnvironmentError, ProcessLostError, and what robomimic raises."""
        with self._lock:
            if self._started is None or self._started[0] != os.getpid():  # a copy of ours has no process
                self._started = os.getpid(), self._start()
            _, actions = self._started[1].ask("act", array=rows.numpy())
        if actions is None or actions.shape[0] != len(rows):
            raise RuntimeError(f"{NAME}: expected an action for each of {len(rows)} observations")
        return torch.from_numpy(actions)

    def _start(self) -> ChildProcess:
        weights = torch.cat([each.detach().flatten() for each in self.parameters()]).numpy()
        return ChildProcess(NAME, "policy", ROBOMIMIC.python(NAME), ChildStart(SERVED, self._order, weights))


class RobomimicPolicy(ModulePolicy):
    """An action is in physical units as robomimic gives it: it takes its statistics into account itself."""

    steps = 1
    noise_shape = (1,)  # from which robomimic's own generator is seeded

    def __init__(self, networks: RobomimicNetworks, architecture: Architecture) -> None:
        super().__init__(architecture)
        self.networks = networks

    def perceive(self, images: Tensor, state: Tensor) -> Tensor:
        return torch.cat([images.flatten(1), state.flatten(1)], dim=1)

    def begin(self, noise: Tensor) -> RobomimicState:
        return RobomimicState(noise, torch.zeros(len(noise), 1, self.architecture.actions, dtype=torch.float64))

    @torch.no_grad()
    def step(self, state: RobomimicState, context: Tensor, index: Tensor) -> RobomimicState:
        actions = self.networks.ask(torch.cat([state.noise, context], dim=1))
        return RobomimicState(state.noise, actions[:, None, : self.architecture.actions])

    def finish(self, state: RobomimicState) -> Tensor:
        return state.actions

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RobomimicPolicy:
        """Raises ValueError for another device."""
        if fn(torch.empty(0)).device.type != "cpu":
            raise ValueError(f"type '{NAME}': its process computes on the CPU: device cpu")
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self


class Robomimic:
    """The family. encoder: none of ours. network: `checkpoint`, JSON of robomimic's file without its weights;
    `tensors`, the shape of each; `same`, other names of some. A plan has no settings."""

    def networks(self, encoder: Any, network: Any, architecture: Architecture) -> nn.ModuleDict:
        check_keys(network, {"checkpoint", "tensors", "same"})
        layout = _layout(network["checkpoint"], architecture)
        tensors, same = network["tensors"], network["same"]
        if not isinstance(tensors, Mapping) or not all(map(_is_shape, tensors.values())):
            raise TypeError(f"network: tensors: {shown(tensors)} is no table of shapes")
        if not isinstance(same, Mapping) or not all(first in tensors for first in same.values()):
            raise ValueError(f"network: same: {shown(same)} is no table of names of tensors")
        return nn.ModuleDict({NAME: RobomimicNetworks(network, layout)})

    def policy(self, networks: nn.ModuleDict, trained: Trained, settings: Mapping[str, Any]) -> RobomimicPolicy:
        known(settings)
        found = networks[NAME]
        assert isinstance(found, RobomimicNetworks)
        return RobomimicPolicy(found, trained.architecture)


def _layout(checkpoint: Any, architecture: Architecture) -> dict[str, Any]:
    """How a row is read at the other end: history, cameras with their size, and states with how many numbers each has,
    in order. Raises ValueError or TypeError."""
    if not isinstance(checkpoint, str):
        raise TypeError(f"network: checkpoint: {shown(checkpoint)} is not text")
    told = json.loads(checkpoint)
    shapes = told.get("shape_metadata", {}).get("all_shapes") if isinstance(told, Mapping) else None
    if not isinstance(shapes, Mapping) or not all(map(_is_shape, shapes.values())):
        raise ValueError("network: checkpoint: shape_metadata.all_shapes is no table of shapes")
    cameras = [[key, *architecture.image_px] for key, shape in shapes.items() if len(shape) == 3]
    states = [[key, shape[0]] for key, shape in shapes.items() if len(shape) == 1]
    found = len(cameras), sum(size for _, size in states)
    if found != (architecture.cameras, architecture.state):
        expected = f"{architecture.cameras} cameras and {architecture.state} numbers"
        raise ValueError(
            f"network: checkpoint: {found[0]} cameras and {found[1]} numbers of state, expected {expected}"
        )
    return {"history": architecture.history, "cameras": cameras, "states": states}


def _is_shape(shape: object) -> bool:
    return isinstance(shape, list) and all(type(side) is int and side >= 0 for side in shape)
