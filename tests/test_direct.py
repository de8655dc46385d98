"""`auras_ros.load(...).act(...)`: what the nodes would make of the same observation, and errors that name the thing."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import auras_ros
from auras_ros import resources
from auras_ros.direct.policy import DirectPolicy
from auras_ros.pipeline.noise import noise_tape
from auras_ros.policies import golden
from auras_ros.policies.golden import GoldenSample
from auras_ros.policies.policy import generate
from tests.policies import vision_language_checkpoints as tiny
from tests.policies.loaders import openvla_folder
from tests.policies.loaders.lerobot_tiny import tiny_backbones
from tests.policies.loaders.reference import DATA

__all__ = ["tiny_backbones"]
ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "python.md"
POSITION = {"agent_x": 256.0, "agent_y": 300.0}


@pytest.fixture(scope="module")
def loaded() -> Iterator[DirectPolicy]:
    made = auras_ros.load("pusht", seed=3)
    yield made
    made.close()


@pytest.fixture
def policy(loaded: DirectPolicy) -> DirectPolicy:
    loaded.reset()
    return loaded


@pytest.fixture
def sample() -> GoldenSample:
    """Two instants of a real table."""
    return GoldenSample.load(resources.checkpoint("pusht") / "golden.safetensors")


def instant(sample: GoldenSample, i: int, *, by_name: bool = False) -> dict[str, Any]:
    state = {name: float(values[i]) for name, values in sample.state.items()}
    images = {name: frames[i] for name, frames in sample.images.items()}
    return {"images": images, "state": {"gripper": 1.0, **state} if by_name else list(state.values())}


def expected(policy: DirectPolicy, sample: GoldenSample, request: int) -> Any:
    """The chunk without an executor: every part called by hand."""
    made = policy.checkpoint.policy(policy.plan)
    noise = noise_tape(made.noise_shape, 3, request)[None]
    return generate(made, noise, made.perceive(*golden.observed(policy.checkpoint.spec, sample)))[0].numpy()


def test_importing_the_package_costs_nothing() -> None:
    code = "import sys\nimport auras_ros\nprint(*sys.modules)"
    held = set(subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True).split())
    assert not {"torch", "numpy", "yaml", "rclpy", "cyclonedds", "auras_ros.ros"} & held


@pytest.mark.parametrize("by_name", [True, False], ids=["by name", "an array"])
def test_the_chunk_is_the_policys_own_with_its_history(
    policy: DirectPolicy, sample: GoldenSample, by_name: bool
) -> None:
    policy.observe(**instant(sample, 0, by_name=by_name))
    chunk = policy.act(**instant(sample, 1, by_name=by_name))
    assert np.allclose(chunk.values, expected(policy, sample, 0), atol=1e-4)
    assert (chunk.values.shape, chunk.values.dtype) == ((16, 2), np.float64)
    assert (chunk.names, chunk.dt_ms) == (("agent_x", "agent_y"), 100)


def test_the_first_observation_stands_for_those_before_it(policy: DirectPolicy, sample: GoldenSample) -> None:
    twice = GoldenSample(
        {name: np.stack([frames[1]] * 2) for name, frames in sample.images.items()},
        {name: values[[1, 1]] for name, values in sample.state.items()},
        {},
    )
    assert np.allclose(policy.act(**instant(sample, 1)).values, expected(policy, twice, 0), atol=1e-4)


def test_the_same_calls_after_a_reset_give_the_same_chunks(policy: DirectPolicy, sample: GoldenSample) -> None:
    first = [policy.act(**instant(sample, i)).values for i in (0, 1)]
    policy.reset()
    again = [policy.act(**instant(sample, i)).values for i in (0, 1)]
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(*first)


def test_a_buffer_may_be_used_again(policy: DirectPolicy, sample: GoldenSample) -> None:
    """Guards against a history that is the newest frame twice."""
    frame = sample.images["top"][0].copy()
    policy.observe({"top": frame}, instant(sample, 0)["state"])
    frame[:] = sample.images["top"][1]
    chunk = policy.act({"top": frame}, instant(sample, 1)["state"])
    assert np.allclose(chunk.values, expected(policy, sample, 0), atol=1e-4)


FRAME = np.zeros((96, 96, 3), np.uint8)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, r"images: camera 'top' is missing: uint8 RGB \[96, 96, 3\]"),
        ({"images": {"top": FRAME, "tpo": FRAME}}, "images: no camera 'tpo' in this policy; its cameras: top"),
        ({"images": {"top": FRAME}}, "state: is missing: positions of agent_x, agent_y"),
        ({"images": {"top": FRAME}, "state": {"agent_x": 1.0}}, "state: joint 'agent_y' is missing"),
        ({"images": {"top": FRAME}, "state": [1.0]}, r"state: shape \[1\], expected \[2\]: agent_x, agent_y"),
        ({"images": {"top": FRAME}, "state": [1.0, np.nan]}, "agent_y: non_finite"),
        ({"images": {"top": FRAME[:9]}, "state": POSITION}, r"top: bad_size: shape \(9, 96, 3\)"),
        ({"images": {"top": FRAME / 255.0}, "state": POSITION}, "top: bad_data: dtype float64, expected uint8"),
        ({"images": {"top": FRAME}, "state": POSITION, "prompt": "push"}, "prompt: this policy takes none"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_missing_or_wrong_is_named(policy: DirectPolicy, given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        policy.act(**given)
    assert policy.act({"top": FRAME}, POSITION).values.shape == (16, 2)  # and the next call is good


def test_weights_have_the_type_that_was_asked_for(sample: GoldenSample) -> None:
    policy = auras_ros.load("pusht", seed=3, dtype="bfloat16")
    assert next(policy._policy.parameters()).dtype == torch.bfloat16
    assert np.isfinite(policy.act(**instant(sample, 0)).values).all()
    policy.close()
    with pytest.raises(ValueError, match="dtype 'int8': must be one of auto"):
        auras_ros.load("pusht", dtype="int8")


def test_a_plan_of_another_mode_is_refused_because_a_call_is_one_request() -> None:
    assert auras_ros.load("pusht", plan="quick,mode=seq").plan == "quick"
    with pytest.raises(ValueError, match="plan: quick,mode=auras,pp_generation=2: act makes one request at a time"):
        auras_ros.load("pusht", plan="quick,mode=auras,pp_generation=2")


def test_a_plan_that_is_none_is_answered_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="has no plan 'quickest'; its plans: quick, ddpm100"):
        auras_ros.load("pusht", plan="quickest")
    with pytest.raises(FileNotFoundError, match="no_such_policy"):
        auras_ros.load("no_such_policy")


@pytest.mark.usefixtures("tiny_backbones")
def test_another_librarys_folder_is_called_in_the_same_way() -> None:
    policy = auras_ros.load(DATA / "lerobot_act")
    images = {name: np.zeros(shape, np.uint8) for name, shape in policy.cameras.items()}
    chunk = policy.act(images, dict.fromkeys(policy.joints, 0.1))
    assert chunk.values.shape == (policy.checkpoint.horizon, len(chunk.names))
    assert np.isfinite(chunk.values).all()


def test_openvla_s_folder_too(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    openvla_folder.write(tmp_path / "openvla")
    with openvla_folder.tiny_encoders():
        policy = auras_ros.load(tmp_path / "openvla")
    images = {name: np.full(shape, 90, np.uint8) for name, shape in policy.cameras.items()}
    chunk = policy.act(images)
    assert chunk.values.shape == (1, len(chunk.names))
    assert np.isfinite(chunk.values).all()


def test_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Its first part wherever the package is, its second where the simulator is, and what asks a model."""
    first, second, third = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(first, names)
    said, shape = capsys.readouterr().out.splitlines()
    assert said.startswith("pusht, plan quick of quick, ddpm100: cameras top [96, 96, 3]; joints agent_x, agent_y;")
    assert shape == "('agent_x', 'agent_y') 100 (16, 2)"
    pytest.importorskip("gym_pusht")
    exec(second, names)
    assert re.fullmatch(r"solved \d+\n", capsys.readouterr().out)
    exec(third, names)
    assert capsys.readouterr().out.strip()


def test_a_prompt_is_taken_kept_and_refused_by_name(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    tiny.written(tmp_path / "rt2", "rt2", tokenizer=True, state=False, prompt_limit=24)
    policy = auras_ros.load(tmp_path / "rt2")
    assert policy.prompt == tiny.TEXT
    random = np.random.default_rng(0)
    images = {name: random.integers(0, 256, shape, np.uint8) for name, shape in policy.cameras.items()}
    own = policy.act(images).values
    policy.reset()
    other = policy.act(images, prompt="pull the red cup away").values
    assert policy.prompt == "pull the red cup away"
    assert not np.array_equal(own, other)
    policy.reset()
    assert np.array_equal(policy.act(images).values, other)  # it is kept
    with pytest.raises(ValueError, match="41 tokens, but this policy takes 24 at most"):
        policy.act(images, prompt=" ".join(["push"] * 30))
    with pytest.raises(ValueError, match="is missing"):
        policy.act({}, prompt=tiny.TEXT)  # a call that is refused changes no prompt
    assert policy.prompt == "pull the red cup away"
    policy.reset()
    assert np.array_equal(policy.act(images, prompt=tiny.TEXT).values, own)
