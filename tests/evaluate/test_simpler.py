"""`auras eval` on a task of SimplerEnv, for folders of OpenVLA, SmolVLA and our own kind, against the recording double.

Guards: a convention between policy and simulator that is left out, doubled or turned around; an instruction that the
policy is never told, or told too late; episodes of one batch that are told each other's task.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from auras_ros.cli import main as cli
from auras_ros.evaluate.episode_runner import LockstepError, Task
from auras_ros.evaluate.lockstep import play
from auras_ros.evaluate.parts import EvaluationPart
from auras_ros.evaluate.paused import Paused
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.flow import FlowMatchingPolicy
from auras_ros.policies.loaders.open import load
from auras_ros.sim.rotations import axis_angle
from auras_ros.sim.worlds import find
from tests.evaluate import simpler_checkpoints as checkpoints
from tests.policies.loaders import openvla_folder, tiny_vla
from tests.sim.simpler import double as simpler_double
from tests.sim.simpler.double import Double

CAN = "simpler:google_robot_pick_coke_can"
ALONE = ("--clock", "paused", "--modes", "seq")  # one action is played at every control step
PLANS = {
    "openvla": ("--plan", "greedy,pp_generation=2,fetch_offset=-1,emit=own"),
    "smolvla": ("--plan", "euler,pp_generation=2", "--frame-steps", "2"),
    "ours": ("--plan", "quick,pp_generation=2", "--frame-steps", "2"),
}


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Iterator[Double]:
    tiny_vla.shrink(monkeypatch)
    with openvla_folder.tiny_encoders():
        yield simpler_double.install(monkeypatch)


def evaluated(folder: Path, report: Path, *given: str, sim: str = CAN) -> dict[str, Any]:
    """The report."""
    asked = ["--sim", sim, "--checkpoint", str(folder), "--json", str(report)]
    assert cli.main(["eval", *asked, *given]) == 0
    read: dict[str, Any] = json.loads(report.read_text())
    return read


@pytest.mark.parametrize("kind", PLANS)
def test_a_folder_of_each_kind_is_evaluated_in_every_mode_on_both_clocks(
    double: Double, tmp_path: Path, kind: str
) -> None:
    double.successes, double.stats = {6}, {"grasped": True, "n_lift_significant": 7}
    getattr(checkpoints, kind)(tmp_path / "folder")
    charged = "seq=0.4,dec/perceive=0.1,dec/generate=0.3,par=0.4,auras=0.2"
    read = evaluated(tmp_path / "folder", tmp_path / "r.json", "--episodes", "2", "--durations", charged, *PLANS[kind])
    assert len(read["rows"]) == 2 * (4 if kind == "openvla" else 5)
    assert all(row["successes"] == 2 for row in read["rows"])
    assert read["episodes"]["paused/seq"]["steps"] == "6 6"
    assert read["episodes"]["paused/seq"]["best_grasped"] == "1.0000 1.0000"
    assert read["episodes"]["paused/seq"]["best_lifted"] == "1.0000 1.0000"
    assert read["episodes"]["paused/seq"]["last_n_lift_significant"] == "7.0 7.0"  # not only a share
    assert read["settings"]["task"] == "google_robot_pick_coke_can"
    steps = double.of("step")
    assert len(steps) == sum(2 * 6 for _ in read["rows"])
    assert max(abs(step[:3]).max() for step in steps) > 1e-4  # it moves


def naive_openvla(wishes: list[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """What the evaluation of OpenVLA sends to the Google robot for these outputs, step by step."""
    sent, before, sticky, on, repeated = [], None, 0.0, False, 0
    for wish in wishes:
        relative = 0.0 if before is None else before - wish[6]
        before = wish[6]
        if abs(relative) > 0.5 and not on:
            on, sticky = True, relative
        if on:
            repeated, relative = repeated + 1, sticky
        if repeated == 15:
            on, repeated, sticky = False, 0, 0.0
        sent.append(np.array([*wish[:3], *axis_angle(*wish[3:6]), relative]))
    return sent


def test_openvla_s_actions_reach_the_simulator_as_in_its_published_evaluation(
    double: Double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The published model sees what the camera showed, small, and the instruction; its own numbers are converted."""
    monkeypatch.setattr(openvla_folder, "AXES", (*checkpoints.AXES, "gripper"))
    monkeypatch.setattr(openvla_folder, "STATS", checkpoints.STATISTICS)
    model = checkpoints.openvla(tmp_path / "folder")
    pictures: list[NDArray[np.uint8]] = []
    observation = simpler_double.Env._observation

    def noted(env: simpler_double.Env) -> dict[str, Any]:
        made = observation(env)
        pictures.append(made["image"]["overhead_camera"]["rgb"].copy())
        return made

    monkeypatch.setattr(simpler_double.Env, "_observation", noted)
    evaluated(tmp_path / "folder", tmp_path / "r.json", *ALONE, "--episodes", "1", "--seed", "3", "--max-steps", "20")
    seen = [cv2.resize(each, (28, 28), interpolation=cv2.INTER_AREA) for each in pictures[-21:-1]]
    told = [openvla_folder.ids_of(text) for text in ("pick coke can", "pick up the carrot")]
    wishes, others = (
        [openvla_folder.predict(model, each, ids, checkpoints.GOOGLE_DATA) for each in seen] for ids in told
    )
    assert not np.allclose(wishes, others)  # the instruction counts
    np.testing.assert_allclose(double.of("step"), naive_openvla(wishes), atol=1e-6)


def test_widowx_has_its_own_statistics_camera_and_rate(double: Double, tmp_path: Path) -> None:
    for data in (checkpoints.BRIDGE_DATA, checkpoints.GOOGLE_DATA):
        checkpoints.openvla(tmp_path / data, 200, "third_view", data)
        evaluated(tmp_path / data, tmp_path / "r.json", *ALONE, "--episodes", "1", "--max-steps", "3",
                  sim="simpler:widowx_stack_cube")  # fmt: skip
    steps = np.array(double.of("step"))
    assert set(steps[:, 6]) <= {-1.0, 1.0}
    np.testing.assert_allclose(steps[0, :3] * 0.02, steps[3, :3] * 0.03)
    assert abs(steps[0, :3]).max() > 1e-4


def test_the_time_limit_ends_an_episode_and_the_report_says_so(double: Double, tmp_path: Path) -> None:
    double.limit = 4
    checkpoints.ours(tmp_path / "folder")
    read = evaluated(tmp_path / "folder", tmp_path / "r.json", "--clock", "paused", "--modes", "seq", "--episodes", "2")
    columns = read["episodes"]["paused/seq"]
    assert (columns["steps"], columns["ended"]) == ("4 4", {"0": "time limit", "1": "time limit"})
    part = EvaluationPart.load(tmp_path / "r.json")
    assert [each.ended for each in part.outcomes["paused", "seq"].episodes] == ["time limit"] * 2
    assert part.report().more["episodes"]["paused/seq"] == columns


@pytest.mark.usefixtures("double")
def test_a_new_instruction_begins_a_new_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second sub-task begins by itself; what was in the making for the first one is dropped."""
    monkeypatch.setattr(simpler_double, "FORCED", 5)
    told: list[list[int]] = []
    real = FlowMatchingPolicy.set_prompt

    def noted(policy: FlowMatchingPolicy, prompt: torch.Tensor) -> None:
        told.append(prompt.tolist())
        real(policy, prompt)

    monkeypatch.setattr(FlowMatchingPolicy, "set_prompt", noted)
    checkpoint = load(checkpoints.smolvla(tmp_path / "folder"))
    assert checkpoint.language is not None
    sim, plan = "simpler:google_robot_place_in_closed_drawer", Plan.parse("euler,mode=auras,pp_generation=4")
    result = play(checkpoint, plan, [2], Task(sim, 12), Paused(1))
    world = find(sim).make()
    world.reset(2)
    first = world.instruction
    expected = [checkpoint.language.ids(text) for text in (first, first.replace("open ", "place apple into "))]
    assert told == [list(ids) for ids in expected]
    # The first chunk comes after the four frames of a request, and so does that of the other instruction.
    assert result.chunks == 12 - 2 * 3


@pytest.mark.usefixtures("double")
def test_episodes_with_different_instructions_are_played_one_by_one(tmp_path: Path) -> None:
    folder, sim = checkpoints.smolvla(tmp_path / "folder"), "simpler:google_robot_open_drawer"
    with pytest.raises(LockstepError, match=r"different instructions \(open .* drawer; open .*\): --batch 1"):
        play(load(folder), Plan("euler"), range(6), Task(sim, 4), Paused(2))
    asked = ("--clock", "paused", "--modes", "seq", "--plan", "euler", "--episodes", "6", "--max-steps", "4")
    assert len(evaluated(folder, tmp_path / "r.json", *asked, sim=sim)["episodes"]["paused/seq"]["success"]) == 6


@pytest.mark.usefixtures("double")
def test_a_policy_of_another_robot_is_refused_by_what_does_not_fit(tmp_path: Path) -> None:
    for folder, sim, said in (
        (checkpoints.smolvla(tmp_path / "two", ("image", "wrist")), CAN, "are overhead, the policy's overhead, wrist"),
        (checkpoints.smolvla(tmp_path / "slow", dt_ms=200), CAN, "the world's step is 333 ms, the policy's 200"),
        (checkpoints.ours(tmp_path / "own"), f"{CAN},convention=native", r"channels are \('x', 'y', 'z', 'rx', 'ry'"),
        (checkpoints.ours(tmp_path / "own", joint="elbow"), CAN, "state has no elbow, which the policy sees; it has"),
    ):  # fmt: skip
        with pytest.raises(LockstepError, match=said):
            play(load(folder), Plan(load(folder).first_plan), [1], Task(sim), Paused(2))


def test_the_shipped_push_t_policy_plays_the_same_by_gymnasium_s_id(tmp_path: Path) -> None:
    """Up to float32, which Gymnasium's actions are."""
    asked = ("--clock", "paused", "--modes", "seq", "--plan", "quick", "--episodes", "2", "--max-steps", "24")
    sims = ("pusht", "gym:gym_pusht/PushT-v0")
    ours, theirs = (
        evaluated(Path("pusht"), tmp_path / f"{place}.json", *asked, sim=sim)["episodes"]["paused/seq"]
        for place, sim in enumerate(sims)
    )
    best, its = ([float(each) for each in columns["best_coverage"].split()] for columns in (ours, theirs))
    assert max(best) > 0.01
    np.testing.assert_allclose(best, its, atol=2e-3)
    assert ours["success"] == theirs["success"]
