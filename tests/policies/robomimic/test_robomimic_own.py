"""robomimic's own inference behind the four methods, without robomimic: a policy in its place adds up what it sees.

Whether the real one acts as in its own rollout is compared in tests/worlds/test_robomimic_inference.py.

Guards: a recurrent policy that goes on from another episode, or from none; a row that is read in another order than it
was written; a manifest whose sizes are believed.
"""

from __future__ import annotations

import json
import sys
from copy import deepcopy
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.child.process import ChildStart
from auras_ros.environments import MissingEnvironmentError
from auras_ros.policies.architecture import Architecture
from auras_ros.policies.families import find
from auras_ros.policies.family import unit
from auras_ros.policies.loaders.robomimic_own import translate
from auras_ros.policies.loaders.translated import wanted
from auras_ros.policies.policy import generate
from auras_ros.policies.robomimic import family, served
from auras_ros.policies.robomimic.family import RobomimicNetworks
from tests.policies.loaders import robomimic_fixtures as made

SHAPES = {"arm": [2], "top": [3, 2, 4], "cube": [1]}
CONFIG: dict[str, Any] = {
    "algo": {"rnn": {"enabled": True}},
    "train": {"frame_stack": 1},
    "observation": {
        "modalities": {"obs": {"low_dim": ["arm", "cube"], "rgb": ["top"]}, "goal": {"rgb": []}},
        "encoder": {"rgb": {"core_class": "VisualCore", "core_kwargs": {"pool_class": None}}},
    },
}


def text(config: Any = CONFIG, **changes: Any) -> str:
    """JSON of a file without its weights."""
    metadata = {"ac_dim": 2, "all_shapes": SHAPES}
    return json.dumps({"algo_name": "bc", "shape_metadata": metadata, "config": json.dumps(config), **changes})


def config(*keys: str, value: Any) -> Any:
    """CONFIG with another value."""
    made = deepcopy(CONFIG)
    inner = made
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    return made


NETWORK = {
    "checkpoint": text(),
    "tensors": {"policy.weight": [2, 3], "policy.bias": []},
    "same": {"policy.again": "policy.weight"},
}


def architecture(**changes: Any) -> Architecture:
    sizes: dict[str, Any] = {"cameras": 1, "image_px": (2, 4), "history": 2, "state": 3, "horizon": 1, "actions": 2}
    return Architecture("tiny", **{**sizes, **changes})


class Algorithm:
    """Recurrent: the sum of all arms since the episode began."""

    def __init__(self, recurrent: bool) -> None:
        if recurrent:
            self._rnn_hidden_state: float | None = None
            self._rnn_counter = 0


class Rollout:
    """As robomimic's RolloutPolicy: its action is (what it remembers or the newest arm, a random number)."""

    def __init__(self, recurrent: bool, nets: dict[str, Any]) -> None:
        self.policy, self.nets, self.seen = Algorithm(recurrent), nets, list[dict[str, Any]]()

    def start_episode(self) -> None:
        if hasattr(self.policy, "_rnn_counter"):
            self.policy._rnn_hidden_state, self.policy._rnn_counter = None, 0

    def __call__(self, observation: dict[str, Any]) -> Any:
        self.seen.append(observation)
        total = float(observation["arm"].reshape(-1, 2)[-1].sum())
        if hasattr(self.policy, "_rnn_counter"):
            total += self.policy._rnn_hidden_state or 0.0
            self.policy._rnn_hidden_state, self.policy._rnn_counter = total, self.policy._rnn_counter + 1
        return np.array([total, torch.rand(()).item()])


@pytest.fixture
def rollouts(monkeypatch: pytest.MonkeyPatch) -> list[Rollout]:
    """Those that are made instead of robomimic's, in this process."""
    found = list[Rollout]()

    def policy_from_checkpoint(device: Any, ckpt_dict: dict[str, Any]) -> tuple[Rollout, dict[str, Any]]:
        recurrent = json.loads(ckpt_dict["config"])["algo"]["rnn"]["enabled"]
        found.append(Rollout(recurrent, ckpt_dict["model"]["nets"]))
        return found[-1], ckpt_dict

    modules = {"robomimic": ModuleType("robomimic"), "robomimic.utils": ModuleType("utils")}
    modules["robomimic.utils.file_utils"] = file_utils = ModuleType("file_utils")
    vars(file_utils)["policy_from_checkpoint"] = policy_from_checkpoint
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(served, "declare", lambda: None)

    class HereProcess:
        def __init__(self, name: str, what: str, python: Path, start: ChildStart) -> None:
            assert start.module == served.__name__
            self.served = served.make(start.order, start.array)

        def ask(self, method: str, array: Any) -> Any:
            return self.served.answer({"do": method}, array)

    monkeypatch.setattr(family, "ChildProcess", HereProcess)
    monkeypatch.setattr(family, "ROBOMIMIC", SimpleNamespace(python=lambda name: Path(sys.executable)))
    return found


def policy_of(stack: int | None = None) -> Any:
    """stack: instants of one that is not recurrent."""
    told = deepcopy(CONFIG)
    told["algo"]["rnn"]["enabled"] = stack is None
    told["train"]["frame_stack"] = stack or 1
    sizes = architecture(history=stack or 2)
    networks = find("robomimic").networks({"type": "none"}, {**NETWORK, "checkpoint": text(told)}, sizes)
    with torch.no_grad():
        for number, parameter in enumerate(networks.parameters()):
            parameter.copy_(torch.arange(parameter.numel()).reshape(parameter.shape) + 10.0 * number)
    return find("robomimic").policy(networks, unit(sizes), {})


def act(policy: Any, arms: list[list[float]], noise: float = 0.5) -> list[float]:
    """The first number of each row's action. arms: of each row, at each instant."""
    state = torch.zeros(len(arms), len(arms[0]), 3)
    state[:, :, 0] = torch.tensor(arms)
    images = torch.zeros(len(arms), len(arms[0]), 1, 3, 2, 4)
    got = generate(policy, torch.full((len(arms), 1), noise), policy.perceive(images, state))
    assert got.shape == (len(arms), 1, 2)
    assert got.dtype == torch.float64
    return [float(each) for each in got[:, 0, 0]]


def test_a_recurrent_policy_goes_on_from_the_observation_before(rollouts: list[Rollout]) -> None:
    policy = policy_of()
    assert act(policy, [[1, 1]]) == [1.0]  # nothing came before
    assert act(policy, [[1, 2]]) == [3.0]
    assert act(policy, [[2, 4]]) == [7.0]
    assert act(policy, [[2, 4]]) == [7.0]  # asked twice
    assert act(policy, [[9, 1]]) == [1.0]  # after one that was never acted on
    assert len(rollouts) == 1


@pytest.mark.usefixtures("rollouts")
def test_rows_are_episodes_of_their_own() -> None:
    policy = policy_of()
    assert act(policy, [[1, 1], [10, 10], [100, 100]]) == [1.0, 10.0, 100.0]
    assert act(policy, [[100, 200], [1, 2]]) == [300.0, 3.0]
    assert act(policy, [[10, 20], [200, 300]]) == [30.0, 600.0]


@pytest.mark.usefixtures("rollouts")
def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "REMEMBERED", 2)
    policy = policy_of()
    for arm in (1, 2, 3):
        act(policy, [[arm, arm]])
    assert act(policy, [[3, 5], [2, 7]]) == [8.0, 7.0]  # 1 went first, then 2
    assert act(policy, [[3, 6]]) == [6.0]


def test_robomimic_sees_its_keys_in_their_shapes(rollouts: list[Rollout]) -> None:
    policy = policy_of(3)
    state = torch.arange(9.0).reshape(1, 3, 3)
    images = (torch.arange(72).reshape(1, 3, 1, 3, 2, 4) / 255).float()
    policy.finish(policy.step(policy.begin(torch.zeros(1, 1)), policy.perceive(images, state), torch.zeros(1)))
    (seen,) = rollouts[0].seen
    assert {key: (value.shape, str(value.dtype)) for key, value in seen.items()} == {
        "arm": ((3, 2), "float32"),
        "cube": ((3, 1), "float32"),
        "top": ((3, 2, 4, 3), "uint8"),
    }
    np.testing.assert_array_equal(seen["arm"], state[0, :, :2].numpy())
    np.testing.assert_array_equal(seen["cube"], state[0, :, 2:].numpy())
    np.testing.assert_array_equal(seen["top"][1, :, :, 2], np.arange(40, 48).reshape(2, 4))


def test_one_instant_has_no_time_and_noise_seeds_the_generator(rollouts: list[Rollout]) -> None:
    policy = policy_of(1)
    context = policy.perceive(torch.zeros(2, 1, 1, 3, 2, 4), torch.zeros(2, 1, 3))
    drawn = [
        policy.step(policy.begin(torch.tensor([[a], [b]])), context, torch.zeros(2)).actions[:, 0, 1].tolist()
        for a, b in ((0.1, 0.2), (0.2, 0.1), (0.1, 0.1))
    ]
    assert drawn[0] == drawn[1][::-1]
    assert drawn[2] == [drawn[0][0]] * 2
    assert drawn[0][0] != drawn[0][1]
    assert rollouts[0].seen[0]["arm"].shape == (2,)


def test_weights_arrive_under_robomimics_names(rollouts: list[Rollout]) -> None:
    policy = policy_of(1)
    act(policy, [[0.0]])
    nets = rollouts[0].nets
    assert {name: value.tolist() for name, value in nets.items()} == {
        "policy.weight": [[0, 1, 2], [3, 4, 5]],
        "policy.bias": 10.0,
        "policy.again": [[0, 1, 2], [3, 4, 5]],
    }


def test_without_its_environment_it_says_what_makes_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AURAS_ROS_ENVIRONMENTS", str(tmp_path))
    with pytest.raises(MissingEnvironmentError, match="make it: auras doctor --sim robomimic --fix"):
        act(policy_of(1), [[0.0]])


@pytest.mark.parametrize(
    ("changes", "sizes", "said"),
    [
        ({"tensors": {"a": [2.5]}}, {}, "network: tensors: .* is no table of shapes"),
        ({"tensors": []}, {}, "network: tensors: .* is no table of shapes"),
        ({"same": {"b": "c"}}, {}, "network: same: .* is no table of names of tensors"),
        ({"tensors": {"policy.weight": [2**20, 2**20]}, "same": {}}, {}, "tensors: 'policy.weight': .* is more than"),
        ({"checkpoint": 3}, {}, "checkpoint: 3 is not an object"),
        ({"checkpoint": "{"}, {}, "Expecting property name"),
        ({"checkpoint": "[]"}, {}, r"checkpoint: \[\] is not an object"),
        ({"checkpoint": text(model={})}, {}, "checkpoint: 'model' is unknown"),
        ({"checkpoint": text(algo_name="hbc")}, {}, "checkpoint: algo_name: 'hbc' is not one of bc, bcq"),
        ({"checkpoint": text(shape_metadata=None)}, {}, "checkpoint: shape_metadata: None is not an object"),
        ({"checkpoint": text(shape_metadata={"ac_dim": 2, "all_shapes": {"a": 3}})}, {}, "are no sizes"),
        ({"checkpoint": text(config("algo", value=None))}, {}, "config.algo: None is not an object"),
        ({"checkpoint": text(config("algo", "layers", value=[10**9]))}, {}, "config.algo: layers: .* is more than"),
        (
            {"checkpoint": text(config("observation", "modalities", "goal", value={"rgb": ["top"]}))},
            {},
            "modalities.goal.rgb: .* is not supported",
        ),
        (
            {"checkpoint": text(config("train", "frame_stack", value=3))},
            {},
            "frame_stack: 3 is not supported; a recurrent policy has 1",
        ),
        ({}, {"state": 4}, "checkpoint: 3 numbers of state, expected 4"),
        ({}, {"cameras": 2}, "checkpoint: 1 cameras, expected 2"),
        ({}, {"history": 3}, "checkpoint: 2 instants, expected 3"),
        ({}, {"actions": 3}, "checkpoint: 2 actions, expected 3"),
        ({}, {"horizon": 5}, "horizon: 5 is not 1"),
        ({"more": 1}, {}, "network: 'more' is unknown"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(changes: dict[str, Any], sizes: dict[str, Any], said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        find("robomimic").networks({"type": "none"}, {**NETWORK, **changes}, architecture(**sizes))


RUN = "__import__('os').system('exit')"


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("observation", "encoder", "rgb", "core_kwargs", "pool_class"), RUN),
        (("observation", "encoder", "rgb", "core_kwargs", "backbone_class"), RUN),
        (("observation", "encoder", "rgb", "core_kwargs", "backbone_class"), "R3MConv"),
        (("observation", "encoder", "rgb", "core_class"), RUN),
        (("observation", "encoder", "rgb", "core_class"), ["VisualCore"]),
        (("observation", "encoder", "low_dim"), [{"deep": {"visual_core": RUN}}]),
        (("observation", "encoder", "rgb", "obs_randomizer_class"), RUN),
        (("observation", "encoder", "rgb", "backbone_kwargs"), {"pretrained": True}),
        (("meta",), {"pool_class": RUN}),
    ],
)
def test_what_robomimic_would_evaluate_or_download_is_refused(keys: tuple[str, ...], value: Any) -> None:
    """robomimic calls `eval` on some names of classes."""
    network = {**NETWORK, "checkpoint": text(config(*keys, value=value))}
    with pytest.raises(ValueError, match=r"^config\..*: .* (is not one of|downloads weights)"):
        find("robomimic").networks({"type": "none"}, network, architecture())


def test_a_tensor_may_be_called_as_an_attribute_is() -> None:
    tensors = {"training": [1], "ask": [2], "": [3], "a.b": [4]}
    networks = find("robomimic").networks({"type": "none"}, {**NETWORK, "tensors": tensors, "same": {}}, architecture())
    assert {tuple(each.shape) for each in networks.state_dict().values()} == {(1,), (2,), (3,), (4,)}
    assert networks["robomimic"].training is True


def test_a_copy_has_a_process_of_its_own(rollouts: list[Rollout]) -> None:
    policy = policy_of(1)
    act(policy, [[0.0]])
    other = deepcopy(policy)
    act(other, [[0.0]])
    act(policy, [[0.0]])
    assert [len(each.seen) for each in rollouts] == [2, 1]
    assert torch.equal(next(other.parameters()), next(policy.parameters()))


# -- what is made of a file ---------------------------------------------------------------------------------


def test_a_file_keeps_all_but_its_pickle(tmp_path: Path) -> None:
    path = made.FOLDER / f"{made.MIXTURE_IMAGES}.pth"
    translated = translate(path, made.robot(tmp_path, made.MIXTURE_IMAGES))
    payload = torch.load(path, weights_only=True)
    network, names = translated.manifest["network"], payload["model"]["nets"]
    assert json.loads(json.loads(network["checkpoint"])["config"]) == json.loads(payload["config"])
    assert {*network["tensors"], *network["same"]} == set(names)
    for name, first in network["same"].items():
        assert torch.equal(names[name], names[first])
    tensors = {name.partition("./")[2].replace("/", "."): value for name, value in translated.tensors.items()}
    assert all(torch.equal(tensors[name], names[name].float()) for name in network["tensors"])
    assert wanted(translated.manifest, path).keys() == translated.tensors.keys()


@pytest.mark.parametrize(("keys", "history"), [((), 1), (("algo", "rnn", "enabled"), 2)])
def test_a_recurrent_one_sees_two_instants(keys: tuple[str, ...], history: int, tmp_path: Path) -> None:
    change = made.nested(*keys, value=True) if keys else lambda payload, config: None
    path = made.changed(tmp_path, made.CLONING_LOW_DIM, change)
    translated = translate(path, made.robot(tmp_path, made.CLONING_LOW_DIM))
    assert translated.manifest["observation"]["history"] == history
    told = json.loads(translated.manifest["network"]["checkpoint"])
    assert {*told["obs_normalization_stats"]} == {key for key, _ in made.OBJECT}
    assert len(told["action_normalization_stats"]["actions"]["scale"][0]) == 7


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda payload, config: payload.update(algo_name="hbc"), "payload.algo_name: 'hbc' is not supported"),
        (
            made.nested("observation", "modalities", "goal", "low_dim", value=["object"]),
            "observation.modalities.goal.low_dim: \\['object'\\] is not supported; expected none",
        ),
        (
            lambda payload, config: (
                config["algo"]["rnn"].update(enabled=True),
                config["train"].update(frame_stack=3),
            ),
            "bc_low_dim.pth: config.train.frame_stack: 3 is not supported; a recurrent policy has 1",
        ),
    ],
)
def test_what_robomimic_cannot_play_here_is_refused(change: Any, said: str, tmp_path: Path) -> None:
    path = made.changed(tmp_path, made.CLONING_LOW_DIM, change)
    with pytest.raises(CheckpointError, match=said):
        translate(path, made.robot(tmp_path, made.CLONING_LOW_DIM))


def test_another_device_is_refused() -> None:
    networks = find("robomimic").networks({"type": "none"}, NETWORK, architecture())
    assert isinstance(networks["robomimic"], RobomimicNetworks)
    with pytest.raises(ValueError, match="type 'robomimic': its process computes on the CPU"):
        find("robomimic").policy(networks, unit(architecture()), {}).to(torch.device("meta"))


def test_weights_of_a_pretrained_network_come_from_the_file(tmp_path: Path) -> None:
    rgb = ("observation", "encoder", "rgb", "core_kwargs", "backbone_kwargs")
    path = made.changed(tmp_path, made.MIXTURE_IMAGES, made.nested(*rgb, value={"pretrained": True}))
    translated = translate(path, made.robot(tmp_path, made.MIXTURE_IMAGES))
    told = json.loads(json.loads(translated.manifest["network"]["checkpoint"])["config"])
    for key in rgb:
        told = told[key]
    assert told == {"pretrained": False}
    wanted(translated.manifest, path)
