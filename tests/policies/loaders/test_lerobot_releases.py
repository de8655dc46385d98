"""Folders that LeRobot 0.4.4, 0.5.0, 0.5.1 and 0.6.1 wrote, against the actions that each release itself answered.

`data/lerobot_releases/RELEASE/NAME` are some of the folders of scripts/write_loader_fixtures/lerobot_matrix.py;
LEROBOT_FOLDERS names a place where all of them are (`make test-lerobot`). Guards: the state in pi0.5's prompt, the
border of images that are not square, the head taken for the embedding after training, a joint that never moved,
relative actions taken for positions, an adapter that is left out.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from auras_ros.action import ChannelKind
from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.observation import Preprocessor
from auras_ros.policies.checkpoint import Checkpoint
from auras_ros.policies.loaders import lerobot
from auras_ros.policies.loaders.convert import convert
from auras_ros.policies.loaders.open import load, translate
from auras_ros.policies.loaders.robot import Robot
from tests.policies.loaders.lerobot_tiny import edit_json, edit_tensors, tiny_backbones
from tests.policies.loaders.reference import DATA, Reference, replayed
from tests.policies.loaders.tiny_vla import copied, shrink_matrix

__all__ = ["tiny_backbones"]
TOLERANCE = 1e-5  # of the range of a channel's answers
KEPT = DATA / "lerobot_releases"
PLACES = [KEPT, *(Path(place) for place in [os.environ.get("LEROBOT_FOLDERS")] if place)]
ADAPTERS = sorted(path for place in PLACES for path in place.glob("*/*_lora"))
FOLDERS = sorted(
    path for place in PLACES for path in place.glob("*/*") if not path.name.endswith(("_lora", "_lora_base"))
)


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch, tiny_backbones: None) -> None:
    shrink_matrix(monkeypatch)


def names(folders: list[Path]) -> list[str]:
    return [f"{path.parent.name}-{path.name}" for path in folders]


def answered(checkpoint: Checkpoint, reference: Reference) -> NDArray[np.float64]:
    """Our actions as a robot executes them: the actuator adds the state at the origin to relative ones."""
    made = np.array(replayed(checkpoint, reference))
    relative = checkpoint.contract.is_kind(ChannelKind.DELTA_ORIGIN)
    made[:, relative] += reference.state[-1][: len(relative)][relative]
    return made


def error(made: NDArray[np.float64], reference: Reference, folder: Path) -> float:
    """The largest difference, as a share of the range of the channel's actions in the training data."""
    statistics = load_file(next(folder.glob("*unnormalizer_processor.safetensors")))
    span = (statistics["action.max"] - statistics["action.min"]).double().numpy()
    return float((np.abs(made - reference.actions) / np.where(span == 0, 1.0, span)).max())


@pytest.mark.parametrize("folder", FOLDERS, ids=names(FOLDERS))
def test_the_actions_are_those_of_the_release(folder: Path) -> None:
    checkpoint, reference = load(folder), Reference.read(folder)
    made = answered(checkpoint, reference)
    assert made.shape == reference.actions.shape
    assert error(made, reference, folder) < TOLERANCE


@pytest.mark.parametrize("folder", ADAPTERS, ids=names(ADAPTERS))
def test_an_adapter_is_merged_with_its_base(folder: Path, tmp_path: Path) -> None:
    base = folder.with_name(f"{folder.name}_base")
    with pytest.raises(
        CheckpointError, match=f"is a LoRA adapter .*of the base '.*auras convert {folder} --base FOLDER"
    ):
        load(folder)
    translated = lerobot.translate(folder, Robot.load(folder / "robot.json"), base)
    assert f"the adapter is merged into the weights of {base}" in translated.notes
    checkpoint, reference = translated.checkpoint("", folder), Reference.read(folder)
    assert error(answered(checkpoint, reference), reference, folder) < TOLERANCE


def test_every_type_and_release_is_kept() -> None:
    """So that an empty folder does not pass for equal actions."""
    found = {(path.parent.name, path.name.split("_")[0]) for path in FOLDERS if path.is_relative_to(KEPT)}
    pi = {(release, kind) for release in ("0.4.4", "0.5.0", "0.5.1", "0.6.1") for kind in ("pi0", "pi05")}
    others = {("0.6.1", kind) for kind in ("act", "diffusion", "smolvla")}
    assert pi | others <= found
    assert any(path.is_relative_to(KEPT) for path in ADAPTERS)


PI = [path for path in FOLDERS if path.name.startswith("pi0")]


@pytest.mark.parametrize("folder", PI, ids=names(PI))
def test_another_release_s_meaning_gives_other_actions(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the comparison above can fail: pi0.5 by its prompt, pi0 by its border, which no square image has."""
    is_changed = folder.parent.name >= "0.5"
    monkeypatch.setattr(lerobot.LeRobotFolder, "is_since", lambda *_args: not is_changed)
    reference = Reference.read(folder)
    difference = error(answered(load(folder), reference), reference, folder)
    if folder.name.startswith("pi0_square"):
        assert difference < TOLERANCE
    else:
        assert difference > 10 * TOLERANCE


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("0.4.4/pi05_wide_trained", "pi05 of LeRobot before 0.5.0 (the embedding and the head"),
        ("0.5.0/pi05_wide_trained", "pi05 of LeRobot 0.5.0 or later (the embedding and the head"),
        ("0.5.1/pi0_wide_trained", "pi0 of LeRobot 0.5.1 or later (config.json has "),
        ("0.6.1/pi0_wide_trained", "pi0 of LeRobot 0.6.0 or later (config.json has 'pretrained_revision')"),
        ("0.6.1/act_wide_trained", "act of LeRobot 0.6.0 or later (config.json has 'pretrained_revision')"),
    ],
)
def test_the_release_is_told_with_its_reason(name: str, said: str) -> None:
    folder = KEPT / name
    notes = translate(folder, Robot.load(folder / "robot.json")).notes
    assert notes[0].startswith(f"read as {said}")


@pytest.mark.parametrize(
    ("release", "border", "numbers"),
    [
        ("0.4.4", -3, "6 numbers of the state (max_state_dim)"),
        ("0.5.0", -1, "4 numbers of the state (the robot's own)"),
    ],
)
def test_what_changed_with_a_release_is_told(release: str, border: int, numbers: str) -> None:
    folder = KEPT / release / "pi05_wide_trained"
    notes = translate(folder, Robot.load(folder / "robot.json")).notes
    assert f"the border of images that are not square is {border}" in notes
    assert f"the prompt has {numbers}" in notes


def openpi_names(folder: Path) -> None:
    """As in weights that were converted from openpi's."""
    weights = load_file(folder / "model.safetensors")
    save_file({name.removeprefix("model."): t for name, t in weights.items()}, folder / "model.safetensors")


def test_where_nothing_tells_the_release_robot_json_must(tmp_path: Path) -> None:
    folder = copied("lerobot_releases/0.5.0/pi05_wide_trained", tmp_path)
    openpi_names(folder)
    with pytest.raises(CheckpointError, match=r"nothing in the folder tells whether a LeRobot before 0.5.0 trained it"):
        load(folder)
    edit_json(folder / "robot.json", lambda robot: robot.update(lerobot_version="0.5.0"))
    reference = Reference.read(folder)
    assert error(answered(load(folder), reference), reference, folder) < TOLERANCE
    edit_json(folder / "robot.json", lambda robot: robot.update(lerobot_version="0.4.4"))
    assert error(answered(load(folder), reference), reference, folder) > 10 * TOLERANCE


@pytest.mark.parametrize(
    ("release", "said", "why"),
    [
        ("0.5.0", "0.4.4", r"lerobot_version: 0.4.4, but the folder is of LeRobot 0.5.0 or later"),
        ("0.6.1", "0.5.1", r"lerobot_version: 0.5.1, but the folder is of LeRobot 0.6.0 or later"),
        ("0.5.0", "newest", r"lerobot_version: 'newest' is not a release such as"),
        ("0.4.4", "0.3.3", r"lerobot_version: '0.3.3' is not a release such as .*LeRobot 0.4.4 to 0.6.1 are known"),
    ],
)
def test_a_release_that_cannot_be_is_refused(release: str, said: str, why: str, tmp_path: Path) -> None:
    folder = copied(f"lerobot_releases/{release}/pi0_wide_trained", tmp_path)
    edit_json(folder / "robot.json", lambda robot: robot.update(lerobot_version=said))
    with pytest.raises(CheckpointError, match=f"robot.json: {why}"):
        load(folder)


def test_one_tensor_of_a_later_release_is_taken_if_robot_json_says_so(tmp_path: Path) -> None:
    folder = copied("lerobot_releases/0.4.4/pi05_wide_trained", tmp_path)
    edit_json(folder / "robot.json", lambda robot: robot.update(lerobot_version="0.7.0"))
    notes = translate(folder, Robot.load(folder / "robot.json")).notes
    assert "LeRobot 0.7.0, newer than 0.6.1, the newest that was compared" in notes[0]
    assert "although the embedding and the head" in notes[0]


# -- relative actions -------------------------------------------------------------------------------------


def kinds(*values: str) -> object:
    def edit(robot: dict[str, object]) -> None:
        for channel, kind in zip(robot["action"]["channels"], values, strict=True):  # type: ignore[index]
            channel["kind"] = kind

    return edit


def test_relative_actions_are_never_positions(tmp_path: Path) -> None:
    folder = copied("lerobot_releases/0.6.1/pi0_relative", tmp_path)
    assert [channel.kind.value for channel in load(folder).contract.channels] == ["delta_origin"] * 3 + ["absolute"]
    edit_json(folder / "robot.json", kinds("absolute", "delta_origin", "absolute", "absolute"))  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match=r"channels 'shoulder', 'wrist': .* the kind must be 'delta_origin'"):
        load(folder)
    edit_json(folder / "robot.json", kinds(*["delta_origin"] * 4))  # type: ignore[arg-type]
    with pytest.raises(
        CheckpointError, match="channel 'gripper': relative_exclude_joints leaves these actions absolute"
    ):
        load(folder)


def test_the_joint_of_a_relative_action_is_at_its_place(tmp_path: Path) -> None:
    """LeRobot adds the state by place, the actuator by name."""
    folder = copied("lerobot_releases/0.6.1/pi0_relative", tmp_path)
    edit_json(folder / "robot.json", lambda robot: robot["state"].reverse())
    with pytest.raises(CheckpointError, match=r"channel 0, 'shoulder', is relative to number 0 .* which is 'gripper'"):
        load(folder)


def steps(edit: object, part: str = "pre") -> object:
    return lambda folder: edit_json(folder / f"policy_{part}processor.json", lambda raw: edit(raw["steps"]))  # type: ignore[operator]


def enabled(name: str, value: bool, part: str) -> object:
    def edit(found: list[dict[str, dict[str, object]]]) -> None:
        next(each for each in found if each["registry_name"] == name)["config"]["enabled"] = value

    return steps(edit, part)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (enabled("absolute_actions_processor", False, "post"), "use_relative_actions: True, but .*'absolute_.* is off"),
        (enabled("relative_actions_processor", False, "pre"), "use_relative_actions: True, but .*'relative_.* is off"),
        (
            lambda folder: edit_json(folder / "config.json", lambda raw: raw.update(use_relative_actions=False)),
            "use_relative_actions: False, but the processors' step 'relative_actions_processor' is on",
        ),
    ],
)
def test_files_that_disagree_about_relative_actions_are_refused(spoil: object, said: str, tmp_path: Path) -> None:
    folder = copied("lerobot_releases/0.6.1/pi05_relative", tmp_path)
    spoil(folder)  # type: ignore[operator]
    with pytest.raises(CheckpointError, match=said):
        load(folder)


def test_without_names_all_actions_are_relative_as_in_the_library(tmp_path: Path) -> None:
    """`relative_exclude_joints` names joints; without `action_names` LeRobot leaves out none."""
    folder = copied("lerobot_releases/0.6.1/pi0_relative", tmp_path)

    def edit(found: list[dict[str, dict[str, object]]]) -> None:
        next(each for each in found if each["registry_name"] == "relative_actions_processor")["config"].update(
            action_names=None
        )

    steps(edit)(folder)  # type: ignore[operator]
    with pytest.raises(CheckpointError, match=r"channel 'gripper': .*the kind must be 'delta_origin'"):
        load(folder)


# -- keys and steps ---------------------------------------------------------------------------------------

NEW_KEYS = {"later_null": None, "later_off": False, "later_empty": [], "later_object": {"enabled": False, "gain": 3}}


@pytest.mark.parametrize("kind", ["act", "diffusion", "smolvla", "pi0", "pi05"])
def test_keys_that_ask_for_nothing_count_as_absent(kind: str, tmp_path: Path) -> None:
    folder = copied(f"lerobot_releases/0.6.1/{kind}_wide_trained", tmp_path)
    edit_json(folder / "config.json", lambda config: config.update(NEW_KEYS, optimizer_new=0.5, scheduler_new="cosine"))
    notes = translate(folder, Robot.load(folder / "robot.json")).notes
    assert f"not known, and off or empty, so taken as absent: {', '.join(map(repr, sorted(NEW_KEYS)))}" in notes[1]
    assert load(folder).name == folder.name


@pytest.mark.parametrize("kind", ["smolvla", "pi0"])
def test_real_time_chunking_that_is_off_counts_as_absent(kind: str, tmp_path: Path) -> None:
    folder = copied(f"lerobot_releases/0.6.1/{kind}_wide_trained", tmp_path)
    edit_json(folder / "config.json", lambda config: config.update(rtc_config={"enabled": False, "horizon": 10}))
    reference = Reference.read(folder)
    assert error(answered(load(folder), reference), reference, folder) < TOLERANCE


def test_all_keys_that_are_not_known_are_named_at_once(tmp_path: Path) -> None:
    folder = copied("lerobot_releases/0.6.1/act_wide_trained", tmp_path)
    edit_json(folder / "config.json", lambda config: config.update(new_head=True, new_width=64, new_off=None))
    said = "keys 'new_head', 'new_width' are not known: what they do is not supported; LeRobot 0.4.4 to 0.6.1 are known"
    with pytest.raises(CheckpointError, match=said):
        load(folder)
    edit_json(
        folder / "config.json",
        lambda config: [config.pop(key) for key in ("new_head", "new_width", "n_heads", "latent_dim")],
    )
    with pytest.raises(CheckpointError, match="keys 'latent_dim', 'n_heads' are missing: actions depend on them"):
        load(folder)


def test_steps_that_are_off_count_as_absent(tmp_path: Path) -> None:
    folder = copied("lerobot_releases/0.6.1/act_wide_trained", tmp_path)
    new = [{"registry_name": f"new_{name}_processor", "config": {"enabled": False}} for name in ("crop", "smooth")]
    steps(lambda found: found.extend(new))(folder)  # type: ignore[operator]
    load(folder)
    steps(lambda found: [step["config"].update(enabled=True) for step in found[-2:]])(folder)  # type: ignore[operator]
    with pytest.raises(CheckpointError, match="steps 'new_crop_processor', 'new_smooth_processor' are not supported"):
        load(folder)


# -- joints that never moved ------------------------------------------------------------------------------

STILL_JOINT = 3
STILL = [path for path in FOLDERS if path.name.endswith("_still")]


@pytest.mark.parametrize("folder", STILL, ids=names(STILL))
def test_a_joint_that_never_moved_keeps_its_value(folder: Path, tmp_path: Path) -> None:
    robot = Robot.load(folder / "robot.json")
    notes = "\n".join(translate(folder, robot).notes)
    assert "action: gripper never changed in the training data: the action stays at that value" in notes
    assert "observation.state: gripper never changed in the training data: as in LeRobot, any difference" in notes
    # min and max that are equal leave the epsilon, 1e-8, for a range
    np.testing.assert_allclose(answered(load(folder), Reference.read(folder))[:, STILL_JOINT], 0.05, rtol=0, atol=1e-7)
    made = convert(folder, robot, tmp_path / "ours")
    assert made.notes
    assert load(tmp_path / "ours").verified


def test_a_colour_that_never_changed_is_read_and_named(tmp_path: Path) -> None:
    """A camera under its cap; LeRobot divides by its epsilon there too."""
    folder = copied("lerobot_releases/0.6.1/act_wide_trained", tmp_path)
    normalizer = next(folder.glob("*_normalizer_processor.safetensors"))
    edit_tensors(normalizer, lambda tensors: tensors["observation.images.top.std"].view(-1)[2:].zero_())
    notes = translate(folder, Robot.load(folder / "robot.json")).notes
    assert any(note.startswith("observation.images.top: number 2 never changed") for note in notes)
    assert load(folder).spec.cameras[0].std[2] == pytest.approx(1e-8)


def test_a_state_is_rounded_as_in_the_training_data() -> None:
    """0.05 in float64 is not the 0.05 of the statistics, and any difference is divided by the epsilon."""
    folder = KEPT / "0.6.1" / "act_still"
    preprocess = Preprocessor(load(folder).spec)
    assert preprocess.state(np.array([0.0, 0.0, 0.0, 0.05]))[STILL_JOINT] == 0
    assert preprocess.state(np.array([0.0, 0.0, 0.0, 0.06]))[STILL_JOINT] > 1e5
