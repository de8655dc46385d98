"""Whatever does not fit in a LeRobot folder is refused, the foreign file and key or tensor named.

Guards: a policy that runs with a weight left random, a statistic that was never computed, or a setting that is
silently not done.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.policies.loaders import lerobot_act, lerobot_diffusion
from auras_ros.policies.loaders.open import load
from tests.policies.loaders.lerobot_tiny import copied, edit_json, edit_tensors, tiny_backbones

__all__ = ["tiny_backbones"]
pytestmark = pytest.mark.usefixtures("tiny_backbones")

NORMALIZER = "policy_preprocessor_step_3_normalizer_processor.safetensors"
UNNORMALIZER = "policy_postprocessor_step_0_unnormalizer_processor.safetensors"
UNET, STEM = "diffusion.unet.final_conv.1.bias", "diffusion.rgb_encoder.backbone.0.weight"
FILM = "diffusion.unet.mid_modules.0.cond_encoder.1.weight"
CAMERA = "observation.images.top"


def weights(edit: Callable[[dict[str, Tensor]], Any]) -> Callable[[Path], None]:
    return lambda folder: edit_tensors(folder / "model.safetensors", edit)


def statistic(file: str, name: str, edit: Callable[[Tensor], Any]) -> Callable[[Path], None]:
    return lambda folder: edit_tensors(folder / file, lambda tensors: edit(tensors[name]))


def config(**changes: Any) -> Callable[[Path], None]:
    return lambda folder: edit_json(folder / "config.json", lambda values: values.update(changes))


def features(edit: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    return lambda folder: edit_json(folder / "config.json", lambda values: edit(values["input_features"]))


def processor(
    edit: Callable[[list[dict[str, Any]]], Any], file: str = "policy_preprocessor.json"
) -> Callable[[Path], None]:
    return lambda folder: edit_json(folder / file, lambda values: edit(values["steps"]))


def norm_map(part: str = "pre", **changes: Any) -> Callable[[Path], None]:
    """Another normalisation in the processors alone; None takes the kind away."""
    at = {"pre": 3, "post": 0}[part]
    return processor(
        lambda steps: steps[at]["config"].update(norm_map=_changed(steps[at]["config"]["norm_map"], changes)),
        f"policy_{part}processor.json",
    )


def without_processors(folder: Path) -> None:
    for path in folder.glob("policy_*"):
        path.unlink()


def mapped(**changes: Any) -> Callable[[Path], None]:
    """Another normalisation in config.json alone."""
    return lambda folder: edit_json(
        folder / "config.json",
        lambda values: values.update(normalization_mapping=_changed(values["normalization_mapping"], changes)),
    )


def _changed(modes: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {kind: mode for kind, mode in {**modes, **changes}.items() if mode is not None}


def pickled(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(pickle.dumps({"weight": [1.0]}))  # type: ignore[return-value]


def renamed(name: str, to: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).rename(folder / to)  # type: ignore[return-value]


def cut(name: str, share: float) -> Callable[[Path], None]:
    def truncate(folder: Path) -> None:
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[: int(len(whole) * share)])

    return truncate


FAULTS: dict[str, tuple[Callable[[Path], Any], str]] = {
    # weights
    "tensor missing": (weights(lambda t: t.pop(UNET)), f"model.safetensors: tensor '{UNET}' is missing"),
    "tensor unknown": (
        weights(lambda t: t.update(bonus=torch.zeros(1))),
        "model.safetensors: tensor 'bonus' belongs to no part of this policy",
    ),
    "tensor of another shape": (
        weights(lambda t: t.update({UNET: torch.zeros(5)})),
        rf"model.safetensors: tensor '{UNET}' has shape \[5\], expected \[3\]",
    ),
    "condition of another width": (
        weights(lambda t: t.update({FILM: torch.zeros(64, 39)})),
        rf"model.safetensors: tensor '{FILM}' has shape \[64, 39\], expected \[64, 40\]",
    ),
    "condition that is no matrix": (
        weights(lambda t: t.update({FILM: torch.zeros(64)})),
        rf"model.safetensors: tensor '{FILM}' has shape \[64\]",
    ),
    "tensor of integers": (
        weights(lambda t: t.update({UNET: torch.zeros(3, dtype=torch.int64)})),
        f"model.safetensors: tensor '{UNET}' has type torch.int64",
    ),
    "NaN in the weights": (
        weights(lambda t: t[STEM].view(-1)[:1].fill_(float("nan"))),
        f"model.safetensors: tensor '{STEM}' holds NaN or infinity",
    ),
    "infinity in the weights": (
        weights(lambda t: t[UNET].view(-1)[:1].fill_(float("inf"))),
        f"model.safetensors: tensor '{UNET}' holds NaN or infinity",
    ),
    "keypoints of pictures of another size": (
        config(crop_shape=[64, 64]),
        r"model.safetensors: tensor 'diffusion.rgb_encoder.pool.pos_grid' is not the grid of 2 x 2 places",
    ),
    "weights truncated": (cut("model.safetensors", 0.5), "model.safetensors: not a readable safetensors file"),
    "weights gone": (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors: file not found"),
    "weights pickled": (
        lambda folder: (renamed("model.safetensors", "x")(folder), pickled("pytorch_model.bin")(folder)),
        "model.safetensors: file not found; pytorch_model.bin is a pickle and is refused",
    ),
    "a pickle under a false name": (
        pickled("model.safetensors"),
        "model.safetensors: is a pickle despite its name and is refused",
    ),
    # statistics
    "statistic missing": (
        lambda folder: edit_tensors(folder / NORMALIZER, lambda t: t.pop("observation.state.max")),
        f"{NORMALIZER}: tensor 'observation.state.max', which normalises 'observation.state', is missing",
    ),
    "statistics of the actions missing": (
        lambda folder: edit_tensors(folder / UNNORMALIZER, lambda t: (t.pop("action.min"), t.pop("action.max"))),
        f"{UNNORMALIZER}: tensor 'action.min', which normalises 'action', is missing",
    ),
    "statistic NaN": (
        statistic(NORMALIZER, "observation.state.min", lambda t: t[1:2].fill_(float("nan"))),
        f"{NORMALIZER}: tensor 'observation.state.min' holds NaN",
    ),
    "statistic infinite": (
        statistic(UNNORMALIZER, "action.max", lambda t: t[1:2].fill_(float("inf"))),
        f"{UNNORMALIZER}: tensor 'action.max' holds NaN or infinity",
    ),
    "range upside down": (
        lambda folder: edit_tensors(
            folder / UNNORMALIZER, lambda t: t.update({"action.max": t["action.min"] - 1})
        ),
        rf"{UNNORMALIZER}: 'action.max'\[0\] of 'action': max \S+ is below min",
    ),
    "standard deviation below zero": (
        statistic(NORMALIZER, f"{CAMERA}.std", lambda t: t[2:3].fill_(-0.25)),
        rf"{NORMALIZER}: '{CAMERA}.std'\[2\] of '{CAMERA}': std -0.25 is below zero",
    ),
    "a range that nothing divides": (
        lambda folder: (
            processor(lambda steps: steps[3]["config"].update(eps=0))(folder),
            edit_tensors(
                folder / NORMALIZER,
                lambda t: t.update({"observation.state.max": t["observation.state.min"].clone()}),
            ),
        ),
        "state: joint 'shoulder': max: .* leaves no range",
    ),
    "statistic of another size": (
        lambda folder: edit_tensors(folder / NORMALIZER, lambda t: t.update({"observation.state.min": torch.zeros(3)})),
        rf"{NORMALIZER}: tensor 'observation.state.min' has shape \[3\], expected 4 numbers",
    ),
    "statistics of each pixel": (
        lambda folder: edit_tensors(folder / NORMALIZER, lambda t: t.update({f"{CAMERA}.mean": torch.zeros(3, 9, 8)})),
        rf"{NORMALIZER}: tensor '{CAMERA}.mean' has shape \[3, 9, 8\], expected 3 numbers",
    ),
    "statistics pickled": (pickled(NORMALIZER), f"{NORMALIZER}: is a pickle despite its name"),
    "statistics gone": (lambda folder: (folder / NORMALIZER).unlink(), f"{NORMALIZER}: file not found"),
    "no processors and nothing among the weights": (
        without_processors,
        "model.safetensors: tensor 'normalize_inputs.buffer_observation_images_top.mean'.* is missing",
    ),
    # processors
    "unknown normalisation": (
        lambda folder: (mapped(STATE="LOG")(folder), norm_map(STATE="LOG")(folder)),
        r"normalization of 'observation.state': 'LOG' is not known; known: IDENTITY, MIN_MAX",
    ),
    "unknown step": (
        processor(lambda steps: steps.insert(0, {"registry_name": "mirror_processor", "config": {}})),
        "policy_preprocessor.json: step 'mirror_processor' is not supported; expected",
    ),
    "unknown step after": (
        processor(lambda steps: steps.append({"class": "mine.Delta"}), "policy_postprocessor.json"),
        "policy_postprocessor.json: step 'mine.Delta' is not supported",
    ),
    "normalised twice": (
        processor(lambda steps: steps.append(steps[3])),
        "policy_preprocessor.json: step 'normalizer_processor' is given more than once",
    ),
    "state file elsewhere": (
        processor(lambda steps: steps[3].update(state_file="../other.safetensors")),
        "state_file: '../other.safetensors' is not a file of this folder",
    ),
    "a processor gone": (
        lambda folder: (folder / "policy_postprocessor.json").unlink(),
        "policy_postprocessor.json: file not found",
    ),
    "the other processor gone": (
        lambda folder: (folder / "policy_preprocessor.json").unlink(),
        "policy_preprocessor.json: file not found",
    ),
    "the normaliser gone": (
        processor(lambda steps: steps.pop(3)),
        "policy_preprocessor.json: step 'normalizer_processor' is missing; expected, in this order: normalizer_proc",
    ),
    "the inverse gone": (
        processor(lambda steps: steps.pop(0), "policy_postprocessor.json"),
        "policy_postprocessor.json: step 'unnormalizer_processor' is missing",
    ),
    "no steps at all": (
        lambda folder: [processor(lambda steps: steps.clear(), f"policy_{part}processor.json")(folder) for part in
                        ("pre", "post")],
        "policy_preprocessor.json: step 'normalizer_processor' is missing",
    ),
    "half precision before the network": (
        processor(lambda steps: steps[2]["config"].update(float_dtype="float16")),
        "policy_preprocessor.json: step 'device_processor': float_dtype: 'float16' is not supported",
    ),
    "a camera that is renamed to another's name": (
        processor(lambda steps: steps[0]["config"].update(rename_map={"observation.images.rear": CAMERA})),
        rf"rename_map: '{CAMERA}' was 'observation.images.rear' in training; say which camera of this robot",
    ),
    "renaming that is none": (
        processor(lambda steps: steps[0]["config"].update(rename_map=["top"])),
        r"rename_map: \['top'\] is not a map of names",
    ),
    "processors that normalise otherwise than config.json": (
        norm_map("post", ACTION="IDENTITY"),
        "json: step 'unnormalizer_processor': norm_map: ACTION is IDENTITY, but .*config.json has MIN_MAX",
    ),
    "processors without a kind": (
        norm_map(STATE=None),
        "policy_preprocessor.json: norm_map: 'STATE' is missing; without normalisation it is IDENTITY",
    ),
    "the inverse without actions": (
        norm_map("post", ACTION=None),
        "policy_postprocessor.json: norm_map: 'ACTION' is missing",
    ),
    "config.json without a kind": (mapped(ACTION=None), "config.json: normalization_mapping: 'ACTION' is missing"),
    "no processors and an empty mapping": (
        lambda folder: (config(normalization_mapping={})(folder), without_processors(folder)),
        "config.json: normalization_mapping: 'VISUAL' is missing",
    ),
    "a normaliser that leaves out the state": (
        processor(lambda steps: steps[3]["config"]["features"].pop("observation.state")),
        "step 'normalizer_processor': features: 'observation.state' is missing, though STATE is MIN_MAX",
    ),
    "a normaliser without features": (
        processor(lambda steps: steps[3]["config"].pop("features")),
        f"features: '{CAMERA}' is missing",
    ),
    "a normaliser that takes the state for a picture": (
        processor(lambda steps: steps[3]["config"]["features"]["observation.state"].update(type="VISUAL")),
        "features: 'observation.state' is .*VISUAL.*, but .*config.json has type STATE",
    ),
    "statistics that the digest would miss": (
        lambda folder: (
            renamed(NORMALIZER, "stats.dat")(folder),
            processor(lambda steps: steps[3].update(state_file="stats.dat"))(folder),
        ),
        "stats.dat: tensors are read from files that end in .safetensors, not in '.dat'",
    ),
    "a pickle of statistics": (
        lambda folder: (
            renamed(NORMALIZER, "stats.pt")(folder),
            processor(lambda steps: steps[3].update(state_file="stats.pt"))(folder),
        ),
        "stats.pt: pickled weights can run code",
    ),
    "settings that are none": (
        processor(lambda steps: steps[3].update(config=[1])),
        r"policy_preprocessor.json: step 'normalizer_processor': config: expected an object",
    ),
    "epsilon that is none": (processor(lambda steps: steps[3]["config"].update(eps="small")), "eps: 'small' is not"),
    "keys that are no list": (
        processor(lambda steps: steps[3]["config"].update(normalize_observation_keys=3)),
        "normalize_observation_keys: 3 is no list",
    ),
    "steps that are none": (
        lambda folder: edit_json(folder / "policy_preprocessor.json", lambda values: values.update(steps=3)),
        "policy_preprocessor.json: steps: expected a list",
    ),
    "processor that is no JSON": (cut("policy_preprocessor.json", 0.5), "policy_preprocessor.json: not JSON"),
    # config.json
    "unknown type": (config(type="vqbet"), r"config.json: type 'vqbet' is not known; known: diffusion, act"),
    "config that is no JSON": (cut("config.json", 0.5), "config.json: not JSON"),
    "config that is a list": (
        lambda folder: (folder / "config.json").write_text("[]"),
        "config.json: expected an object",
    ),
    "unknown key": (config(action_smoothing=True), "config.json: key 'action_smoothing' is not known: what"),
    "unsupported backbone": (
        config(vision_backbone="resnet50"),
        "config.json: vision_backbone: 'resnet50' is not supported; expected 'resnet18', 'resnet34'",
    ),
    "unsupported schedule": (
        config(beta_schedule="linear"),
        "config.json: beta_schedule: 'linear' is not supported; expected 'squaredcos_cap_v2'",
    ),
    "unsupported scheduler": (
        config(noise_scheduler_type="EULER"),
        "noise_scheduler_type: 'EULER' is not supported; expected 'DDPM', 'DDIM'",
    ),
    "unsupported prediction": (config(prediction_type="v"), "prediction_type: 'v' is not supported"),
    "unsupported value that cannot be compared": (config(prediction_type=["v"]), "prediction_type: .* not supported"),
    "resizing": (config(resize_shape=[36, 44]), r"resize_shape: \[36, 44\] is not supported for images of \[72, 8"),
    "crop too large": (config(crop_shape=[96, 80]), r"crop_shape: \[96, 80\] does not fit in images of \[72, 88\]"),
    "share of a picture that is text": (config(crop_ratio="wide"), "config.json: crop_ratio: 'wide' is not a share"),
    "share of a picture that is none": (config(crop_ratio=0), "config.json: crop_ratio: 0 is not a share"),
    "more than a picture": (config(crop_ratio=1.5), "config.json: crop_ratio: 1.5 is not a share"),
    "true for a share": (config(crop_ratio=True), "config.json: crop_ratio: True is not a share"),
    "key twice": (
        lambda folder: (folder / "config.json").write_text('{"horizon": 8, "horizon": 16}'),
        "config.json: key 'horizon' is given more than once",
    ),
    "crop that is no size": (config(crop_shape="84"), "crop_shape: '84' is not"),
    "steps that are none of a number": (config(num_train_timesteps="many"), "num_train_timesteps: 'many' is not"),
    "sizes that the network refuses": (config(down_dims=[15, 32]), "down_dims: 15 is not a multiple"),
    "clipping that is no number": (
        config(clip_sample_range="wide"),
        "config.json: clip_sample_range: 'wide' is not a number above zero",
    ),
    "steps of the training without end": (
        config(num_train_timesteps=10**9, num_inference_steps=10, noise_scheduler_type="DDIM"),
        "config.json: num_train_timesteps: 1000000000 is more than 1000, the most that is supported",
    ),
    "clipping without end": (config(clip_sample_range=10**400), "clip_sample_range: 10+ is not a number above zero"),
    "pictures without end": (
        features(lambda f: f[CAMERA].update(shape=[3, 10**400, 88])),
        rf"input_features: '{CAMERA}': shape: a number of 1329 bits is more than 65536",
    ),
    "environment state": (
        features(lambda f: f.update({"observation.environment_state": {"type": "ENV", "shape": [4]}})),
        "input 'observation.environment_state' of type ENV is not supported",
    ),
    "another state": (
        features(lambda f: f.update({"observation.force": {"type": "STATE", "shape": [6]}})),
        "input 'observation.force' of type STATE is not supported",
    ),
    "no state": (features(lambda f: f.pop("observation.state")), "robot.json: state: 4 names .* has 0"),
    "no pictures": (features(lambda f: f.pop(CAMERA)), "a policy without images or state is not supported"),
    "depth pictures": (
        features(lambda f: f[CAMERA].update(shape=[1, 72, 88])),
        rf"input '{CAMERA}' has shape \[1, 72, 88\], expected \[3, height, width\]",
    ),
    "pictures of two sizes": (
        features(lambda f: f.update({"observation.images.wrist": {"type": "VISUAL", "shape": [3, 64, 64]}})),
        "images of different sizes",
    ),
    "feature without a shape": (features(lambda f: f[CAMERA].pop("shape")), rf"'{CAMERA}': expected type and shape"),
    "no features": (config(input_features=None), "config.json: input_features: expected an object"),
    "no action": (
        config(output_features={"reward": {"type": "REWARD", "shape": [1]}}),
        "output_features: 'action' is missing",
    ),
    # robot.json
    "robot.json gone": (
        lambda folder: (folder / "robot.json").unlink(),
        r"robot.json: file not found; a checkpoint of another library needs it: .* see docs/checkpoints.md",
    ),
    "actions of another count": (
        lambda folder: edit_json(folder / "robot.json", lambda robot: robot["action"]["channels"].pop()),
        r"robot.json: action: 2 channels \(shoulder, elbow\), but .*config.json has 3 actions",
    ),
    "state of another count": (
        lambda folder: edit_json(folder / "robot.json", lambda robot: robot["state"].pop()),
        r"robot.json: state: 3 names \(shoulder, elbow, wrist\), but .*config.json has 4",
    ),
    "a camera that there is not": (
        lambda folder: edit_json(folder / "robot.json", lambda robot: robot.update(cameras={"rear": {}})),
        rf"robot.json: cameras: 'rear' is not a camera of .*config.json: {CAMERA}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_diffusion_folder_is_refused_by_name(fault: str, tmp_path: Path) -> None:
    spoil, said = FAULTS[fault]
    folder = copied("lerobot_diffusion", tmp_path)
    spoil(folder)
    with pytest.raises(CheckpointError, match=said):
        load(folder)


ACT_FAULTS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "tensor missing": (
        weights(lambda t: t.pop("model.decoder.layers.0.norm3.bias")),
        "model.safetensors: tensor 'model.decoder.layers.0.norm3.bias' is missing",
    ),
    "tensor unknown": (weights(lambda t: t.update(more=torch.zeros(1))), "tensor 'more' belongs to no part"),
    "a variational encoder that the config denies": (
        config(use_vae=False),
        "tensor 'model.vae_encoder.* belongs to no part",
    ),
    "tensor of another shape": (
        weights(lambda t: t.update({"model.action_head.bias": torch.zeros(3)})),
        r"tensor 'model.action_head.bias' has shape \[3\], expected \[4\]",
    ),
    "dilation": (config(replace_final_stride_with_dilation=True), "replace_final_stride_with_dilation: True is not"),
    "unsupported activation": (config(feedforward_activation="glu"), "feedforward_activation: 'glu' is not supported"),
    "history": (config(n_obs_steps=2), "n_obs_steps: 2 is not supported; expected 1"),
    "more actions than there are": (config(n_action_steps=9), "n_action_steps: 9 is more than chunk_size, 8"),
    "layers without end": (config(n_encoder_layers=257), "network: encoder_layers: 257 is more than 256"),
    "a decoder without end": (config(n_decoder_layers=2000), "network: decoder_layers: 2000 is more than 256"),
    "ensembling by text": (config(temporal_ensemble_coeff="on"), "temporal_ensemble_coeff: 'on' is neither a number"),
    "heads that do not fit": (config(n_heads=3), "width: 16 is not a multiple of 4 and of heads, 3"),
    "unknown key": (config(horizon=8), "key 'horizon' is not known: what"),
    "standard deviation below zero": (
        statistic(UNNORMALIZER, "action.std", lambda t: t[2:3].fill_(-1)),
        r"'action.std'\[2\] of 'action': std -1.0 is below zero",
    ),
}


@pytest.mark.parametrize("fault", ACT_FAULTS)
def test_a_fault_of_an_act_folder_is_refused_by_name(fault: str, tmp_path: Path) -> None:
    spoil, said = ACT_FAULTS[fault]
    folder = copied("lerobot_act", tmp_path)
    spoil(folder)
    with pytest.raises(CheckpointError, match=said):
        load(folder)


@pytest.mark.parametrize(("name", "module"), [("lerobot_diffusion", lerobot_diffusion), ("lerobot_act", lerobot_act)])
def test_a_key_that_changes_actions_is_not_guessed(name: str, module: ModuleType, tmp_path: Path) -> None:
    folder = copied(name, tmp_path)
    text = (folder / "config.json").read_text()
    later: set[str] = getattr(module, "LATER", set())
    for key in sorted(module.KEYS | {"n_obs_steps", "normalization_mapping"}):
        edit_json(folder / "config.json", lambda values, key=key: values.pop(key))  # type: ignore[misc]
        if key in later:
            load(folder)
        else:
            with pytest.raises(CheckpointError, match=f"config.json: key '{key}' is missing"):
                load(folder)
        (folder / "config.json").write_text(text)


def test_what_changes_no_value_may_stand_anywhere(tmp_path: Path) -> None:
    """As in folders that LeRobot's migration wrote; a camera that is renamed is the one that robot.json says."""
    folder = copied("lerobot_diffusion", tmp_path)
    processor(lambda steps: steps.append(steps.pop(2)))(folder)
    processor(lambda steps: steps[0]["config"].update(rename_map={"observation.images.rear": CAMERA}))(folder)
    edit_json(folder / "robot.json", lambda robot: robot.update(cameras={"top": {"name": "rear"}}))
    assert [camera.name for camera in load(folder).spec.cameras] == ["rear"]


def test_actions_that_are_not_normalised_must_be_so_in_both_files(tmp_path: Path) -> None:
    folder = copied("lerobot_diffusion", tmp_path)
    for spoil in (norm_map("post", ACTION="IDENTITY"), mapped(ACTION="IDENTITY")):
        spoil(folder)
    checkpoint = load(folder)
    assert checkpoint.trained.lower.tolist() == [-1] * 3
    assert checkpoint.trained.upper.tolist() == [1] * 3


def test_the_share_of_a_resized_picture_is_the_crop(tmp_path: Path) -> None:
    """As the reference takes it, whatever crop_shape says."""
    folder = copied("lerobot_diffusion", tmp_path)
    config(resize_shape=[72, 88], crop_ratio=0.9, crop_shape=[33, 65])(folder)
    assert load(folder).spec.cameras[0].output_size == (64, 79)
    config(crop_ratio=1.0)(folder)
    with pytest.raises(CheckpointError, match="not the grid of 3 x 3 places that images of 72 x 88 have"):
        load(folder)


def test_an_ensembling_folder_has_all_of_its_chunk(tmp_path: Path) -> None:
    folder = copied("lerobot_act", tmp_path)
    config(temporal_ensemble_coeff=0.01, n_action_steps=1)(folder)
    assert load(folder).horizon == 8
