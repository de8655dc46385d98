"""`auras convert`: a foreign folder becomes one of ours that loads and does the same, or nothing is left behind.

Guards: a conversion that changes the actions; a half-written folder that looks like a checkpoint; a golden sample that
says nothing of where its observation came from.
"""

from __future__ import annotations

import json
import re
import resource
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest

from auras_ros.checkpoints.tensors import naming
from auras_ros.cli.main import main
from auras_ros.policies import checkpoint
from auras_ros.policies.golden import GoldenSample
from auras_ros.policies.loaders.open import load
from auras_ros.policies.loaders.ranges import ranges
from tests.policies.loaders.lerobot_tiny import copied, edit_json, tiny_backbones
from tests.policies.loaders.reference import DATA, Reference, replayed

__all__ = ["tiny_backbones"]
pytestmark = pytest.mark.usefixtures("tiny_backbones")

SOURCE = DATA / "lerobot_diffusion_cameras"


@pytest.mark.parametrize("name", ["lerobot_diffusion_cameras", "lerobot_act"])
def test_a_folder_becomes_ours_and_does_the_same(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "ours"
    assert main(["convert", str(DATA / name), "--out", str(out)]) == 0
    assert "golden sample: from random pictures" in capsys.readouterr().out
    foreign, ours = load(DATA / name), checkpoint.load(out)
    assert ours.verified
    assert not foreign.verified
    reference = Reference.read(DATA / name)
    assert np.array_equal(replayed(foreign, reference), replayed(ours, reference))
    assert (ours.horizon, ours.contract, ours.spec) == (foreign.horizon, foreign.contract, foreign.spec)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ours"]


def test_pictures_and_positions_of_the_robot_make_the_golden_sample(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given, out, random = tmp_path / "given", tmp_path / "ours", np.random.default_rng(0)
    given.mkdir()
    wrist, front = (random.integers(0, 256, size, dtype=np.uint8) for size in ((64, 96, 3), (3, 64, 96, 3)))
    cv2.imwrite(str(given / "wrist.png"), wrist[:, :, ::-1])
    np.save(given / "front.npy", front)
    joints = {"shoulder": 0.1, "elbow": -0.2, "wrist": 0.3, "gripper": 1}
    (given / "state.json").write_text(json.dumps(joints))
    assert main(["convert", str(SOURCE), "--out", str(out), "--images", str(given)]) == 0
    assert f"golden sample: from the pictures in {given}" in capsys.readouterr().out
    sample = GoldenSample.load(out / checkpoint.GOLDEN)
    assert np.array_equal(sample.images["wrist"], np.stack([wrist] * 3))
    assert np.array_equal(sample.images["front"], front)
    assert {joint: values.tolist() for joint, values in sample.state.items()} == {
        joint: [float(value)] * 3 for joint, value in joints.items()
    }


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda given: (given / "wrist.npy").unlink(), "no image of camera 'wrist': looked for .*wrist.png"),
        (lambda given: np.save(given / "wrist.npy", np.zeros((64, 64, 3), np.uint8)), r"wrist.npy: uint8 \[3, 64, 64"),
        (lambda given: np.save(given / "wrist.npy", np.zeros((64, 96, 3))), r"wrist.npy: float64"),
        (lambda given: np.save(given / "wrist.npy", np.array([{}])), "wrist.npy: not an image"),
        (lambda given: (given / "wrist.npy").write_bytes(b""), "wrist.npy: not an image"),
        (lambda given: (given / "state.json").unlink(), "state.json: file not found"),
        (lambda given: (given / "state.json").write_text('{"shoulder": 0}'), "state.json: 'elbow': null is not"),
    ],
    ids=["gone", "of another size", "of floats", "pickled", "empty", "no positions", "a joint missing"],
)
def test_an_observation_that_does_not_fit_is_refused(
    spoil: object, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given, out = tmp_path / "given", tmp_path / "ours"
    given.mkdir()
    for name in ("wrist", "front"):
        np.save(given / f"{name}.npy", np.zeros((64, 96, 3), np.uint8))
    (given / "state.json").write_text('{"shoulder": 0, "elbow": 0, "wrist": 0, "gripper": 0}')
    spoil(given)  # type: ignore[operator]
    assert main(["convert", str(SOURCE), "--out", str(out), "--images", str(given)]) == 1
    assert re.search(said, capsys.readouterr().err)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["given"]


def test_nothing_is_left_where_the_written_checkpoint_does_not_load(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copied("lerobot_diffusion", tmp_path)
    edit_json(folder / "robot.json", lambda robot: robot.update(plans={"odd": {"sampler": "ddim", "steps": 0}}))
    assert main(["convert", str(folder), "--out", str(tmp_path / "ours")]) == 1
    assert "plan 'odd': ddim: steps must be" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lerobot_diffusion"]


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("precious")
    assert main(["convert", str(SOURCE), "--out", str(tmp_path)]) == 1
    assert "exists already" in capsys.readouterr().err
    assert (tmp_path / "mine").read_text() == "precious"


def test_what_lies_beside_the_target_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder that has the name which a half-written one might have."""
    beside = tmp_path / "ours.part"
    beside.mkdir()
    (beside / "mine").write_text("precious")
    assert main(["convert", str(SOURCE), "--out", str(tmp_path / "ours")]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"channel 1, 'elbow': statistics \S+ to \S+, limits -10 to 10 rad\n", shown)
    assert (beside / "mine").read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ours", "ours.part"]
    assert not (tmp_path / "ours" / "mine").exists()
    assert (tmp_path / "ours").stat().st_mode == beside.stat().st_mode


@pytest.mark.parametrize("out", [".", "..", "../here"])
def test_the_folder_one_stands_in_is_no_target(
    out: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert main(["convert", str(SOURCE.absolute()), "--out", out]) == 1
    assert f"{out}: must be a folder that does not exist yet" in capsys.readouterr().err
    assert (tmp_path / "here").is_dir()


def test_robot_json_beside_a_ckpt_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(DATA / "diffusion_policy" / "hybrid.ckpt"), "--out", str(tmp_path / "ours")]) == 0
    assert "read: hybrid" in capsys.readouterr().out


def test_without_robot_json_the_page_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = copied("lerobot_act", tmp_path)
    (folder / "robot.json").rename(tmp_path / "other.json")
    assert main(["convert", str(folder), "--out", str(tmp_path / "ours")]) == 1
    assert "docs/checkpoints.md" in capsys.readouterr().err
    assert main(["convert", str(folder), "--robot", str(tmp_path / "other.json"), "--out", str(tmp_path / "ours")]) == 0


def test_a_source_that_is_not_there_ends_with_status_2(tmp_path: Path) -> None:
    for argv in (["nowhere", "--out", "x"], [str(SOURCE), "--out", "x", "--images", str(tmp_path / "none")]):
        with pytest.raises(SystemExit) as ended:
            main(["convert", *argv])
        assert ended.value.code == 2


def test_an_empty_folder_is_said_to_be_no_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And not to want a robot.json."""
    (tmp_path / "empty").mkdir()
    assert main(["convert", str(tmp_path / "empty"), "--out", str(tmp_path / "ours")]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: {tmp_path / 'empty'}: not a checkpoint: looked for policy.json (ours), and for ")
    assert "robot.json" not in error


def test_a_channel_that_goes_beyond_its_limits_is_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = copied("lerobot_diffusion_cameras", tmp_path)
    told = ranges(load(folder))[1]
    assert told.lower is not None
    assert told.upper is not None
    middle = (told.lower + told.upper) / 2
    edit_json(folder / "robot.json", lambda robot: robot["action"]["channels"][1].update(lower=-10, upper=middle))
    assert main(["convert", str(folder), "--out", str(tmp_path / "ours")]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("channel ")]
    assert ["<- beyond its limits by " in line for line in lines] == [False, True]


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file grows beyond 1 KiB, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 10, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.usefixtures("small_files")
def test_a_file_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """safetensors has an error of its own for that, and it names no file."""
    assert main(["convert", str(SOURCE), "--out", str(tmp_path / "ours")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"error: .*model\.safetensors: cannot be written: .*too large.*", line)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_said_with_the_file() -> None:
    full = Path("/dev/full")
    with pytest.raises(OSError, match="/dev/full: cannot be written: No space left"), naming(full):
        full.write_text("policy")
