"""robot.json: every key is checked where it enters, and nothing in it is optional that a robot could be hurt by."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.policies.loaders.robot import Robot

PAGE = Path(__file__).parents[3] / "docs" / "checkpoints.md"
CHANNEL = {"name": "a", "unit": "rad", "kind": "absolute", "lower": -1.0, "upper": 1.0, "hold": "last"}
SOUND: dict[str, Any] = {
    "dt_ms": 50,
    "action": {"channels": [CHANNEL]},
    "state": ["a", "b"],
    "cameras": {"top": {"name": "overhead", "height": 480, "width": 640}},
    "prompt": "push the tee",
    "name": "arm",
    "unnorm_key": "bridge",
    "plans": {"quick": {"steps": 4}},
}


def load(tmp_path: Path, values: Any) -> Robot:
    path = tmp_path / "robot.json"
    path.write_text(values if isinstance(values, str) else json.dumps(values), encoding="utf-8")
    return Robot.load(path)


def test_everything_is_taken(tmp_path: Path) -> None:
    robot = load(tmp_path, SOUND)
    assert (robot.dt_ms, robot.contract.dt_ms, robot.contract.names, robot.state) == (50, 50, ("a",), ("a", "b"))
    assert (robot.prompt, robot.name, robot.unnorm_key, robot.plans) == (
        "push the tee", "arm", "bridge", {"quick": {"steps": 4}},
    )  # fmt: skip
    for feature in ("observation.images.top", "top"):
        camera = robot.camera(feature, 96, 96)
        assert (camera.name, camera.height, camera.width) == ("overhead", 480, 640)
    plain = robot.camera("observation.images.wrist", 96, 128)
    assert (plain.name, plain.height, plain.width) == ("wrist", 96, 128)


def test_only_the_step_and_the_actions_must_be_there(tmp_path: Path) -> None:
    robot = load(tmp_path, {"dt_ms": 50, "action": {"dt_ms": 50, "channels": [CHANNEL]}})
    assert (robot.state, robot.cameras, robot.prompt, robot.plans, robot.unnorm_key, robot.name) == (
        None, {}, None, {}, None, None,
    )  # fmt: skip


FAULTS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "unknown key": (lambda r: r.update(dt=50), "key 'dt' is unknown; known: action, cameras"),
    "no step": (lambda r: r.pop("dt_ms"), "key 'dt_ms' is missing"),
    "no actions": (lambda r: r.pop("action"), "key 'action' is missing"),
    "two steps": (lambda r: r["action"].update(dt_ms=20), "action: dt_ms: 20 is not the policy step, 50"),
    "step that is none": (lambda r: r.update(dt_ms=0), "action: contract: dt_ms"),
    "step that is no number": (lambda r: r.update(dt_ms=float("nan")), "action: contract: dt_ms"),
    "action without channels": (lambda r: r["action"].pop("channels"), "action: contract: channels: missing"),
    "actions as a list": (lambda r: r.update(action=[CHANNEL]), "action: expected an object"),
    "channel without limits": (
        lambda r: r["action"]["channels"][0].pop("upper"),
        "action: channel 'a': upper: missing",
    ),
    "joint twice": (lambda r: r.update(state=["a", "a"]), "state: a joint is named more than once"),
    "joints as text": (lambda r: r.update(state="a"), "state: expected a list of joint names or null"),
    "no joints": (lambda r: r.update(state=[]), "state: expected a list"),
    "cameras as a list": (lambda r: r.update(cameras=["top"]), "cameras: expected an object"),
    "camera as text": (lambda r: r.update(cameras={"top": "overhead"}), "cameras: top: expected an object"),
    "camera's unknown key": (lambda r: r["cameras"]["top"].update(fps=30), "cameras: top: key 'fps' is unknown"),
    "camera without a name": (lambda r: r["cameras"]["top"].update(name=""), "cameras: top: name: '' is not a name"),
    "half a size": (lambda r: r["cameras"]["top"].pop("width"), "cameras: top: height and width are given in pairs"),
    "size that is none": (lambda r: r["cameras"]["top"].update(width=0), "cameras: top: width: 0 is not a size"),
    "prompt without end": (lambda r: r.update(prompt="é" * 8193), "prompt: 16386 bytes, expected 16384 at most"),
    "half a character": (lambda r: r.update(prompt="push \ud800"), "prompt: not valid text"),
    "prompt that is no text": (lambda r: r.update(prompt=["push"]), "prompt: expected text"),
    "plans as a list": (lambda r: r.update(plans=["quick"]), "plans: expected an object"),
    "plan that is no object": (lambda r: r.update(plans={"quick": 3}), "plans: quick: expected an object"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_refused_by_name(fault: str, tmp_path: Path) -> None:
    edit, said = FAULTS[fault]
    values = json.loads(json.dumps(SOUND))
    edit(values)
    with pytest.raises(CheckpointError, match=f"robot.json: {said}"):
        load(tmp_path, values)


def test_a_camera_that_is_told_twice_is_refused(tmp_path: Path) -> None:
    """Which of the two is meant, nobody can say."""
    feature = "observation.images.top"
    robot = load(tmp_path, {**SOUND, "cameras": {"top": {"name": "a"}, feature: {"name": "b"}}})
    with pytest.raises(CheckpointError, match=f"robot.json: cameras: '{feature}' and 'top' are one camera, given"):
        robot.check(actions=1, state=2, cameras=[feature], source="config.json")
    robot.check(actions=1, state=2, cameras=[feature, "top"], source="config.json")  # here they are two


@pytest.mark.parametrize("text", ["{", "", "\ufeff{}"])
def test_what_is_no_json_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"robot.json: not JSON"):
        load(tmp_path, text)
    with pytest.raises(CheckpointError, match=r"robot.json: expected an object"):
        load(tmp_path, "[]")


def test_the_example_of_the_page_is_one(tmp_path: Path) -> None:
    (example,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    robot = load(tmp_path, example)
    assert robot.contract.names == robot.state == ("shoulder", "elbow", "gripper")
    assert robot.camera("observation.images.top", 96, 96).name == "overhead"
