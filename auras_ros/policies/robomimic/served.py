"""robomimic's policy at the other end of the wire, in its own environment (`child.program`).

It is made of the file's parts by robomimic's own `policy_from_checkpoint`, and called as robomimic's rollouts call it.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from auras_ros.policies.robomimic.torchvision_operators import declare

REMEMBERED = 1024  # observations after which a recurrent policy's state is kept
MEMORY = ("_rnn_hidden_state", "_rnn_counter", "_open_loop_obs")  # what robomimic's recurrent algorithms carry along


class ServedPolicy:
    """A recurrent policy goes on from the observation before the newest one if it has acted on that, and begins an
    episode otherwise. So a request depends on its two observations alone, and requests of many episodes may be mixed;
    called at every control step it does what it does in robomimic's own rollout."""

    def __init__(self, order: Mapping[str, Any], weights: NDArray[np.float32]) -> None:
        self.declared = dict[str, Any]()
        declare()
        from robomimic.utils.file_utils import policy_from_checkpoint

        torch.set_num_threads(1)
        nets, at = {}, 0
        for name, shape in order["tensors"].items():
            size = int(np.prod(shape, dtype=np.int64))
            nets[name] = torch.from_numpy(weights[at : at + size]).reshape(shape)
            at += size
        nets |= {name: nets[first] for name, first in order["same"].items()}
        told = {**json.loads(order["checkpoint"]), "model": {"nets": nets}}
        self._policy, _ = policy_from_checkpoint(torch.device("cpu"), ckpt_dict=told)
        self._history, self._cameras, self._states = order["history"], order["cameras"], order["states"]
        self._recurrent = hasattr(self._policy.policy, MEMORY[0])
        self._stacked = not self._recurrent and self._history > 1
        self._memory = OrderedDict[bytes, dict[str, Any]]()

    def answer(
        self, order: Mapping[str, Any], array: NDArray[Any] | None
    ) -> tuple[dict[str, Any], NDArray[Any] | None]:
        if order["do"] != "act" or array is None:
            raise ValueError(f"no {order['do']!r} of a policy")
        return {}, np.stack([self._act(int(row[:1].view(np.uint32)[0]), row[1:]) for row in array])

    def _act(self, seed: int, row: NDArray[np.float32]) -> NDArray[np.float64]:
        instants = self._instants(row)
        self._policy.start_episode()
        if self._recurrent:
            before, newest = (_digest(each) for each in instants[-2:])
            if before != newest:  # or nothing came before
                vars(self._policy.policy).update(self._memory.get(before, {}))
        observation = instants[-1]
        if self._stacked:
            observation = {key: np.stack([each[key] for each in instants]) for key in observation}
        torch.manual_seed(seed)
        action = np.asarray(self._policy(observation), dtype=np.float64)
        if self._recurrent:
            own = vars(self._policy.policy)
            self._memory[newest] = {name: own[name] for name in MEMORY if name in own}
            self._memory.move_to_end(newest)
            if len(self._memory) > REMEMBERED:
                self._memory.popitem(last=False)
        return action

    def _instants(self, row: NDArray[np.float32]) -> list[dict[str, NDArray[Any]]]:
        """robomimic's observation of each instant: images uint8 [h, w, 3], states float32 [n]."""
        made = list[dict[str, NDArray[Any]]]({} for _ in range(self._history))
        at = 0
        for instant in made:
            for key, height, width in self._cameras:
                size = 3 * height * width
                image = row[at : at + size].reshape(3, height, width).transpose(1, 2, 0)
                instant[key] = np.round(image * 255).astype(np.uint8)
                at += size
        for instant in made:
            for key, size in self._states:
                instant[key] = row[at : at + size].copy()
                at += size
        return made

    def close(self) -> None: ...


def make(order: Mapping[str, Any], array: NDArray[Any] | None) -> ServedPolicy:
    """order: what is beside the weights in robomimic's file, and how a row is read. array: the weights, float32."""
    if array is None:
        raise ValueError("a policy without weights")
    return ServedPolicy(order, array)


def _digest(instant: Mapping[str, NDArray[Any]]) -> bytes:
    made = sha256()
    for value in instant.values():
        made.update(value.tobytes())
    return made.digest()
