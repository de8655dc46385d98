"""A checkpoint that robomimic itself plays does through the four methods what it does in robomimic's own rollout.

It needs the environment `robomimic`: `make test-robomimic`.

Guards: a recurrent policy that forgets at another step than robomimic's, or mixes up two episodes; a history, a picture
or a statistic that reaches robomimic in another form; a world of robomimic's that its policy cannot play.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from auras_ros.environments import ROBOMIMIC

if not ROBOMIMIC.made:
    pytest.skip("needs robomimic's environment: make test-robomimic", allow_module_level=True)
pytest.importorskip("torch", reason="is played from our own environment")

import torch

from auras_ros.child.process import ProcessLostError
from auras_ros.cli.main import main
from auras_ros.policies.checkpoint import Checkpoint, load
from auras_ros.policies.golden import GoldenSample, observed
from auras_ros.policies.policy import generate
from auras_ros.policies.robomimic.family import RobomimicNetworks

ROOT = Path(__file__).parents[2]
SEED = 5  # as in robomimic_files.py
STATES = ("object", "robot0_eef_pos", "robot0_eef_quat", "robot0_gripper_qpos")
NAMES = ("rnn", "rnn_images", "rnn_open_loop", "transformer", "vae", "iql")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("robomimic")
    program = ROOT / "tests/worlds/robomimic_files.py"
    command = [str(ROBOMIMIC.python("robomimic")), str(program), str(folder)]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def converted(files: Path) -> Mapping[str, Path]:
    for name in NAMES:
        given = ["convert", str(files / f"{name}.pth"), "--inference", "robomimic", "--out", str(files / name)]
        assert main(given) == 0
    return {name: files / name for name in NAMES}


def instant(seen: Any, checkpoint: Checkpoint, step: int) -> tuple[Any, Any]:
    """(images, state) of the four methods for this control step, one row."""
    spec = checkpoint.spec
    steps = [max(0, step - back) for back in reversed(range(spec.history))]
    images = {camera.name: seen[f"{camera.name}_image"][steps] for camera in spec.cameras}
    values = np.concatenate([seen[key] for key in STATES], axis=1)[steps].astype(np.float64)
    assert spec.state is not None
    sample = GoldenSample(images, dict(zip(spec.state.names, values.T, strict=True)), {})
    return observed(spec, sample)


def noise_of(seed: int) -> Any:
    """A noise tape from which robomimic's generator gets this seed."""
    return torch.from_numpy(np.array([[seed]], dtype=np.uint32).view(np.float32).copy())


def act(policy: Any, rows: list[tuple[Any, Any]], seeds: list[int]) -> Any:
    images, state = (torch.cat([row[part] for row in rows]) for part in (0, 1))
    noise = torch.cat([noise_of(seed) for seed in seeds])
    return generate(policy, noise, policy.perceive(images, state))[:, 0].numpy()


@pytest.mark.parametrize("name", NAMES)
def test_it_acts_as_in_robomimics_own_rollout(name: str, converted: Mapping[str, Path], files: Path) -> None:
    """Bit for bit, over more steps than a recurrent policy remembers."""
    checkpoint, seen = load(converted[name]), np.load(files / f"{name}.npz")
    policy = checkpoint.policy("")
    for step, wanted in enumerate(seen["actions"]):
        got = act(policy, [instant(seen, checkpoint, step)], [SEED + step])[0]
        np.testing.assert_array_equal(got, wanted.astype(np.float64), err_msg=f"step {step}")
    assert len(seen["actions"]) == 13


@pytest.mark.parametrize("name", ["rnn", "rnn_images", "transformer"])
def test_episodes_in_one_batch_do_not_see_each_other(name: str, converted: Mapping[str, Path], files: Path) -> None:
    """One is four steps behind; a request that comes twice is the same request."""
    checkpoint, seen = load(converted[name]), np.load(files / f"{name}.npz")
    policy, behind = checkpoint.policy(""), 4
    for step in range(len(seen["actions"])):
        steps = [each for each in (step, step - behind) if each >= 0]
        rows = [instant(seen, checkpoint, each) for each in steps]
        for _ in range(2):
            got = act(policy, rows, [SEED + each for each in steps])
            np.testing.assert_array_equal(got, seen["actions"][steps].astype(np.float64), err_msg=f"step {step}")


def test_another_device_is_refused_by_name(converted: Mapping[str, Path]) -> None:
    with pytest.raises(ValueError, match="type 'robomimic': its process computes on the CPU"):
        load(converted["vae"]).policy("").to(torch.device("meta"))


def test_a_killed_process_is_said_with_how_it_ended(converted: Mapping[str, Path], files: Path) -> None:
    checkpoint, seen = load(converted["vae"]), np.load(files / "vae.npz")
    networks = checkpoint.networks["robomimic"]
    assert isinstance(networks, RobomimicNetworks)
    assert networks._process is not None
    os.kill(networks._process.pid, signal.SIGKILL)
    with pytest.raises(ProcessLostError, match=r"robomimic: the policy's process was ended by SIGKILL \(act\)"):
        act(checkpoint.policy(""), [instant(seen, checkpoint, 0)], [0])


@pytest.mark.parametrize("sim", ["lift:absolute=false,objects=true,turns=true", "robomimic:metadata={metadata}"])
def test_it_plays_its_own_task(sim: str, converted: Mapping[str, Path], tmp_path: Path) -> None:
    """In our world of the task, and in the one that robomimic makes by the file's metadata."""
    folder, report = converted["rnn"], tmp_path / "report.json"
    asked = ["eval", "--sim", sim.format(metadata=folder / "env_metadata.json"), "--checkpoint", str(folder)]
    asked += ["--modes", "seq", "--clock", "paused"]
    assert main([*asked, "--episodes", "1", "--max-steps", "12", "--json", str(report)]) == 0
    (row,) = json.loads(report.read_text())["rows"]
    assert (row["hold_share"], row["episodes"]) == (0.0, 1)
