"""Gymnasium's own environments as worlds, and Push-T by its registered id beside our own class.

Guards: a number that is taken for another one; an action that the environment would cut or misread; an episode that
goes on after its end; a file that promises what the environment does not have.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import yaml

from auras_ros import resources
from auras_ros.clock import VirtualClock
from auras_ros.environments import OURS
from auras_ros.ros import init, try_shutdown
from auras_ros.sim.bridge.node import SimBridge
from auras_ros.sim.gym.description import GymValue, shipped
from auras_ros.sim.gym.world import GymWorld
from auras_ros.sim.pusht.world import PushTWorld
from auras_ros.sim.world import ActionError, ActionRefusal, World
from auras_ros.sim.worlds import find
from tests.another_package import WORLD, code_of

RENDER = {"from": "render", "height": 500, "width": 500}
PENDULUM: dict[str, Any] = {
    "id": "Pendulum-v1",
    "control_dt_ms": 50,
    "cameras": {"front": RENDER},
    "state": {"cosine": "observation[0]"},
    "actions": [{"name": "torque", "unit": "N m", "low": -2, "high": 2}],
    "success": {"from": "reward", "at_least": -0.01},
}


def written(folder: Path, **other: Any) -> str:
    """The name of a world whose description is Pendulum-v1's with other values; None leaves a key out."""
    values = {key: value for key, value in {**PENDULUM, **other}.items() if value is not None}
    path = folder / f"{len(list(folder.iterdir()))}.yaml"  # files are read once
    path.write_text(yaml.safe_dump(values))
    return f"gym:{path}"


def centre(world: World) -> np.ndarray:
    return np.array([(each.low + each.high) / 2 for each in world.channels])


@pytest.mark.parametrize("task", GymWorld.tasks())
def test_every_description_is_true_of_its_environment(task: str) -> None:
    """The same seed and actions give the same episode, whatever was played before; what it says it has, it shows."""
    used, fresh = find(f"gym:{task}").make(), find(f"gym:{task}").make()
    seen = []
    for world in (used, fresh, used):
        world.reset(5)
        results = [world.step(centre(world)) for _ in range(4)]
        pictures = [world.image(each.name, each.height, each.width) for each in world.cameras]
        for each, picture in zip(world.cameras, pictures, strict=True):
            assert (picture.shape, picture.dtype) == ((each.height, each.width, 3), np.uint8)
            assert picture.std() > 1.0  # something is drawn
        assert all(set(result.sub_goals) == set(world.sub_goals) for result in results)
        assert all(0.0 <= share <= 1.0 for result in results for share in (result.reward, *result.sub_goals.values()))
        rounded = [round(share, 9) for result in results for share in (result.reward, *result.sub_goals.values())]
        seen.append((rounded, dict(world.state()), [picture.tobytes() for picture in pictures]))
    assert seen[0] == seen[1] == seen[2]
    used.reset(6)
    assert dict(used.state()) != seen[0][1]


def test_the_state_and_the_reward_are_the_environment_s() -> None:
    world, env = find("gym:Pendulum-v1").make(), gymnasium.make("Pendulum-v1")
    world.reset(3)
    env.reset(seed=3)
    for torque in (-2.0, 0.5, 1.5):
        result = world.step(np.array([torque]))
        observation, reward, *_ = env.step(np.array([torque], dtype=np.float32))
        np.testing.assert_array_equal(list(world.state().values()), observation.astype(np.float64))
        assert result.reward == pytest.approx((float(reward) + 16.3) / 16.3)
        assert result.sub_goals["upright"] == pytest.approx((observation[0] + 1) / 2)


def test_push_t_by_its_id_plays_the_episodes_of_our_own_class() -> None:
    """Same pictures, states, rewards, coverage and successes. Whole numbers, since Gymnasium's actions are float32."""
    ours, theirs = find("pusht").make(), find("gym:gym_pusht/PushT-v0").make()
    assert isinstance(ours, PushTWorld)
    assert (ours.channels, ours.control_dt_ms) == (theirs.channels, theirs.control_dt_ms)
    for seed in (0, 7):
        ours.reset(seed)
        theirs.reset(seed)
        for step in range(30):
            target = np.round(ours.tee[:2]) if step % 3 else np.array([256.0, 200.0 + step])
            mine, its = ours.step(target), theirs.step(target)
            assert (mine.success, mine.ended) == (its.success, its.ended)
            assert mine.reward == pytest.approx(its.reward, abs=1e-12)  # gym-pusht adds areas up in any order
            assert mine.sub_goals == pytest.approx(its.sub_goals, abs=1e-12)
            assert ours.state() == theirs.state()
            np.testing.assert_array_equal(ours.image(), theirs.image("top", 96, 96))


def test_a_success_and_the_end_of_the_time_are_told_apart() -> None:
    """CartPole falls at once, or stands until the time is over; MountainCar's car is over the hill, or not."""
    balance = find("gym:CartPole-v1").make()
    balance.reset(0)
    result = balance.step(np.array([0.0]))
    while not result.ended:
        result = balance.step(np.array([0.0]))
    assert (result.success, result.ended) == (False, "terminated")
    balance.reset(1)
    result = balance.step(np.array([0.0]))
    while not result.ended and not result.success:
        state = balance.state()
        lean = state["angle"] + 0.3 * state["angle_speed"] + 0.05 * state["position"] + 0.1 * state["speed"]
        result = balance.step(np.array([1.0 if lean > 0 else 0.0]))
    assert (result.success, result.ended) == (True, "")
    car = find("gym:MountainCarContinuous-v0").make()
    car.reset(0)
    result = car.step(np.array([0.0]))
    while not result.ended and not result.success:
        result = car.step(np.array([1.0 if car.state()["velocity"] > 0 else -1.0]))
    assert (result.success, result.ended) == (True, "")
    car.reset(0)
    results = [car.step(np.array([0.0])) for _ in range(999)]
    assert [each.ended for each in results[-2:]] == ["", "time limit"]


@pytest.mark.parametrize(("value", "way"), [(0.0, 0), (0.49, 0), (0.5, 1), (1.0, 1)])
def test_a_discrete_action_is_the_nearest_whole_number(value: float, way: int) -> None:
    world, env = find("gym:CartPole-v1").make(), gymnasium.make("CartPole-v1")
    world.reset(2)
    env.reset(seed=2)
    world.step(np.array([value]))
    np.testing.assert_array_equal(list(world.state().values()), env.step(way)[0].astype(np.float64))


@pytest.mark.parametrize(
    ("wrong", "refusal"),
    [([2.5], ActionRefusal.OUT_OF_RANGE), ([0.0, 0.0], ActionRefusal.SIZE), ([np.nan], ActionRefusal.NOT_FINITE)],
)
def test_a_bad_action_is_refused_by_name_and_moves_nothing(wrong: list[float], refusal: ActionRefusal) -> None:
    world = find("gym:Pendulum-v1").make()
    before = dict(world.state())
    with pytest.raises(ActionError) as refused:
        world.step(np.array(wrong))
    assert refused.value.refusal is refusal
    assert world.state() == before


# -- files ------------------------------------------------------------------------------------------------


def test_a_file_of_one_s_own_is_a_world(tmp_path: Path) -> None:
    world = find(written(tmp_path, instruction="hold the pole up")).make()
    world.reset(0)
    assert world.instruction == "hold the pole up"
    assert set(world.state()) == {"cosine"}
    assert world.image("front", 50, 60).shape == (50, 60, 3)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"id": None}, "id is missing"),
        ({"idd": "x"}, "key 'idd' is unknown"),
        ({"control_dt_ms": 0}, "control_dt_ms: must be at least 1"),
        ({"control_dt_ms": "fast"}, "control_dt_ms: expected int, got 'fast'"),
        ({"cameras": {}}, "cameras: expected at least one"),
        ({"actions": []}, "actions: expected at least one"),
        ({"cameras": {"3rd": {"from": "render", "height": 5, "width": 5}}}, "cameras: '3rd' is not a name"),
        ({"cameras": {"a": {"from": "render", "height": 5}}}, "cameras: a: width is missing"),
        ({"cameras": {"a": {"from": "picture", "height": 5, "width": 5}}}, "cameras: a: 'picture' is not a source"),
        ({"cameras": {"a": {"from": "render", "height": 0, "width": 5}}}, "cameras: a: height and width are 1 to 8192"),
        (
            {"cameras": {"a": {**RENDER, "intrinsics": [1, 1, 0]}}},
            r"cameras: a: intrinsics: expected \[fx, fy, cx, cy\]",
        ),
        ({"cameras": {"a": {**RENDER, "intrinsics": [1, 0, 2, 2]}}}, "cameras: a: intrinsics: .* above 0, got"),
        ({"cameras": {"a": {**RENDER, "intrinsics": [1, 1, 2, True]}}}, "cameras: a: intrinsics: .*got"),
        ({"cameras": {"a": {**RENDER, "intrinsics": [1, 1, 2, float("nan")]}}}, "cameras: a: intrinsics: .*got"),
        ({"cameras": {"a": {**RENDER, "intrinsics": 1}}}, "cameras: a: intrinsics: expected list, got 1"),
        ({"state": {"a": "observation(0)"}}, r"state: a: 'observation\(0\)' is not a source"),
        ({"actions": [{"name": "a,b", "low": 0, "high": 1}]}, r"actions\[0\]: 'a,b' is not a name"),
        ({"actions": [{"name": "a", "low": 1, "high": 1}]}, r"actions\[0\]: low 1.0 is not below high 1.0"),
        ({"actions": [{"name": "a", "low": 0, "high": float("inf")}]}, r"actions\[0\]: high: expected float"),
        ({"actions": [{"name": "a", "low": low, "high": 1} for low in (0, 0.5)]}, "actions: a name is given twice"),
        ({"success": {"at_least": 1}}, "success: from is missing"),
        ({"reward": {"from": "reward", "low": 1, "high": 1}}, "reward: low and high are equal"),
        ({"sub_goals": {"a": "reward"}}, "sub_goals: a: expected from, got 'reward'"),
    ],
)
def test_a_file_that_is_wrong_is_refused_by_its_key(tmp_path: Path, other: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=rf"^gym: .*\.yaml: {said}"):
        find(written(tmp_path, **other))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"id": "Pendulum-v99"}, "Pendulum-v99: cannot be made: .*Pendulum"),
        ({"make": {"colour": "red"}}, "Pendulum-v1: cannot be made: .*colour"),
        ({"actions": [{"name": "a", "low": -3, "high": 2}]}, r"actions: a: \[-3, 2\] is beyond the .* \[-2, 2\]"),
        ({"actions": [{"name": n, "low": -1, "high": 1} for n in "ab"]}, r"actions: 2 are described, but Box\(.*has 1"),
        ({"state": {"a": "observation[3]"}}, r"state: observation\[3\]: there is no '3' in it"),
        ({"state": {"a": "observation.angle"}}, r"state: observation.angle: there is no 'angle' in it"),
        ({"state": {"a": "observation"}}, "state: observation: is not a number"),
    ],
)  # fmt: skip
def test_what_the_environment_does_not_have_is_named_when_it_is_made(
    tmp_path: Path, other: dict[str, Any], said: str
) -> None:
    sim = find(written(tmp_path, **other))
    with pytest.raises(ValueError, match=f"^gym: .*{said}"):
        sim.make()


def test_what_shows_only_later_is_named_then(tmp_path: Path) -> None:
    world = find(written(tmp_path, success={"from": "info.done"})).make()
    with pytest.raises(ValueError, match=r"gym: Pendulum-v1: info\.done: there is no 'done' in it"):
        world.step(np.zeros(1))
    world = find(written(tmp_path, cameras={"front": {"from": "render", "height": 400, "width": 500}})).make()
    with pytest.raises(ValueError, match=r"cameras: front: render is uint8 \[500, 500, 3\], not uint8 \[400, 500, 3\]"):
        world.image("front", 84, 84)
    with pytest.raises(ValueError, match="no camera 'side'; its cameras: front"):
        world.image("side", 84, 84)


def test_an_action_that_cannot_be_channels_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd(gymnasium.Env):  # type: ignore[type-arg]
        metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
        observation_space = gymnasium.spaces.Discrete(2)
        action_space = gymnasium.spaces.MultiBinary(2)

        def __init__(self, render_mode: str) -> None:
            self.render_mode = render_mode

    monkeypatch.setitem(
        gymnasium.registry,
        "Odd-v0",
        gymnasium.envs.registration.EnvSpec("Odd-v0", entry_point=Odd),
    )
    with pytest.raises(ValueError, match=r"actions: MultiBinary\(2\) cannot be channels, only Box and Discrete can"):
        find(written(tmp_path, id="Odd-v0")).make()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gym:Pendulum-v0", "gym: no description of 'Pendulum-v0' .*did you mean Pendulum-v1"),
        ("gym:Kitchen", "gym: no description of 'Kitchen' .*known: CartPole-v1, "),
        ("gym:./nowhere.yaml", "gym: nowhere.yaml: .*No such file"),
    ],
)
def test_what_is_not_described_is_named(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}"):
        find(text)


def test_the_file_on_our_page_is_a_world(tmp_path: Path) -> None:
    (text,) = code_of(WORLD, "yaml")
    (tmp_path / "mine.yaml").write_text(text)
    world = find(f"gym:{tmp_path / 'mine.yaml'}").make()
    assert world.instruction == "hold the pole up"
    assert set(world.step(np.zeros(1)).sub_goals) == {"upright"}


def test_its_bridge_shows_it(ros_domain_id: int) -> None:
    init(args=[])
    node = SimBridge(find("gym:CartPole-v1"), VirtualClock(1_000))
    try:
        names = {name for name, _ in node.get_topic_names_and_types()}
        assert node._game.offer([1.0], 20_000_000, "push") is None
        for tick in range(1, 4):
            node._tick(tick * 20_000_000)
        assert node._game.status.step == 3
    finally:
        node.destroy_node()
        try_shutdown()
    assert {"/camera/front/image_raw", "/joint_states", "/gym/status"} <= names
    assert "/prompt" not in names


def test_a_camera_may_be_calibrated(tmp_path: Path, ros_domain_id: int) -> None:
    cameras = {"front": {**RENDER, "intrinsics": [400, 401.5, 250, 249]}, "plain": RENDER}
    sim = find(written(tmp_path, cameras=cameras))
    assert [each.intrinsics for each in sim.world.cameras] == [(400.0, 401.5, 250.0, 249.0), None]
    init(args=[])
    node, told = SimBridge(sim, VirtualClock(1_000)), []
    try:
        node._cameras = [replace(each, info=SimpleNamespace(publish=told.append)) for each in node._cameras]
        node._tick(50_000_000)
    finally:
        node.destroy_node()
        try_shutdown()
    assert [list(each.k) for each in told] == [[400.0, 0.0, 250.0, 0.0, 401.5, 249.0, 0.0, 0.0, 1.0], [0.0] * 9]


def test_in_a_process_of_its_own_it_declares_and_ends_the_same() -> None:
    here = find("gym:CartPole-v1")
    there = replace(here, environment=OURS).make()
    world = here.make()
    try:
        for name in ("channels", "cameras", "control_dt_ms", "sub_goals"):
            assert getattr(there, name) == getattr(world, name)
        for each in (world, there):
            each.reset(4)
        mine, its = world.step(np.zeros(1)), there.step(np.zeros(1))
        while not mine.ended:
            assert (mine, world.state()) == (its, there.state())
            mine, its = world.step(np.zeros(1)), there.step(np.zeros(1))
        assert (mine.ended, its.ended) == ("terminated", "terminated")
    finally:
        there.close()


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_robot"):
        find(written(tmp_path, **{"import": "no_such_robot"})).make()


def test_a_source_is_read_where_it_is() -> None:
    parts = {"observation": {"arm": [[1, 2], [3, 4]]}, "reward": 0.5, "terminated": True}
    assert GymValue.parse("observation.arm[1][-2]").number(parts) == 3.0
    assert GymValue.parse("terminated").number(parts) == 1.0
    with pytest.raises(ValueError, match="truncated: there is no 'truncated' in it"):
        GymValue.parse("truncated").find(parts)
    with pytest.raises(ValueError, match="reward: is nan"):
        GymValue.parse("reward").number({"reward": float("nan")})


def test_descriptions_ship_under_their_environments_ids() -> None:
    for name in shipped():
        text = resources.find("config", f"gym/{name}.yaml").read_text()
        assert yaml.safe_load(text)["id"].replace("/", "_") == name
        assert text.startswith("# ")
