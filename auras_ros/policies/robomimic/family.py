"""The checkpoint family `robomimic`: robomimic's own inference (Mandlekar et al. 2021) behind the four methods.

Its code runs as a process in the environment `robomimic` and is asked for one action at a time (`served`). `perceive`
hands the observation on, the only step of generation asks. For what our networks are not: recurrent policies above all.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from auras_ros.checkpoints.limits import most
from auras_ros.child.process import ChildProcess, ChildStart
from auras_ros.environments import ROBOMIMIC
from auras_ros.policies.architecture import Architecture
from auras_ros.policies.family import Trained, check_keys, known
from auras_ros.policies.module import ModulePolicy
from auras_ros.policies.robomimic.checkpoint_text import is_shape, read
from auras_ros.values import shown

NAME, SERVED = "robomimic", "auras_ros.policies.robomimic.served"
MOST_NUMBERS = 1 << 30  # of a tensor


def parameter_name(tensor: str) -> str:
    """No parameter has a dot in its name, and none that begins like this is an attribute of a module."""
    return "/" + tensor.replace(".", "/")


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
            self.register_parameter(parameter_name(name), parameter)
        self._order = {**network, **layout}
        self._process: ChildProcess | None = None
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        """A copy starts a process of its own."""
        return {name: value for name, value in vars(self).items() if name not in ("_process", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._process, self._lock = None, threading.Lock()

    def ask(self, rows: Tensor) -> Tensor:
        """Noise and observation of each request, float32 [B, 1 + C] -> its action, float64 [B, actions]. Raises
        MissingEnvironmentError, ProcessLostError, and what robomimic raises."""
        with self._lock:
            self._process = self._process or self._start()
            _, actions = self._process.ask("act", array=rows.numpy())
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
        return RobomimicState(state.noise, actions[:, None])

    def finish(self, state: RobomimicState) -> Tensor:
        return state.actions

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RobomimicPolicy:
        """Raises ValueError for another device."""
        if fn(torch.empty(0)).device.type != "cpu":
            raise ValueError(f"type '{NAME}': its process computes on the CPU: device cpu")
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self


class Robomimic:
    """The family. encoder: none of ours. network: `checkpoint`, JSON of robomimic's file without its weights
    (`checkpoint_text`); `tensors`, the shape of each; `same`, other names of some. A plan has no settings."""

    def networks(self, encoder: Any, network: Any, architecture: Architecture) -> nn.ModuleDict:
        check_keys(network, {"checkpoint", "tensors", "same"})
        if architecture.horizon != 1:
            raise ValueError(f"horizon: {architecture.horizon!r} is not 1: robomimic gives one action at a time")
        told, tensors, same = read(network["checkpoint"]), network["tensors"], network["same"]
        cameras = [(key, *architecture.image_px) for key, shape in told.shapes.items() if len(shape) == 3]
        states = {key: shape[0] for key, shape in told.shapes.items() if len(shape) == 1}
        sizes = {
            "cameras": (len(cameras), architecture.cameras),
            "numbers of state": (sum(states.values()), architecture.state),
            "instants": (told.history, architecture.history),
            "actions": (told.actions, architecture.actions),
        }
        for name, (found, expected) in sizes.items():
            if found != expected:
                raise ValueError(f"network: checkpoint: {found} {name}, expected {expected}")
        if not isinstance(tensors, Mapping) or not all(is_shape(each) for each in tensors.values()):
            raise TypeError(f"network: tensors: {shown(tensors)} is no table of shapes")
        for name, shape in tensors.items():
            most(f"network: tensors: {shown(name)}", math.prod(shape), MOST_NUMBERS)
        if not isinstance(same, Mapping) or not set(same.values()) <= tensors.keys():
            raise ValueError(f"network: same: {shown(same)} is no table of names of tensors")
        layout = {"history": architecture.history, "cameras": cameras, "states": [*states.items()]}
        return nn.ModuleDict({NAME: RobomimicNetworks(network, layout)})

    def policy(self, networks: nn.ModuleDict, trained: Trained, settings: Mapping[str, Any]) -> RobomimicPolicy:
        known(settings)
        found = networks[NAME]
        assert isinstance(found, RobomimicNetworks)
        return RobomimicPolicy(found, trained.architecture)
