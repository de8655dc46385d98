"""A folder is opened by what its own files say; pickles are refused with the command that converts them.

Guards: a pickle that is opened because a folder was given; a foreign folder that counts as checked; two folders with
one digest in the provenance.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from auras_ros import resources
from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.clock import VirtualClock
from auras_ros.loading.pipeline import PipelineSettings, load_pipeline
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.loaders.open import load
from tests.policies import tiny
from tests.policies.loaders.lerobot_tiny import copied, edit_json, edit_tensors, tiny_backbones

__all__ = ["tiny_backbones"]
pytestmark = pytest.mark.usefixtures("tiny_backbones")


def test_our_own_folder_is_verified(tmp_path: Path) -> None:
    tiny.write(tmp_path / "tiny")
    assert load(tmp_path / "tiny").verified


def test_a_pickle_is_refused_with_the_exact_command(tmp_path: Path) -> None:
    file = tmp_path / "epoch=0100.ckpt"
    file.write_bytes(b"PK\x03\x04")
    command = f"auras convert {file} --robot robot.json --out {tmp_path}/epoch=0100"
    for source in (file, tmp_path):
        with pytest.raises(CheckpointError) as refused:
            load(source)
        assert command in str(refused.value)
    with pytest.raises(CheckpointError, match="auras convert"):  # as the agent is given it
        load_pipeline(resources.checkpoint(str(file)), Plan("all"), PipelineSettings(), VirtualClock())


@pytest.mark.parametrize("text", [None, "{}", '{"model_type": "llama"}'])
def test_what_is_no_checkpoint_says_what_was_looked_for(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"not a checkpoint: looked for policy.json .*'type' \(LeRobot\)"):
        load(tmp_path)
    with pytest.raises(CheckpointError, match="not a checkpoint"):
        load(tmp_path / "nowhere")


def test_ours_wins_where_there_are_both(tmp_path: Path) -> None:
    folder = copied("lerobot_act", tmp_path)
    tiny.write(tmp_path / "tiny")
    shutil.copytree(tmp_path / "tiny", folder, dirs_exist_ok=True)
    assert load(folder).name == "tiny"


def test_every_file_that_decides_is_in_the_digest(tmp_path: Path) -> None:
    folder = copied("lerobot_act", tmp_path)
    digests = {load(folder).digest}
    edit_json(folder / "robot.json", lambda robot: robot["state"].reverse())
    digests.add(load(folder).digest)
    edit_tensors(folder / "model.safetensors", lambda t: t["model.action_head.bias"].add_(1))
    digests.add(load(folder).digest)
    name = "policy_postprocessor_step_0_unnormalizer_processor.safetensors"
    edit_tensors(folder / name, lambda t: t["action.mean"].add_(1))
    digests.add(load(folder).digest)
    assert len(digests) == 4
    assert load(folder).digest in digests


def test_a_plan_that_robot_json_adds_is_tried_at_once(tmp_path: Path) -> None:
    folder = copied("lerobot_act", tmp_path)
    edit_json(folder / "robot.json", lambda robot: robot.update(plans={"slow": {"steps": 3}}))
    with pytest.raises(CheckpointError, match="plan 'slow': key 'steps' is unknown"):
        load(folder)
