"""A world by its name and options, and one of another package: that of docs/worlds.md.

Guards: an option that is misspelt and ignored; another package's world that does less than Push-T; a broken package
that ends a command with a traceback.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from auras_ros.cli import list as list_command
from auras_ros.cli import sim as sim_command
from auras_ros.clock import VirtualClock
from auras_ros.nodes.common.config import ConfigError, bridge_alone, read_config
from auras_ros.parameters import ParameterError
from auras_ros.ros import Parameter, init, try_shutdown
from auras_ros.sim.bridge.game import Game
from auras_ros.sim.bridge.node import SimBridge
from auras_ros.sim.bridge.settings import bridge_settings
from auras_ros.sim.pusht.world import PushTWorld
from auras_ros.sim.world import ActionError, ActionRefusal, World
from auras_ros.sim.worlds import find
from tests.another_package import WORLD, install

DT_NS = 100_000_000


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    install(WORLD, tmp_path, monkeypatch)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "drift_px", "coverage"),
    [
        ("pusht", 0.0, 0.95),
        ("pusht-drift", 0.5, 0.9),
        ("pusht:drift_px=1", 1.0, 0.95),
        ("pusht-drift:drift_px=0.7, success_coverage=0.8", 0.7, 0.8),
    ],
)
def test_a_name_brings_its_options_and_may_be_given_others(text: str, drift_px: float, coverage: float) -> None:
    sim = find(text)
    assert sim.world is PushTWorld
    assert (sim.options.drift_px, sim.options.success_coverage) == (drift_px, coverage)
    made = sim.make()
    assert isinstance(made, PushTWorld)
    assert (made.drift_px, made.success_coverage) == (drift_px, coverage)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kitchen", "sim 'kitchen' is not known; known: pusht, pusht-drift"),
        ("pusht:drift=1", "pusht: no parameter 'drift'; did you mean drift_px?"),
        ("pusht:colour=red", "pusht: no parameter 'colour'; known: drift_px, success_coverage, things"),
        ("pusht:drift_px=fast", "pusht: drift_px: expected float, got 'fast'"),
        ("pusht:drift_px=50", "pusht: drift_px: must be in"),
        ("pusht:drift_px", "pusht: drift_px needs a value: drift_px=VALUE"),
        ("pusht-drift:drift_px=", "pusht-drift: drift_px needs a value: drift_px=VALUE"),
        ("lfit", r"sim 'lfit' is not known; did you mean lift\?"),
        ("pusht-drif", r"sim 'pusht-drif' is not known; did you mean pusht-drift\?"),
        ("lift,cameras=1", "sim 'lift,cameras=1': options follow a colon: lift:cameras=1$"),
    ],
)
def test_what_is_not_a_world_or_an_option_is_named(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}"):
        find(text)


def made(text: str = "reach") -> World:
    world = find(text).make()
    world.reset(3)
    return world


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("text", ["pusht", "pusht-drift", "reach", "reach:point_step_m=0.05"])
def test_every_world_keeps_the_interface(text: str) -> None:
    """The same seed and actions give the same episode, whatever was played before; what it says it has, it shows."""
    used, fresh = made(text), made(text)
    target = np.array([(each.low + each.high) / 2 for each in used.channels])
    seen = []
    for world in (used, fresh, used):
        world.reset(5)
        results = [world.step(target) for _ in range(4)]
        pictures = [world.image(each.name, each.height, each.width) for each in world.cameras]
        for each, picture in zip(world.cameras, pictures, strict=True):
            assert picture.shape == (each.height, each.width, 3)
            assert picture.dtype == np.uint8
        assert all(set(result.sub_goals) == set(world.sub_goals) for result in results)
        assert all(0.0 <= share <= 1.0 for result in results for share in (result.reward, *result.sub_goals.values()))
        assert {each.name for each in world.channels} <= set(world.state())
        seen.append((results, dict(world.state()), [picture.tobytes() for picture in pictures]))
    assert seen[0] == seen[1] == seen[2]


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("wrong", "refusal"),
    [
        (lambda target: target[:1], ActionRefusal.SIZE),
        (lambda target: np.append(target, 0.0), ActionRefusal.SIZE),
        (lambda target: target * np.nan, ActionRefusal.NOT_FINITE),
        (lambda target: target + np.inf, ActionRefusal.NOT_FINITE),
        (lambda target: target - 1e6, ActionRefusal.OUT_OF_RANGE),
    ],
)
@pytest.mark.parametrize("text", ["pusht", "reach"])
def test_a_bad_action_is_refused_by_name_and_moves_nothing(text: str, wrong: Any, refusal: ActionRefusal) -> None:
    world = made(text)
    before = world.state()
    target = np.array([each.low for each in world.channels])
    with pytest.raises(ActionError, match=f"action refused: {refusal.value}: ") as refused:
        world.step(wrong(target))
    assert refused.value.refusal is refusal
    assert world.state() == before


def test_an_option_that_may_not_change_is_named() -> None:
    with pytest.raises(ValueError, match="pusht: drift_px cannot be changed while it runs"):
        made("pusht").disturb("drift_px", 1.0)


# -- another package's ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("package")
def test_another_packages_world_is_listed_and_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert list_command.run(["simulators"]) == 0
    assert "reach        from another package: reach_world:reach" in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"known: pusht, pusht-drift, .*, reach"):
        find("kitchen")
    assert "action (std_msgs/Float64MultiArray: x 0 to 1 m, y 0 to 1 m; " in sim_command.greeting(find("reach"))


@pytest.mark.parametrize(("text", "said"), [("1 / 0\n", "ZeroDivisionError"), ("import nothing_such\n", "ModuleNotF")])
def test_a_package_that_cannot_be_loaded_is_said_by_name(package: Path, text: str, said: str) -> None:
    (package / "reach_world.py").write_text(text)
    with pytest.raises(ValueError, match=f"sim 'reach': entry point reach_world:reach cannot be loaded: {said}"):
        find("reach")


@pytest.mark.usefixtures("package")
def test_its_options_are_parameters_of_its_bridge() -> None:
    settings = bridge_settings(find("reach:point_step_m=0.03"))
    assert vars(settings())["point_step_m"] == 0.03
    assert settings(seed=4).make().state() == {"x": 0.5, "y": 0.5}
    with pytest.raises(ParameterError, match="reach: viewer_px"):
        settings(viewer_px=3)


@pytest.mark.usefixtures("package")
def test_a_configuration_may_name_it(tmp_path: Path) -> None:
    text = "supervisor: {ros__parameters: {processes: [sim_bridge], sim: reach}}\nreach: {ros__parameters: {%s}}\n"
    path = tmp_path / "mine.yaml"
    path.write_text(text % "seed: 3, point_step_m: 0.05")
    config = read_config(path)
    assert (config.supervision.started, config.warnings) == (("reach",), ())
    assert config.section("reach") == {"seed": 3, "point_step_m": 0.05}
    path.write_text(text % "point_step: 0.05")
    with pytest.raises(ConfigError, match=r"mine\.yaml:2: reach: no parameter 'point_step'; did you mean point_step_m"):
        read_config(path)
    path.write_text("supervisor: {ros__parameters: {processes: [sim_bridge], sim: rech}}")
    with pytest.raises(ConfigError, match="supervisor: sim 'rech' is not known"):
        read_config(path)
    assert bridge_alone("reach").supervision.started == ("reach",)


class Topics:
    """Stands where publishers stood."""

    def __init__(self) -> None:
        self.sent: dict[str, list[Any]] = {}

    def __getitem__(self, name: str) -> Any:
        return SimpleNamespace(publish=self.sent.setdefault(name, []).append)

    def stand_in(self, node: SimBridge) -> None:
        """For those of the camera."""
        node._cameras = [replace(node._cameras[0], image=self["image"], info=self["info"])]


@pytest.mark.usefixtures("package")
def test_the_bridge_is_the_same_for_it(ros_domain_id: int) -> None:
    """Cameras, calibration, joints, status and the instruction under its names; its option is disturbed."""
    init(args=[])
    node = SimBridge(find("reach"), VirtualClock(1_000))
    try:
        names = {name for name, _ in node.get_topic_names_and_types()}
        topics = Topics()
        topics.stand_in(node)
        node._prompt, node._joints, node._status = (topics[name] for name in ("prompt", "joints", "status"))
        node._tick(DT_NS)
        assert node._game.offer([0.5, 0.75], DT_NS, "x,y") is None
        node._tick(2 * DT_NS)
        assert node.set_parameters([Parameter("point_step_m", value=0.1)])[0].successful
        refused = node.set_parameters([Parameter("point_step_m", value=7.0)])[0]
        assert not refused.successful
        assert "point_step_m" in refused.reason
        moved = np.array(node._game.world.point)  # type: ignore[attr-defined]
        node._tick(3 * DT_NS)
        assert np.linalg.norm(node._game.world.point - moved) > 0.05  # type: ignore[attr-defined]
    finally:
        node.destroy_node()
        try_shutdown()
    expected = {"/camera/top/image_raw", "/camera/top/camera_info", "/joint_states", "/prompt", "/reach/status"}
    assert expected <= names
    assert [each.data for each in topics.sent["prompt"]] == ["reach the white point"]
    assert (list(topics.sent["joints"][1].name), list(topics.sent["joints"][1].position)) == (["x", "y"], [0.5, 0.75])
    first = topics.sent["info"][0]
    assert (first.width, first.height, list(first.k)) == (8, 8, [0.0] * 9)
    status = json.loads(topics.sent["status"][1].data)
    assert (status["step"], status["action"], list(status["sub_goals"])) == (1, [0.5, 0.75], ["near"])


def test_push_t_has_no_prompt_and_a_calibration(ros_domain_id: int) -> None:
    init(args=[])
    node = SimBridge(find("pusht"), VirtualClock(1_000))
    try:
        assert "/prompt" not in {name for name, _ in node.get_topic_names_and_types()}
        topics = Topics()
        topics.stand_in(node)
        node._tick(DT_NS)
    finally:
        node.destroy_node()
        try_shutdown()
    (info,) = topics.sent["info"]
    assert info.header == topics.sent["image"][0].header
    k = np.array(info.k).reshape(3, 3)
    np.testing.assert_allclose(k @ [512.0, 256.0, 1.0], [96.0, 48.0, 1.0])


@pytest.mark.usefixtures("package")
def test_its_game_has_the_same_rules() -> None:
    game = Game(bridge_settings(find("reach"))(max_steps=3, seed=7))
    for grid, action in enumerate(([2.0, 0.0], [0.0, 0.0, 0.0], [0.1, 0.1]), 1):
        game.offer(action, grid * DT_NS)
        game.tick(grid * DT_NS)
    assert game.status.refused == {"out_of_range": 1, "size": 1}
    assert (game.status.step, game.status.action, game.dt_ns) == (1, (0.1, 0.1), DT_NS)


def test_no_world_is_imported_by_asking_for_another(package: Path) -> None:
    find("pusht")
    assert "reach_world" not in sys.modules
