"""SimplerEnv as a world, against a recording double: its tasks, its own numbers, and the actions of the data sets.

Guards: a task that is declared other than it is made; a gripper that lets go before it has closed; an angle that turns
the other way; a start that is drawn again instead of the published one; an instruction that is read only once.
"""

from __future__ import annotations

import builtins
import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from auras_ros.cli import list as list_command
from auras_ros.clock import VirtualClock
from auras_ros.nodes.common.config import read_config
from auras_ros.parameters import ParameterError
from auras_ros.policies.loaders.robot import Robot as SomeRobot
from auras_ros.ros import init, try_shutdown
from auras_ros.sim.bridge.game import Game
from auras_ros.sim.bridge.node import SimBridge
from auras_ros.sim.bridge.settings import bridge_settings
from auras_ros.sim.rotations import axis_angle, euler, quaternion
from auras_ros.sim.simpler.actions import OpenVlaActions
from auras_ros.sim.simpler.tasks import GOOGLE, TASKS, WIDOWX
from auras_ros.sim.world import ActionError, ActionRefusal, World
from auras_ros.sim.worlds import find
from tests.another_package import WORLD, code_of
from tests.sim.simpler.double import ENVIRONMENT_MAP, Double, install

CAN, BAKED = "GraspSingleOpenedCokeCan", "Baked_sc1_staging_objaverse_cabinet"
STILL = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0])  # and the gripper stays open


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Double:
    return install(monkeypatch)


def made(text: str, seed: int = 0) -> World:
    world = find(f"simpler:{text}").make()
    world.reset(seed)
    return world


# -- tasks ------------------------------------------------------------------------------------------------


def test_the_tasks_are_simplerenv_s() -> None:
    assert set(TASKS) == set(ENVIRONMENT_MAP)
    assert len(TASKS) == 25


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("task", ENVIRONMENT_MAP)
def test_a_world_is_what_was_declared_of_it_before(task: str) -> None:
    """And what a process finds that knows the class alone."""
    sim = find(f"simpler:{task}")
    kind = getattr(importlib.import_module(sim.world.__module__), sim.world.__qualname__)
    robot = WIDOWX if task.startswith("widowx") else GOOGLE
    for world in (sim.make(), kind(**vars(sim.options))):
        for name in ("name", "control_dt_ms", "cameras", "channels", "sub_goals", "frame", "live"):
            assert getattr(world, name) == getattr(sim.world, name), name
        assert world.control_dt_ms == (200 if robot is WIDOWX else 333)
        world.reset(3)
        result = world.step(STILL)
        assert set(result.sub_goals) == set(world.sub_goals)
        (camera,) = world.cameras
        assert world.image(camera.name, camera.height, camera.width).shape == (camera.height, 640, 3)
        assert world.instruction


@pytest.mark.usefixtures("double")
def test_the_same_seed_gives_the_same_episode_whatever_was_played_before(double: Double) -> None:
    used, fresh, seen = made("google_robot_move_near"), made("google_robot_move_near"), []
    for world in (used, fresh, used):
        world.reset(5)
        results = [world.step(STILL * 0.5) for _ in range(3)]
        seen.append((results, dict(world.state()), world.image("overhead", 512, 640).tobytes()))
    assert seen[0] == seen[1] == seen[2]
    assert all(options["reconfigure"] for _, options in double.of("reset"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("google_robot_pick_coke_cn", "simpler: task: no 'google_robot_pick_coke_cn'; did you mean google_robot_pick_"),
        ("widowx_stack_cube,convention=rt1", "simpler: convention: no 'rt1'; known: openvla, native"),
        ("widowx_stack_cube,shader=raster", "simpler: shader: no 'raster'; known: ibl, rt"),
        ("google_robot_pick_coke_can,variant=dark", "simpler: variant: no 'dark'; did you mean darker?"),
        ("widowx_stack_cube,variant=base", "simpler: variant: none is published for widowx_stack_cube"),
        ("google_robot_pick_object,variant=base", "simpler: variant: none is published for google_robot_pick_object"),
        ("convention=native,widowx_stack_cube", "simpler: no parameter 'widowx_stack_cube'; known: task, variant"),
        ("widowx_stack_cube,speed=2", "simpler: no parameter 'speed'"),
    ],
)
def test_what_is_not_a_task_or_an_option_is_named(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}"):
        find(f"simpler:{text}")


def test_a_package_that_simplerenv_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As old sapien does where setuptools has no pkg_resources any more."""
    real = builtins.__import__

    def refusing(name: str, *rest: Any) -> Any:
        if name == "simpler_env":
            raise ModuleNotFoundError("No module named 'pkg_resources'", name="pkg_resources")
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", refusing)
    with pytest.raises(ModuleNotFoundError, match=r"^simpler: No module named 'pkg_resources'$") as refused:
        find("simpler").world.check()
    assert refused.value.name == "simpler_env"


# -- the evaluations --------------------------------------------------------------------------------------


def test_visual_matching_is_simplerenv_s_own_set_up_and_drawers_need_no_ray_tracing(double: Double) -> None:
    made("google_robot_pick_vertical_coke_can", seed=4)
    made("google_robot_open_drawer")
    made("google_robot_open_drawer,shader=rt")
    made("google_robot_open_drawer")
    can, *drawers = double.of("made")
    assert can[0] == "GraspSingleOpenedCokeCanInScene-v0"
    assert (can[1]["prepackaged_config"], can[1]["laid_vertically"]) == (True, True)
    assert [values["render_config"]["camera_shader_dir"] for _, values in drawers] == ["ibl", "rt", "ibl"]
    assert double.of("reset")[0] == (4, {"reconfigure": True})  # the environment draws the start from the seed


def test_widowx_and_move_near_begin_as_published(double: Double) -> None:
    made("widowx_carrot_on_plate", seed=25)
    made("google_robot_move_near", seed=61)
    starts = [options["obj_init_options"] for _, options in double.of("reset") if "obj_init_options" in options]
    assert starts == [{"episode_id": 1}, {"episode_id": 1}]


@pytest.mark.parametrize(
    ("text", "env", "values"),
    [
        ("pick_standing_coke_can,variant=base", f"{CAN}InScene-v0", {"upright": True}),
        ("pick_coke_can,variant=table2", f"{CAN}InScene-v0", {"scene_name": f"{BAKED}2_h870"}),
        ("pick_coke_can,variant=distractors2", f"{CAN}DistractorInScene-v0", {"distractor_config": "more"}),
        ("pick_coke_can,variant=camera2", f"{CAN}AltGoogleCamera2InScene-v0", {}),
        ("move_near,variant=darker", "MoveNearGoogleInScene-v0", {"slightly_darker_lighting": True}),
        ("move_near,variant=camera1", "MoveNearAltGoogleCameraInScene-v0", {"scene_name": "google_pick_coke_can_1_v4"}),
        ("close_top_drawer,variant=cabinet3", "CloseTopDrawerCustomInScene-v0", {"station_name": "mk_station3"}),
        ("open_drawer,variant=background2", "OpenDrawerCustomInScene-v0", {"scene_name": "modern_office_no_roof"}),
        (
            "place_apple_in_closed_top_drawer,variant=brighter",
            "PlaceIntoClosedTopDrawerCustomInScene-v0",
            {"light_mode": "brighter", "model_ids": "apple"},
        ),
    ],
)
def test_a_variant_is_built_as_the_published_scripts_do(
    double: Double, text: str, env: str, values: dict[str, Any]
) -> None:
    made(f"google_robot_{text}")
    ((built, given),) = double.of("made")
    assert built == env
    assert given.items() >= values.items()
    assert given["prepackaged_config"] is False
    assert (given["robot"], given["control_freq"], given["sim_freq"]) == ("google_robot_static", 3, 513)
    assert given["rgb_overlay_path"] is None


def test_every_variant_can_be_made(double: Double) -> None:
    from auras_ros.sim.simpler.variants import VARIANTS

    names = [(task, name) for task, each in TASKS.items() for name in VARIANTS.get(each.kind, {})]
    for task, name in names:
        made(f"{task},variant={name}").close()
    assert len(double.of("made")) == len(names) == 4 * 11 + 3 * 10 + 8 * 7 + 5 * 7


def test_the_seeds_of_a_variant_go_through_the_published_starts(double: Double) -> None:
    for task, count, first, last in (
        ("pick_coke_can", 25, (0.35, 0.2, -0.35, -0.02), (0.35, 0.2, -0.12, 0.42)),
        ("open_top_drawer", 9, (0.65, -0.2, 0.0, 0.0), (0.85, 0.2, 0.0, 0.0)),
        ("place_apple_in_closed_top_drawer", 27, (0.65, -0.2, -0.08, -0.02), (0.65, 0.2, -0.02, 0.08)),
    ):
        world, double.calls[:] = made(f"google_robot_{task},variant=base"), []
        for seed in range(count + 1):
            world.reset(seed)
        starts = [
            (*options["robot_init_options"]["init_xy"], *options["obj_init_options"]["init_xy"])
            for _, options in double.of("reset")
        ]
        np.testing.assert_allclose((starts[0], starts[count - 1], starts[count]), (first, last, first), atol=1e-12)
        assert len(set(starts)) == count


def test_move_near_s_robot_is_turned_as_published(double: Double) -> None:
    """By -0.09 rad, before it is turned around."""
    made("google_robot_move_near,variant=base")
    turned = double.of("reset")[-1][1]["robot_init_options"]["init_rot_quat"]
    np.testing.assert_allclose(turned, [np.sin(0.045), 0.0, 0.0, np.cos(0.045)], atol=1e-12)


# -- actions ----------------------------------------------------------------------------------------------


def turned(wishes: list[float], robot: Any = GOOGLE) -> list[float]:
    """What the gripper is told for these shares to which it is to open."""
    actions = OpenVlaActions(robot)
    return [round(float(actions.native(np.array([*np.zeros(6), wish]))[6]), 6) for wish in wishes]


def test_a_change_of_the_google_robot_s_gripper_is_held_for_fifteen_steps() -> None:
    assert turned([1.0, 1.0, 0.6, 0.2]) == [0.0, 0.0, 0.4, 0.4]  # smaller ones are passed on as they are
    assert turned([1.0, 0.0] + [0.0] * 16) == [0.0] + [1.0] * 15 + [0.0] * 2
    # What is wanted meanwhile is not done, and is not made up for afterwards either.
    assert turned([1.0, 0.0, 1.0] + [1.0] * 15) == [0.0] + [1.0] * 15 + [0.0] * 2
    assert turned([0.0, 0.75, *[0.75] * 14, 0.0]) == [0.0] + [-0.75] * 15 + [0.75]


def test_the_gripper_of_widowx_opens_above_a_half() -> None:
    assert turned([0.5, 0.51, 0.0, 1.0], WIDOWX) == [-1.0, 1.0, -1.0, 1.0]


def matrix(about: str, angle: float) -> Any:
    c, s = np.cos(angle), np.sin(angle)
    return np.array({"x": [[1, 0, 0], [0, c, -s], [0, s, c]], "y": [[c, 0, s], [0, 1, 0], [-s, 0, c]],
                     "z": [[c, -s, 0], [s, c, 0], [0, 0, 1]]}[about])  # fmt: skip


def test_euler_angles_are_one_turn_about_an_axis() -> None:
    """Compared with the product of the three turns, and Rodrigues' formula."""
    random = np.random.default_rng(0)
    for angles in random.uniform(-1.5, 1.5, (50, 3)):
        expected = matrix("z", angles[2]) @ matrix("y", angles[1]) @ matrix("x", angles[0])
        turn = axis_angle(*angles)
        size = np.linalg.norm(turn)
        x, y, z = turn / size
        across = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
        np.testing.assert_allclose(np.eye(3) + np.sin(size) * across + (1 - np.cos(size)) * across @ across, expected)
        np.testing.assert_allclose(euler(quaternion(*angles)), angles, atol=1e-9)
    np.testing.assert_array_equal(axis_angle(0.0, 0.0, 0.0), np.zeros(3))
    np.testing.assert_allclose(axis_angle(0.0, 1e-9, 0.0), [0.0, 1e-9, 0.0], rtol=1e-12)


def test_an_action_of_the_data_set_becomes_simplerenv_s(double: Double) -> None:
    world = made("google_robot_pick_coke_can")
    assert [each.name for each in world.channels] == ["x", "y", "z", "roll", "pitch", "yaw", "gripper"]
    world.step(np.array([0.02, -0.01, 0.03, 0.0, 0.0, 0.4, 1.0]))
    world.step(np.array([0.0, 0.0, 0.0, 0.1, 0.2, 0.3, 0.0]))
    first, second = double.of("step")
    np.testing.assert_allclose(first, [0.02, -0.01, 0.03, 0.0, 0.0, 0.4, 0.0], atol=1e-12)
    np.testing.assert_allclose(second, [0.0, 0.0, 0.0, *axis_angle(0.1, 0.2, 0.3), 1.0])


def test_native_actions_are_passed_on(double: Double) -> None:
    action = np.array([0.02, -0.01, 0.03, 0.1, 0.2, 0.3, -0.7])
    world = made("widowx_stack_cube,convention=native")
    assert [each.name for each in world.channels] == ["x", "y", "z", "rx", "ry", "rz", "gripper"]
    world.step(action)
    np.testing.assert_array_equal(double.of("step")[0], action)


@pytest.mark.usefixtures("double")
def test_the_state_is_the_tool_s_pose_before_the_robot_its_joints_and_its_gripper() -> None:
    world = made("google_robot_pick_coke_can")
    before = world.state()
    world.step(np.array([0.02, -0.01, 0.03, 0.0, 0.0, 0.0, 0.25]))
    after = world.state()
    moved = [after[f"tcp_{axis}"] - before[f"tcp_{axis}"] for axis in "xyz"]
    np.testing.assert_allclose(moved, [0.02, -0.01, 0.03], atol=1e-12)
    assert after["tcp_yaw"] == pytest.approx(0.5)
    assert after["joint_head_tilt"] == pytest.approx(1.0)
    assert (before["gripper"], before["joint_finger_right"]) == (1.0, 0.0)
    open_native, closed_native = (
        made("widowx_stack_cube,convention=native"),
        made("google_robot_pick_coke_can,convention=native"),
    )
    assert open_native.state()["gripper"] == pytest.approx(1.0)
    assert "gripper" not in closed_native.state()  # it takes changes


@pytest.mark.parametrize(
    ("wrong", "refusal"),
    [
        (STILL[:6], ActionRefusal.SIZE),
        (np.append(STILL, 1.0), ActionRefusal.SIZE),
        (STILL * np.nan, ActionRefusal.NOT_FINITE),
        (STILL + [0, 0, 0, 0, 0, 0, 0.5], ActionRefusal.OUT_OF_RANGE),
        (STILL + [2, 0, 0, 0, 0, 0, 0], ActionRefusal.OUT_OF_RANGE),
    ],
)
def test_a_bad_action_is_refused_by_name_and_reaches_nobody(double: Double, wrong: Any, refusal: ActionRefusal) -> None:
    world = made("google_robot_pick_coke_can")
    with pytest.raises(ActionError) as refused:
        world.step(wrong)
    assert refused.value.refusal is refusal
    assert double.of("step") == []


# -- an episode -------------------------------------------------------------------------------------------


def test_success_is_simplerenv_s_and_its_time_limit_ends_an_episode(double: Double) -> None:
    double.successes = {2}
    double.limit = 3
    world = made("google_robot_pick_coke_can")
    assert [(each.success, each.reward, each.ended) for each in (world.step(STILL) for _ in range(3))] == [
        (False, 0.0, ""),
        (True, 1.0, ""),
        (False, 0.0, "time limit"),
    ]
    world.reset(1)
    assert world.step(STILL).ended == ""


@pytest.mark.parametrize(
    ("task", "stats", "goals"),
    [
        (
            "google_robot_pick_coke_can",
            {"grasped": True, "n_lift_significant": 2},
            {"grasped": 1.0, "consec_grasp": 0.0, "lifted": 0.4},
        ),
        ("google_robot_open_drawer", {"qpos": "0.075"}, {"opened": 0.5}),
        ("google_robot_close_drawer", {"qpos": "0.040"}, {"closed": 1.0}),
        (
            "google_robot_place_in_closed_drawer",
            {"qpos": 0.2, "is_drawer_open": np.True_, "has_contact": 7},
            {"is_drawer_open": 1.0, "has_contact": 1.0},
        ),
        (
            "widowx_stack_cube",
            {"src_on_target": np.True_},
            {**dict.fromkeys([each.name for each in TASKS["widowx_stack_cube"].goals], 0.0), "src_on_target": 1.0},
        ),
    ],
)
def test_the_episode_s_statistics_are_sub_goals_and_kept_as_they_are(
    double: Double, task: str, stats: dict[str, Any], goals: dict[str, float]
) -> None:
    double.stats = stats
    result = made(task).step(STILL)
    assert result.sub_goals == pytest.approx(goals)
    assert result.statistics.items() >= {name: float(value) for name, value in stats.items()}.items()
    assert {type(value) for value in result.statistics.values()} == {float}


@pytest.mark.usefixtures("double")
def test_a_statistic_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.sim.simpler.double.first_stats", lambda env_id: {"grasped": True})
    with pytest.raises(ValueError, match="simpler: episode_stats has no 'consec_grasp': grasped"):
        made("google_robot_pick_coke_can").step(STILL)


def test_the_instruction_is_read_after_every_step(double: Double) -> None:
    """The second sub-task begins by itself; a change of the gripper that was held ends with the first one."""
    world = made("google_robot_place_in_closed_drawer", seed=1)
    for _ in range(99):
        world.step(STILL)
    world.step(STILL * 0.0)  # closes
    told = world.instruction
    assert told.startswith("open ")
    world.step(STILL * 0.0)
    assert world.instruction == told.replace("open ", "place apple into ")
    world.step(STILL * 0.0)
    assert [step[6] for step in double.of("step")[-4:]] == [0.0, 1.0, 1.0, 0.0]


def test_a_policy_may_end_a_sub_task_and_in_the_last_one_the_episode(double: Double) -> None:
    world, go_on = made("google_robot_place_in_closed_drawer,terminate=true"), np.append(STILL, 1.0)
    assert world.channels[-1].name == "terminate"
    assert world.step(np.append(STILL, 0.0)).ended == ""
    assert world.step(go_on).ended == ""
    assert double.of("advance") == [1]
    assert world.instruction.startswith("place apple")
    assert world.step(go_on).ended == "terminated by the policy"
    assert made("google_robot_pick_coke_can,terminate=true").step(go_on).ended == "terminated by the policy"


@pytest.mark.usefixtures("double")
def test_a_picture_has_the_size_that_is_asked_for() -> None:
    world = made("widowx_stack_cube")
    whole, small = world.image("third_view", 480, 640), world.image("third_view", 224, 224)
    assert (small.shape, small.dtype) == ((224, 224, 3), np.uint8)
    np.testing.assert_allclose(small.mean(), whole.mean(), atol=0.5)
    with pytest.raises(ValueError, match="simpler: the camera of this task is 'third_view', not 'overhead'"):
        world.image("overhead", 480, 640)


# -- over topics ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("double")
def test_its_game_ends_with_the_world_s_time_limit(double: Double) -> None:
    double.limit = 3
    game = Game(bridge_settings(find("simpler:widowx_stack_cube"))(max_steps=300))
    dt_ns = game.dt_ns
    for step in range(1, 6):
        game.offer(STILL.tolist(), step * dt_ns)
        game.tick(step * dt_ns)
    assert (dt_ns, game.status.step, game.status.done, game.status.success) == (200_000_000, 3, True, False)
    assert game.status.statistics["src_on_target"] == 0.0


@pytest.mark.usefixtures("double")
def test_a_configuration_may_name_its_task(tmp_path: Path) -> None:
    text = """
supervisor: {ros__parameters: {processes: [sim_bridge], sim: "simpler:google_robot_pick_coke_can"}}
simpler: {ros__parameters: {task: widowx_stack_cube, shift_ms: 90.0}}
"""
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    config = read_config(path)
    assert config.supervision.started == ("simpler",)
    settings = bridge_settings(find(config.supervision.sim))(**config.section("simpler"))
    world = settings.make()
    assert (world.control_dt_ms, world.cameras) == (200, (WIDOWX.camera,))
    with pytest.raises(ParameterError, match="simpler: task: no 'kitchen'"):
        bridge_settings(find("simpler"))(task="kitchen")


@pytest.mark.usefixtures("double")
def test_its_bridge_tells_the_instruction(ros_domain_id: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also that of the second sub-task."""
    monkeypatch.setattr("tests.sim.simpler.double.FORCED", 2)
    init(args=[])
    node, told, dt_ns = (
        SimBridge(find("simpler:google_robot_place_in_closed_drawer"), VirtualClock(1_000)),
        [],
        333_000_000,
    )
    try:
        names = {name for name, _ in node.get_topic_names_and_types()}
        node._prompt = SimpleNamespace(publish=lambda message: told.append(message.data))
        for tick in range(1, 6):
            node._game.offer(STILL.tolist(), tick * dt_ns, "x,y,z,roll,pitch,yaw,gripper")
            node._tick(tick * dt_ns)
    finally:
        node.destroy_node()
        try_shutdown()
    assert [text.split()[0] for text in told] == ["open", "place"]
    assert {"/camera/overhead/image_raw", "/camera/overhead/camera_info", "/prompt", "/simpler/status"} <= names


def test_the_robot_json_on_our_page_is_one(tmp_path: Path) -> None:
    (text,) = code_of(WORLD, "json")
    (tmp_path / "robot.json").write_text(text)
    robot, world = SomeRobot.load(tmp_path / "robot.json"), find("simpler").world
    assert robot.contract.names == tuple(each.name for each in world.channels)
    assert robot.dt_ms == world.control_dt_ms
    assert robot.camera("image", 224, 224).name == world.cameras[0].name


def test_the_tasks_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert list_command.run(["simulators", "tasks"]) == 0
    said = capsys.readouterr().out
    assert "simpler:TASK (auras list tasks)" in said
    assert all(f"  simpler:{task} " in said for task in TASKS)
    assert "gym:gym_pusht/PushT-v0 " in said
