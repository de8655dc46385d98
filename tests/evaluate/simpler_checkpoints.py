"""Tiny checkpoints with random weights for SimplerEnv's tasks: a folder of OpenVLA, one of SmolVLA, one of ours."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from auras_ros.policies.writing import write_manifest
from tests.models.published_openvla import PublishedOpenVla
from tests.policies import tiny
from tests.policies.loaders import openvla_folder
from tests.policies.loaders.reference import DATA

AXES = ("x", "y", "z", "roll", "pitch", "yaw")
CAMERA = "overhead"
STATE = tuple(f"tcp_{axis}" for axis in AXES)
GOOGLE_DATA, BRIDGE_DATA = "fractal20220817_data", "bridge_orig"
STATISTICS = {
    data: {"action": {"q01": [-size] * 6 + [0.0], "q99": [size] * 6 + [1.0], "mask": [True] * 6 + [False]}}
    for data, size in ((GOOGLE_DATA, 0.02), (BRIDGE_DATA, 0.03))
}
SMOLVLA, STATS = "lerobot_smolvla", "policy_preprocessor_step_5_normalizer_processor.safetensors"
UNSTATS = "policy_postprocessor_step_0_unnormalizer_processor.safetensors"


def channels() -> list[dict[str, Any]]:
    """Of a robot.json, as docs/worlds.md has them: the policy may leave the gripper's range a little."""
    arm = {"kind": "delta_previous", "lower": -2.0, "upper": 2.0, "hold": "zero"}
    made = [{"name": axis, "unit": "m" if axis in "xyz" else "rad", **arm} for axis in AXES]
    return [*made, {"name": "gripper", "unit": "", "kind": "gripper", "lower": -2.0, "upper": 2.0, "hold": "last"}]


def robot(dt_ms: int, **more: Any) -> dict[str, Any]:
    """A robot.json."""
    return {"dt_ms": dt_ms, "action": {"channels": channels()}, **more}


def openvla(folder: Path, dt_ms: int = 333, camera: str = CAMERA, data: str = GOOGLE_DATA) -> PublishedOpenVla:
    """It sees pictures of its own size, as the evaluation of OpenVLA makes them. To be loaded in `tiny_encoders`.
    Returns the model whose weights they are."""
    model = openvla_folder.write(folder)
    values = openvla_folder.config()
    values["norm_stats"] = STATISTICS
    (folder / "config.json").write_text(json.dumps(values))
    told = robot(dt_ms, cameras={"image": {"name": camera}}, prompt="pick up the carrot", unnorm_key=data)
    (folder / "robot.json").write_text(json.dumps(told))
    return model


def smolvla(folder: Path, cameras: tuple[str, ...] = ("image",), dt_ms: int = 333) -> Path:
    """The fixture with other numbers of actions, joints and cameras. To be loaded after `tiny_vla.shrink`."""
    made = Path(shutil.copytree(DATA / SMOLVLA, folder))
    values = json.loads((made / "config.json").read_text())
    pictures = {f"observation.images.{name}": {"type": "VISUAL", "shape": [3, 32, 32]} for name in cameras}
    state = {"observation.state": {"type": "STATE", "shape": [len(STATE)]}}
    values |= {
        "input_features": {**pictures, **state},
        "max_state_dim": 8,
        "max_action_dim": 8,
        "tokenizer_max_length": 48,
    }
    values["output_features"] = {"action": {"type": "ACTION", "shape": [7]}}
    (made / "config.json").write_text(json.dumps(values))
    tensors = load_file(made / "model.safetensors")
    for name, shape in (("action_in_proj.weight", (24, 8)), ("action_out_proj.weight", (8, 24)),
                        ("action_out_proj.bias", (8,)), ("state_proj.weight", (32, 8))):  # fmt: skip
        tensors[f"model.{name}"] = 0.1 * torch.randn(shape, generator=torch.Generator().manual_seed(len(name)))
    save_file(tensors, made / "model.safetensors")
    stats = {
        "action.mean": torch.zeros(7), "action.std": torch.full((7,), 0.02),
        "observation.state.mean": torch.zeros(6), "observation.state.std": torch.ones(6),
    }  # fmt: skip
    for file in (STATS, UNSTATS):
        save_file(stats, made / file)
    _features(made / "policy_preprocessor.json", {**values["input_features"], **values["output_features"]})
    _features(made / "policy_postprocessor.json", values["output_features"])
    seen = {name: {"name": CAMERA if place == 0 else name} for place, name in enumerate(cameras)}
    told = robot(dt_ms, state=list(STATE), cameras=seen, prompt="pick up the_cube")
    (made / "robot.json").write_text(json.dumps(told))
    return made


def _features(path: Path, features: dict[str, Any]) -> None:
    values = json.loads(path.read_text())
    for step in values["steps"]:
        if "max_length" in step["config"]:
            step["config"]["max_length"] = 48
        if "features" in step["config"]:
            step["config"]["features"] = features
    path.write_text(json.dumps(values))


def ours(folder: Path, dt_ms: int = 333, joint: str = STATE[-1]) -> Path:
    """A diffusion policy, which takes no instruction."""
    names = [*STATE[:-1], joint]
    manifest = tiny.manifest(
        observation={
            "cameras": [{**tiny.MANIFEST["observation"]["cameras"][0], "name": CAMERA}],
            "state": {"names": names, "normalization": {"kind": "min_max", "min": [-1.0] * 6, "max": [1.0] * 6}},
            "history": 2,
            "dt_ms": dt_ms,
        },
        action={"dt_ms": dt_ms, "channels": channels()},
        statistics={"kind": "min_max", "lower": [-0.02] * 6 + [0.0], "upper": [0.02] * 6 + [1.0]},
    )
    weights = tiny.checkpoint(**manifest).networks.state_dict()
    del manifest["weights"]
    random = np.random.default_rng(0)
    images = {CAMERA: random.integers(0, 256, (2, tiny.SIDE, tiny.SIDE, 3), dtype=np.uint8)}
    write_manifest(folder, manifest, weights, images, {name: random.uniform(-1, 1, 2) for name in names})
    return folder
