"""OpenVLA folders: the published parts' actions, every mode, and everything that is wrong refused by name.

Guards: statistics of another data set; a picture resized another way; a prompt without its last token; a tensor passed
over in silence.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.autoregressive import AutoregressivePolicy
from auras_ros.policies.checkpoint import Checkpoint
from auras_ros.policies.golden import GoldenSample, observed
from auras_ros.policies.loaders.convert import convert
from auras_ros.policies.loaders.open import load
from auras_ros.policies.loaders.robot import Robot
from auras_ros.policies.margin import MARGIN
from auras_ros.policies.policy import generate
from tests.models.published_openvla import PublishedOpenVla
from tests.pipeline.real import real, run
from tests.pipeline.real import still as frames_of
from tests.policies.loaders import openvla_folder as published

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")
pytest.importorskip("PIL.Image")


@pytest.fixture(scope="module", autouse=True)
def encoders() -> Iterator[None]:
    with published.tiny_encoders():
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PublishedOpenVla]:
    folder = tmp_path_factory.mktemp("openvla") / "tiny-openvla"
    return folder, published.write(folder)


@pytest.fixture(scope="module")
def checkpoint(made: tuple[Path, PublishedOpenVla]) -> Checkpoint:
    return load(made[0])


@pytest.fixture
def folder(made: tuple[Path, PublishedOpenVla], tmp_path: Path) -> Path:
    """A copy that a test may spoil. Its weights are links: who changes them puts a file in their place."""
    return Path(shutil.copytree(made[0], tmp_path / "copy", copy_function=link))


def link(source: str, target: str) -> str:
    if source.endswith(".safetensors"):
        Path(target).symlink_to(source)
        return target
    return str(shutil.copy(source, target))


def picture(seed: int) -> np.ndarray:
    shape = (published.HEIGHT, published.WIDTH, 3)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def sample(seed: int) -> GoldenSample:
    return GoldenSample({"top": picture(seed)[None]}, {}, {})


def actions_of(checkpoint: Checkpoint, seed: int) -> np.ndarray:
    policy = checkpoint.policy("greedy")
    context = policy.perceive(*observed(checkpoint.spec, sample(seed)))
    return np.asarray(generate(policy, torch.zeros(1, 0), context)[0, 0])


def test_its_actions_are_those_of_the_published_parts(
    made: tuple[Path, PublishedOpenVla], checkpoint: Checkpoint
) -> None:
    """To the last bit of a bin's centre: a token is the same or another."""
    found = []
    for seed in range(5):
        expected = published.predict(made[1], picture(seed), published.ids_of(published.TEXT))
        np.testing.assert_allclose(actions_of(checkpoint, seed), expected, rtol=0, atol=1e-12)
        found.append(tuple(expected))
    assert len(set(found)) > 1
    assert not checkpoint.verified
    assert checkpoint.name == "tiny-openvla"


def test_pixels_are_those_of_the_published_processor(checkpoint: Checkpoint) -> None:
    images, _ = observed(checkpoint.spec, sample(1))
    torch.testing.assert_close(images[0, 0], published.pixels_of(picture(1)), rtol=0, atol=1e-5)


def test_another_prompt_is_tokenised_and_heard(made: tuple[Path, PublishedOpenVla], folder: Path) -> None:
    checkpoint, text = load(folder), "pick up the plate"
    language, policy = checkpoint.language, checkpoint.policy("greedy")
    assert language is not None
    assert isinstance(policy, AutoregressivePolicy)
    ids = language.ids(text)
    assert list(ids) == published.ids_of(text)
    assert len(ids) != len(language.prompt.ids)
    policy.set_prompt(torch.tensor(ids))
    differs = False
    for seed in range(5):
        context = policy.perceive(*observed(checkpoint.spec, sample(seed)))
        got = np.asarray(generate(policy, torch.zeros(1, 0), context)[0, 0])
        np.testing.assert_allclose(got, published.predict(made[1], picture(seed), list(ids)), rtol=0, atol=1e-12)
        differs |= bool((got != published.predict(made[1], picture(seed), published.ids_of(published.TEXT))).any())
    assert differs


@pytest.mark.parametrize("plan", ["mode=seq", "mode=auras,pp_generation=2,reuse=exact", "mode=dec"])
def test_every_mode_runs_it(checkpoint: Checkpoint, plan: str) -> None:
    images, state = observed(checkpoint.spec, sample(3))
    seen = [type(one)(images, state, one.origin) for one in frames_of(5)]
    emissions = run(real(Plan.parse(f"greedy,{plan}"), checkpoint.policy("greedy"), (0,), seen[0]), seen)
    assert emissions
    for emission in emissions:
        np.testing.assert_allclose(emission.actions[0, 0], actions_of(checkpoint, 3), rtol=0, atol=1e-12)


def test_it_is_converted_with_a_clear_golden_sample_and_its_tokenizer(
    folder: Path, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    """From then on it is one of ours: other prompts included."""
    made = convert(folder, Robot.load(folder / "robot.json"), tmp_path / "ours")
    assert made.margin is not None
    assert made.margin >= MARGIN
    ours = load(tmp_path / "ours")
    assert ours.verified
    assert ours.spec == checkpoint.spec
    for seed in range(3):
        np.testing.assert_allclose(actions_of(ours, seed), actions_of(checkpoint, seed), rtol=0, atol=1e-12)
    assert ours.language is not None
    assert list(ours.language.ids("pick up the plate")) == published.ids_of("pick up the plate")


def edit(folder: Path, name: str, change: Callable[[dict[str, Any]], Any]) -> None:
    values = json.loads((folder / name).read_text())
    change(values)
    (folder / name).write_text(json.dumps(values))


def refused(folder: Path, said: str) -> None:
    with pytest.raises(CheckpointError, match=said):
        load(folder)


# -- statistics -------------------------------------------------------------------------------------------


def test_of_several_data_sets_one_must_be_chosen(folder: Path) -> None:
    edit(folder, "robot.json", lambda robot: robot.pop("unnorm_key"))
    refused(folder, r"robot.json: unnorm_key: missing.*config.json has statistics of .*: bridge_orig, fractal")
    edit(folder, "robot.json", lambda robot: robot.update(unnorm_key="bridge"))
    refused(folder, r"robot.json: unnorm_key: 'bridge' is not one of bridge_orig, fractal")


def test_the_one_that_is_chosen_is_used(folder: Path, checkpoint: Checkpoint) -> None:
    edit(folder, "robot.json", lambda robot: robot.update(unnorm_key="fractal"))
    other, share = actions_of(load(folder), 2), actions_of(checkpoint, 2)
    action = published.STATS["bridge_orig"]["action"]
    low, high = np.array(action["q01"]), np.array(action["q99"])
    np.testing.assert_allclose(other[:3], (2 * (share - low) / (high - low) - 1)[:3], atol=1e-9)
    assert other[3] == share[3]  # not normalised in either


def test_the_statistics_of_a_fine_tuning_come_first_and_one_needs_no_choice(folder: Path) -> None:
    mine = {"mine": {"action": {"q01": [0.0] * 4, "q99": [2.0] * 4}}}
    (folder / "dataset_statistics.json").write_text(json.dumps(mine))
    refused(folder, "unnorm_key: 'bridge_orig' is not one of mine .*dataset_statistics.json")
    edit(folder, "robot.json", lambda robot: robot.pop("unnorm_key"))
    trained = load(folder).trained
    assert trained.lower.tolist() == [0.0] * 4
    assert trained.upper.tolist() == [2.0] * 4


STATISTICS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "none": (lambda c: c.pop("norm_stats"), "config.json: norm_stats: missing"),
    "no action": (lambda c: c["norm_stats"]["bridge_orig"].pop("action"), "bridge_orig: action: missing"),
    "no q99": (lambda c: c["norm_stats"]["bridge_orig"]["action"].pop("q99"), "bridge_orig: .*q99: missing"),
    "not a number": (
        lambda c: c["norm_stats"]["bridge_orig"]["action"].update(q01=[0.0, float("nan"), 0.0, 0.0]),
        r"bridge_orig: .*q01\[1\]: nan is not finite .*1 is y",
    ),
    "no range": (
        lambda c: c["norm_stats"]["bridge_orig"]["action"].update(q01=[0.0, 0.0, 0.1, 0.0]),
        r"bridge_orig: .*q01\[2\]: 0.1 is not below q99\[2\], 0.1 .*2 is z",
    ),
    "mask": (lambda c: c["norm_stats"]["bridge_orig"]["action"].update(mask=[1, 1, 1, 0]), "mask: .* is not a list of"),
    "beyond a float": (
        lambda c: c["norm_stats"]["bridge_orig"]["action"].update(q01=[-(10**400), 0.0, 0.0, 0.0]),
        "config.json: bridge_orig: action statistics: q01, q99: a number is too large",
    ),
    "count": (
        lambda c: c["norm_stats"]["bridge_orig"]["action"].update(q01=[0.0] * 3, q99=[1.0] * 3, mask=[True] * 3),
        r"robot.json: action: 4 channels \(x, y, z, gripper\), but .* has 3 actions",
    ),
}


@pytest.mark.parametrize("fault", STATISTICS)
def test_wrong_statistics_are_refused_by_name(folder: Path, fault: str) -> None:
    change, said = STATISTICS[fault]
    edit(folder, "config.json", change)
    refused(folder, said)


# -- kinds ------------------------------------------------------------------------------------------------


def kinds(**given: str) -> Callable[[dict[str, Any]], Any]:
    """Other kinds of some channels, with a hold policy that each can have."""

    def change(robot: dict[str, Any]) -> None:
        for channel in robot["action"]["channels"]:
            kind = given.get(channel["name"], channel["kind"])
            channel.update(kind=kind, hold="zero" if kind in ("delta_previous", "velocity") else "last")

    return change


@pytest.mark.parametrize("kind", ["absolute"])
def test_a_move_is_no_set_point(folder: Path, kind: str) -> None:
    edit(folder, "robot.json", kinds(y=kind))
    refused(folder, f"channel 'y': kind '{kind}', but by its statistics OpenVLA's action is how far to move")


@pytest.mark.parametrize("kind", ["delta_previous", "delta_origin", "velocity"])
def test_what_is_not_normalised_is_a_set_point_and_no_move(folder: Path, kind: str) -> None:
    edit(folder, "robot.json", kinds(gripper=kind))
    refused(folder, f"channel 'gripper': kind '{kind}', but .* a set point .*; expected gripper, absolute")


def test_kinds_that_mean_what_the_actions_are(folder: Path) -> None:
    edit(folder, "robot.json", kinds(x="velocity", y="delta_origin", gripper="absolute"))
    assert load(folder).contract.channels[3].kind.value == "absolute"


# -- configuration ----------------------------------------------------------------------------------------

CONFIGS: dict[str, tuple[str, Callable[[dict[str, Any]], Any], str]] = {
    "bins": ("config.json", lambda c: c.update(n_action_bins=512), "n_action_bins: 512 is not supported; expected 256"),
    "encoder": (
        "config.json",
        lambda c: c.update(timm_model_ids=["vit_large_patch14_clip_224.openai", published.SIGLIP]),
        "config.timm_model_ids: 'vit_large_patch14_clip_224.openai' is not known; known: vit_large",
    ),
    "projector": (
        "config.json",
        lambda c: c.update(arch_specifier="linear"),
        "arch_specifier: 'linear' is not supported",
    ),
    "padding": ("config.json", lambda c: c.update(pad_to_multiple_of="64"), "pad_to_multiple_of: '64' is not a whole"),
    "gate": ("config.json", lambda c: c["text_config"].update(hidden_act="gelu"), "text_config.hidden_act: 'gelu'"),
    "strategy": (
        "config.json",
        lambda c: c.update(image_resize_strategy="letterbox"),
        "preprocessor_config.json: image_resize_strategy: 'resize-naive', but config.json has 'letterbox'",
    ),
    "interpolation": (
        "preprocessor_config.json",
        lambda c: c.update(interpolations=["bicubic", "bilinear"]),
        "interpolations: .*'bilinear'.* is not supported",
    ),
    "size": (
        "preprocessor_config.json",
        lambda c: c.update(input_sizes=[[3, 28, 28], [3, 56, 56]]),
        "input_sizes: .*56.* is not supported",
    ),
    "resized to another size": (
        "preprocessor_config.json",
        lambda c: [each.update(size=[64, 64]) for each in c["tvf_resize_params"]],
        r"tvf_resize_params: size: \[64, 64\] is not supported with 'resize-naive'; expected \[28, 28\]",
    ),
    "resized without antialiasing": (
        "preprocessor_config.json",
        lambda c: c["tvf_resize_params"][1].update(antialias=False),
        "tvf_resize_params: antialias: False is not supported",
    ),
    "resized by an unknown key": (
        "preprocessor_config.json",
        lambda c: c["tvf_resize_params"][0].update(gamma=2),
        "tvf_resize_params: key 'gamma' is unknown",
    ),
    "resizes that are none": (
        "preprocessor_config.json",
        lambda c: c.update(tvf_resize_params=7),
        "tvf_resize_params: 7 is not a list of two objects",
    ),
    "a language model of no kind": (
        "config.json",
        lambda c: c.update(text_config={}),
        "config.text_config.model_type: missing",
    ),
    "layers": (
        "config.json",
        lambda c: c["text_config"].update(num_hidden_layers=10**8),
        "network: language: layers: 100000000 is more than 256",
    ),
    "width": (
        "config.json",
        lambda c: c["text_config"].update(intermediate_size=6_000_000),
        "network: language: hidden: 6000000 is more than 65536",
    ),
    "camera's side": (
        "robot.json",
        lambda c: c["cameras"]["image"].update(height=10**400),
        "height: a number of 1329 bits is more than 16384 pixels",
    ),
    "means": (
        "preprocessor_config.json",
        lambda c: c.update(tvf_normalize_params=c["tvf_normalize_params"][:1]),
        "normalisation: .* is not that of two encoders",
    ),
    "std": (
        "preprocessor_config.json",
        lambda c: c["tvf_normalize_params"][1].update(std=[0.5, 0.0, 0.5]),
        "std: .* is not above zero",
    ),
    "camera": (
        "robot.json",
        lambda c: c.update(cameras={"wrist": {"name": "wrist"}}),
        "robot.json: cameras: 'wrist' is not a camera of .*: image",
    ),
    "own key": (
        "robot.json",
        lambda c: c.update(openvla={"crop": 0.9}),
        "robot.json: openvla: key 'crop' is unknown; known: prompt_ids, prompt_limit, zoom",
    ),
    "zoom": ("robot.json", lambda c: c.update(openvla={"zoom": 9}), "robot.json: openvla: zoom: 9 is not a share"),
    "no prompt": ("robot.json", lambda c: c.pop("prompt"), "robot.json: prompt: missing"),
    "limit": (
        "robot.json",
        lambda c: c.update(openvla={"prompt_limit": 12}),
        "robot.json: prompt: 18 tokens, but this policy takes 12 at most",
    ),
}


@pytest.mark.parametrize("fault", CONFIGS)
def test_what_is_not_done_is_refused_by_name(folder: Path, fault: str) -> None:
    name, change, said = CONFIGS[fault]
    edit(folder, name, change)
    refused(folder, said)


def test_another_action_head_is_refused(folder: Path) -> None:
    (folder / "action_head--100_checkpoint.pt").write_bytes(b"PK\x03\x04")
    refused(folder, "action_head--100_checkpoint.pt: the folder has another action head")


def test_no_robot_json_and_no_json_at_all(folder: Path) -> None:
    (folder / "robot.json").unlink()
    refused(folder, "robot.json: file not found; .*docs/checkpoints.md")
    (folder / "config.json").write_text("{")
    refused(folder, "config.json: not JSON")


def test_a_border_before_the_resize_is_for_square_pictures(folder: Path) -> None:
    for name in ("config.json", "preprocessor_config.json"):
        edit(folder, name, lambda c: c.update(image_resize_strategy="letterbox"))
    edit(folder, "preprocessor_config.json", lambda c: c.update(tvf_do_letterbox=True))
    refused(folder, "image_resize_strategy: 'letterbox' is supported for square images, and robot.json's are 36 x 50")
    edit(folder, "robot.json", lambda c: c["cameras"]["image"].update(height=40, width=40))
    camera = load(folder).spec.cameras[0]
    assert (camera.resize.height, camera.crop) == (28, None)  # type: ignore[union-attr]


def test_the_middle_is_taken_where_the_processor_does(folder: Path, made: tuple[Path, PublishedOpenVla]) -> None:
    """torchvision's arithmetic: the shorter side to 28, the longer to int(28 * 50 / 36), then the middle, rounded."""
    for name in ("config.json", "preprocessor_config.json"):
        edit(folder, name, lambda c: c.update(image_resize_strategy="resize-crop"))
    refused(folder, r"tvf_resize_params: size: \[28, 28\] is not supported with 'resize-crop'; expected 28 or \[28\]")
    edit(folder, "preprocessor_config.json", lambda c: [each.update(size=28) for each in c["tvf_resize_params"]])
    camera = load(folder).spec.cameras[0]
    assert camera.order == "resize_then_crop"
    assert camera.resize is not None
    assert camera.crop is not None
    assert (camera.resize.height, camera.resize.width) == (28, int(28 * 50 / 36))
    assert (camera.crop.top, camera.crop.left) == (0, round((int(28 * 50 / 36) - 28) / 2))


def test_a_zoom_is_taken_from_robot_json(folder: Path) -> None:
    edit(folder, "robot.json", lambda c: c.update(openvla={"zoom": 0.9}))
    assert load(folder).spec.cameras[0].zoom == 0.9


def test_without_the_processors_file_it_is_as_published(folder: Path, checkpoint: Checkpoint) -> None:
    (folder / "preprocessor_config.json").unlink()
    assert load(folder).spec == checkpoint.spec


def test_the_state_may_go_along_for_the_robots_sake(folder: Path, checkpoint: Checkpoint) -> None:
    edit(folder, "robot.json", lambda c: c.update(state=["x", "y", "z"]))
    loaded = load(folder)
    assert loaded.spec.state is not None
    assert loaded.spec.state.names == ("x", "y", "z")
    policy = loaded.policy("greedy")
    images, _ = observed(checkpoint.spec, sample(0))
    context = policy.perceive(images, torch.zeros(1, 1, 3))
    assert torch.equal(context, policy.perceive(images, torch.ones(1, 1, 3)))


# -- the prompt -------------------------------------------------------------------------------------------


def test_without_a_tokenizer_the_ids_are_robot_jsons_and_fixed(folder: Path, checkpoint: Checkpoint) -> None:
    (folder / "tokenizer.json").unlink()
    refused(folder, "tokenizer.json: file not found.*openvla: prompt_ids")
    ids = published.ids_of(published.TEXT)
    edit(folder, "robot.json", lambda c: c.update(openvla={"prompt_ids": ids[:-1]}))  # its last one is added
    loaded = load(folder)
    assert loaded.language is not None
    assert loaded.language.prompt.ids == tuple(ids)
    assert loaded.language.prompt.limit is None
    np.testing.assert_allclose(actions_of(loaded, 1), actions_of(checkpoint, 1), rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match=r"has no tokenizer.json: it takes only 'Put the Carrot on the plate'"):
        loaded.language.ids("pick up the plate")


def test_a_prompt_that_does_not_begin_as_in_the_training_is_refused(folder: Path) -> None:
    """The published code's tokenizer puts the sentence's first token before everything."""
    edit(folder, "tokenizer.json", lambda c: c.update(post_processor=None))
    refused(folder, r"^[^ ]*tokenizer.json: the prompt begins with id 300, not with the sentence's first, 1$")
    (folder / "tokenizer.json").unlink()
    edit(folder, "robot.json", lambda c: c.update(openvla={"prompt_ids": [300, 301]}))
    refused(folder, r"robot.json: openvla: prompt_ids: the prompt begins with id 300, not .*, 1$")
    edit(folder, "config.json", lambda c: c["text_config"].update(bos_token_id=300))
    assert load(folder).language is not None


def test_ids_that_the_tokenizer_does_not_make_are_refused(folder: Path) -> None:
    edit(folder, "robot.json", lambda c: c.update(openvla={"prompt_ids": [1, 300, 301]}))
    refused(folder, r"tokenizer.json: gives \[1, 300, .*\] for the prompt, whose ids are \(1, 300, 301, 29871\)")


def test_a_file_that_is_no_tokenizer_is_refused(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"version": "1.0"}')
    refused(folder, "tokenizer.json: not a tokenizer")


@pytest.mark.parametrize("ids", ["push", [], [1, "2"], [1, -2]])
def test_prompt_ids_that_are_none_are_refused(folder: Path, ids: Any) -> None:
    (folder / "tokenizer.json").unlink()
    edit(folder, "robot.json", lambda c: c.update(openvla={"prompt_ids": ids}))
    refused(folder, "robot.json: .*prompt.*is not a list of token ids")
