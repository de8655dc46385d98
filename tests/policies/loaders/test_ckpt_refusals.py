"""diffusion_policy's .ckpt: what is wrong in a file, and what is not built, is refused by its name.

Guards: a tensor, a statistic or a key whose loss goes unnoticed; a variant that runs as if it were another.
"""

from __future__ import annotations

import copy
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.policies.loaders.ckpt import translate
from auras_ros.policies.loaders.robot import Robot
from tests.policies.loaders import diffusion_policy_file as made
from tests.policies.loaders.diffusion_policy_file import HYBRID_TRANSFORMER, Policy, image_unet


def _without(name: str) -> Callable[[Policy, made.Weights], Any]:
    return lambda policy, weights: weights.pop(name)


def _with(name: str, change: Callable[[Tensor], Tensor]) -> Callable[[Policy, made.Weights], Any]:
    return lambda policy, weights: weights.update({name: change(weights[name])})


def _says(key: str, value: Any, inside: str | None = None) -> Callable[[Policy, made.Weights], Any]:
    return lambda policy, weights: (policy if inside is None else policy[inside]).update({key: value})


SCALE, LINEAR = "normalizer.params_dict.action.scale", "obs_encoder.obs_nets.image.nets.3.weight"
FAULTS: dict[str, tuple[Callable[[Policy, made.Weights], Any], str]] = {
    "missing tensor": (_without("model.final_conv.1.bias"), "tensor 'model.final_conv.1.bias' is missing"),
    "missing encoder tensor": (_without(LINEAR), f"tensor '{LINEAR}' is missing"),
    "unknown tensor": (
        lambda policy, weights: weights.update({"model.extra": torch.zeros(1)}),
        "tensor 'model.extra' belongs to no part",
    ),
    "wrong shape": (_with("model.final_conv.1.bias", lambda t: t[:2]), "'model.final_conv.1.bias' has shape \\[2\\]"),
    "NaN": (_with(LINEAR, lambda t: t * torch.nan), f"tensor '{LINEAR}' holds NaN"),
    "missing statistics": (_without(SCALE), f"tensor '{SCALE}' is missing: the statistics of 'action'"),
    "NaN in statistics": (_with(SCALE, lambda t: t * torch.nan), f"tensor '{SCALE}' holds NaN"),
    "no range": (_with(SCALE, torch.zeros_like), f"tensor '{SCALE}': .* is not above zero"),
    "statistics of another size": (_with(SCALE, lambda t: t[:1]), f"'{SCALE}' has shape \\[1\\], expected \\[3\\]"),
    "temperature": (
        _with("obs_encoder.obs_nets.image.pool.temperature", lambda t: t * 2),
        "pool.temperature': a temperature other than 1",
    ),
    "another policy": (
        _says("_target_", "diffusion_policy.policy.bet_lowdim_policy.BETLowdimPolicy"),
        "BETLowdimPolicy' is not supported; expected DiffusionUnetHybridImagePolicy",
    ),
    "unknown key": (_says("kernel", 3), "payload.cfg.policy: key 'kernel' is unknown"),
    "inpainting": (_says("obs_as_global_cond", False), "policy.obs_as_global_cond: False is not supported"),
    "beta schedule": (_says("beta_schedule", "linear", "noise_scheduler"), "beta_schedule: 'linear' is not supported"),
    "variance": (_says("variance_type", "fixed_large", "noise_scheduler"), "variance_type: 'fixed_large'"),
    "scheduler": (_says("_target_", "PNDM", "noise_scheduler"), "noise_scheduler._target_: 'PNDM' is not supported"),
    "scheduler's key": (_says("thresholding", True, "noise_scheduler"), "key 'thresholding' is unknown"),
    "more steps than trained": (
        _says("num_inference_steps", 13),
        "num_inference_steps: 13 is not supported; expected at most the 12 of the training",
    ),
    "not resolved": (_says("horizon", "${horizon}"), "policy.horizon: '\\${horizon}' was saved before it was resolved"),
    "too many actions": (_says("n_action_steps", 8), "n_action_steps: 8 is not supported; expected at most 7"),
    "depth picture": (
        lambda policy, weights: policy["shape_meta"]["obs"]["image"].update(type="depth"),
        "obs.image.type: 'depth' is not supported",
    ),
    "crop too large": (
        _says("crop_shape", [50, 50]),
        "crop_shape: \\[50, 50\\] is not supported; expected at most \\[40, 40\\]",
    ),
    "crop no pair": (_says("crop_shape", [50]), "crop_shape: \\[50\\] is not supported"),
    "another joint": (
        lambda policy, weights: policy["shape_meta"]["obs"]["agent_pos"].update(shape=[3]),
        "robot.json: state: 2 names .*whose states are agent_pos \\(3\\), has 3",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_wrong_or_not_built_is_refused_by_name(name: str, tmp_path: Path) -> None:
    change, said = FAULTS[name]
    policy = made.config()
    weights = made.state_dict(policy)
    change(policy, weights)
    (tmp_path / "robot.json").write_text(json.dumps(made.robot()))
    path = made.write(tmp_path / "made.ckpt", policy, weights)
    with pytest.raises(CheckpointError, match=said):
        translate(path, Robot.load(tmp_path / "robot.json")).checkpoint("digest", path)


OTHERS: dict[str, tuple[Policy, str]] = {
    "layers over observations": (made.config(HYBRID_TRANSFORMER, n_cond_layers=2), "n_cond_layers: 2 is not supp"),
    "time among the tokens": (made.config(HYBRID_TRANSFORMER, time_as_cond=False), "time_as_cond: False is not supp"),
    "sees what is to come": (made.config(HYBRID_TRANSFORMER, causal_attn=False), "causal_attn: False is not supp"),
    "executed actions alone": (made.config(HYBRID_TRANSFORMER, pred_action_steps_only=True), "pred_action_steps_only"),
    "resized": (image_unet(resize_shape=[20, 20]), "resize_shape: \\[20, 20\\] is not supported; expected the size of"),
    "ResNet50": (image_unet(rgb_model={"name": "resnet50"}), "rgb_model.name: 'resnet50' is not supported"),
    "another encoder": (image_unet(_target_="timm"), "obs_encoder._target_: 'timm' is not supported"),
    "encoder's key": (image_unet(pos_enc=True), "obs_encoder: key 'pos_enc' is unknown"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_variants_that_are_not_built_are_refused_by_key(name: str, tmp_path: Path) -> None:
    policy, said = OTHERS[name]
    path = made.write(tmp_path / "made.ckpt", policy, made.state_dict(policy))
    (tmp_path / "robot.json").write_text(json.dumps(made.robot(policy["shape_meta"]["obs"])))
    with pytest.raises(CheckpointError, match=said):
        translate(path, Robot.load(tmp_path / "robot.json"))


class Call:
    """Pickles as a call of `print` with these arguments."""

    def __init__(self, *args: Any) -> None:
        self.args = args

    def __reduce__(self) -> tuple[Any, ...]:
        return print, self.args


def _laughs() -> Any:
    """A trillion values in forty pairs."""
    made: Any = ("ha",)
    for _ in range(40):
        made = (made, made)
    return made


def _calls(depth: int) -> Any:
    made: Any = Call()
    for _ in range(depth):
        made = Call(made)
    return made


ENORMOUS = 10**5000  # which Python does not even spell out
HUGE: dict[str, tuple[Callable[[Policy, made.Weights], Any], str]] = {
    "a record of very many": (
        _says("_target_", Call(_laughs())),
        "policy._target_: <(__builtin__|builtins).print> is not supported; expected text",
    ),
    "records in records": (_says("horizon", _calls(150)), "policy.horizon: <(__builtin__|builtins).print> is not"),
    "a key that is enormous": (
        lambda policy, weights: policy.update({ENORMOUS: 1}),
        "ckpt: a key is a number of 16610 bits",
    ),
    "history": (_says("n_obs_steps", 10**8), "policy.n_obs_steps: 100000000 is not supported; expected 64 at most"),
    "horizon": (_says("horizon", 4 * 10**8), "policy.horizon: 400000000 is not supported; expected 1024 at most"),
    "steps": (
        _says("num_train_timesteps", 10**9, "noise_scheduler"),
        "num_train_timesteps: 1000000000 is not supported; expected 1000 at most",
    ),
    "channels": (
        _says("down_dims", [1 << 62, 1 << 62]),
        "policy.down_dims: .* is not supported; expected some whole numbers above zero, 65536 at most",
    ),
    "clipping": (
        _says("clip_sample_range", ENORMOUS, "noise_scheduler"),
        "noise_scheduler.clip_sample_range: a number of 16610 bits is not supported",
    ),
    "a picture's side": (
        lambda policy, weights: policy["shape_meta"]["obs"]["image"].update(shape=[3, ENORMOUS, 40]),
        "obs.image.shape: .* is not supported",
    ),
    "a scalar for the encoder's size": (
        lambda policy, weights: weights.update({LINEAR: torch.tensor(1.0)}),
        f"tensor '{LINEAR}' has shape \\[\\], expected at least 1 dimensions",
    ),
    "a row for the step's size": (
        lambda policy, weights: (
            policy.pop("diffusion_step_embed_dim"),
            weights.update({"model.diffusion_step_encoder.1.weight": torch.zeros(5)}),
        ),
        "tensor 'model.diffusion_step_encoder.1.weight' has shape \\[5\\], expected at least 2 dimensions",
    ),
    **{
        f"{key} enormous": (_says(key, ENORMOUS), f"policy.{key}: a number of 16610 bits is not supported")
        for key in ("n_obs_steps", "horizon", "n_action_steps", "kernel_size", "n_groups")
    },
}


@pytest.mark.parametrize("name", HUGE)
def test_what_would_take_for_ever_or_has_no_text_is_refused(name: str, tmp_path: Path) -> None:
    change, said = HUGE[name]
    policy = made.config()
    weights = made.state_dict(policy)
    change(policy, weights)
    (tmp_path / "robot.json").write_text(json.dumps(made.robot()))
    path = made.write(tmp_path / "made.ckpt", policy, weights)
    with pytest.raises(CheckpointError, match=said):
        translate(path, Robot.load(tmp_path / "robot.json"))


def test_thousands_of_records_in_records_are_refused(tmp_path: Path) -> None:
    """Deeper than Python's stack."""
    call = b"cbuiltins\nprint\n"
    deep = call * 3000 + b")R" + b"\x85R" * 2999
    path = made.write(tmp_path / "made.ckpt", made.config(), made.state_dict(made.config()))
    pickled = b"\x80\x02}(X\x03\x00\x00\x00cfg}X\x06\x00\x00\x00policy}X\x08\x00\x00\x00_target_" + deep
    pickled += b"ssX\x0b\x00\x00\x00state_dicts}X\x05\x00\x00\x00model}su."
    with zipfile.ZipFile(path) as old:
        entries = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(path, "w") as new:
        for name, data in entries.items():
            new.writestr(name, pickled if name.endswith("data.pkl") else data)
    (tmp_path / "robot.json").write_text(json.dumps(made.robot()))
    with pytest.raises(CheckpointError, match=r"_target_: <builtins.print> is not supported; expected text"):
        translate(path, Robot.load(tmp_path / "robot.json"))


def test_one_storage_under_many_names_is_refused_before_it_is_read(tmp_path: Path) -> None:
    policy = made.config()
    big = torch.zeros(500_000)
    weights = {
        name: big if name.startswith("model.") and "diffusion_step_encoder" not in name else tensor
        for name, tensor in made.state_dict(policy).items()
    }
    saved = made.payload(policy, weights)
    del saved["state_dicts"]["model"]
    torch.save(saved, tmp_path / "made.ckpt")
    (tmp_path / "robot.json").write_text(json.dumps(made.robot()))
    with pytest.raises(CheckpointError, match="several are one and the same part of it"):
        translate(tmp_path / "made.ckpt", Robot.load(tmp_path / "robot.json"))


def test_what_is_no_such_checkpoint_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "robot.json").write_text(json.dumps(made.robot()))
    robot, path = Robot.load(tmp_path / "robot.json"), tmp_path / "made.ckpt"
    saved = made.payload(made.config(), made.state_dict(made.config()))
    wrong: list[tuple[Any, str]] = [
        ({"state_dict": {}}, "is not a checkpoint of diffusion_policy"),
        ([1], "is not a checkpoint of diffusion_policy"),
        ({**saved, "state_dicts": {}}, "has neither ema_model nor model"),
        ({**saved, "cfg": {}}, "payload.cfg: key 'policy' is missing"),
        ({**saved, "cfg": 3}, "payload.cfg: 3 is not supported; expected an object"),
    ]
    for value, said in wrong:
        torch.save(value, path)
        with pytest.raises(CheckpointError, match=said):
            translate(path, robot)
    path.write_bytes(b"PK\x03\x04 but no more")
    with pytest.raises(CheckpointError, match="is not a zip file as torch"):
        translate(path, robot)
    torch.save(copy.deepcopy(saved), path, _use_new_zipfile_serialization=False)
    with pytest.raises(CheckpointError, match="is not a zip file as torch"):
        translate(path, robot)
    whole = made.write(path, made.config(), made.state_dict(made.config())).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match="ckpt: is not a zip file"):
        translate(path, robot)
