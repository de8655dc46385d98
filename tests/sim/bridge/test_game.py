"""The rules of a world that is played over a wire, on a virtual clock and a Push-T table: no ROS, no waiting."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from auras_ros.parameters import ParameterError, checked
from auras_ros.sim.bridge.game import Game
from auras_ros.sim.bridge.settings import BridgeSettings, bridge_settings
from auras_ros.sim.world import ActionRefusal
from auras_ros.sim.worlds import find

HERE = [256.0, 256.0]
DT_NS = 100_000_000
SETTINGS = bridge_settings(find("pusht"))


class Table:
    """A game and its grid: `tick` is the next control step."""

    def __init__(self, **settings: Any) -> None:
        self.game = Game(SETTINGS(**settings))
        self.now_ns = 1_000 * DT_NS

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.now_ns += DT_NS
            self.game.tick(self.now_ns)

    def offer(self, values: list[float], names: str = "", label: str = "") -> ActionRefusal | None:
        return self.game.offer(values, self.now_ns, names, label)


def label(source: str, age_ns: int | None, mono_ns: int) -> str:
    return json.dumps({"source": source, "age_ns": age_ns, "mono_ns": mono_ns})


def test_the_table_stands_still_until_the_first_valid_action() -> None:
    table = Table()
    before = table.game.world.agent
    table.tick(3)
    assert table.game.status.waiting
    assert table.game.status.step == 0
    assert table.game.status.action is None
    np.testing.assert_array_equal(table.game.world.agent, before)
    table.offer([float("nan"), 1.0])
    table.tick()
    assert table.game.status.waiting  # garbage is no first action
    assert table.offer(HERE) is None
    table.tick(2)
    status = table.game.status
    assert (status.step, status.waiting, status.action) == (2, False, (256.0, 256.0))


@pytest.mark.parametrize(
    ("values", "names", "reason"),
    [
        ([], "", ActionRefusal.SIZE),
        ([1.0], "", ActionRefusal.SIZE),
        ([1.0, 2.0, 3.0], "", ActionRefusal.SIZE),
        ([float("nan"), 2.0], "", ActionRefusal.NOT_FINITE),
        ([1.0, float("inf")], "", ActionRefusal.NOT_FINITE),
        ([-float("inf"), 1.0], "", ActionRefusal.NOT_FINITE),
        ([-0.001, 5.0], "", ActionRefusal.OUT_OF_RANGE),
        ([5.0, 512.001], "", ActionRefusal.OUT_OF_RANGE),
        ([5.0, 5.0], "agent_y,agent_x", ActionRefusal.CHANNELS),
    ],
)
def test_a_refused_action_leaves_the_active_one(values: list[float], names: str, reason: ActionRefusal) -> None:
    table = Table()
    table.offer(HERE)
    assert table.offer(values, names) is reason
    table.tick()
    assert table.game.status.action == (256.0, 256.0)
    assert table.game.status.refused == {reason.value: 1}


@pytest.mark.parametrize("edge", [[0.0, 512.0], [512.0, 0.0]])
def test_the_border_itself_is_a_valid_target(edge: list[float]) -> None:
    assert Table().offer(edge, "agent_x,agent_y") is None


def test_each_step_takes_the_newest_action() -> None:
    table = Table()
    for target in ([10.0, 10.0], [500.0, 20.0], [30.0, 400.0]):
        table.offer(target)
    table.tick()
    assert table.game.status.action == (30.0, 400.0)
    assert table.game.status.step == 1


def test_without_new_actions_the_world_goes_on_and_each_late_step_is_counted() -> None:
    """Guards against a world that waits for its robot: staleness would cost nothing."""
    table = Table(action_timeout_ms=250)
    table.offer(HERE)
    table.tick(2)
    assert table.game.status.timeouts == 0
    table.tick(3)
    assert (table.game.status.step, table.game.status.timeouts) == (5, 3)
    table.offer(HERE)
    table.tick()
    assert table.game.status.timeouts == 3


def test_a_paused_world_takes_a_step_for_each_action_and_waits_for_the_next() -> None:
    table = Table(paused=True)
    for steps in (1, 2):
        table.offer(HERE)
        table.tick(20)
        assert table.game.status.step == steps
    assert table.game.status.timeouts == 0
    table.game.reset()
    table.tick(3)
    assert (table.game.status.step, table.game.status.waiting) == (0, True)


@pytest.mark.parametrize(("settings", "ticks"), [({}, 10), ({"show_s": 0.5}, 5), ({"show_s": 2.0}, 20)])
def test_an_episode_ends_at_its_last_step_and_the_next_seed_follows_when_it_was_shown(
    settings: dict[str, float], ticks: int
) -> None:
    table = Table(seed=7, max_steps=4, **settings)
    table.tick()
    table.offer(HERE)
    table.tick(4)
    status = table.game.status
    assert (status.done, status.success, status.step, status.seed, status.episode) == (True, False, 4, 7, 0)
    table.offer(HERE)
    table.tick(ticks - 1)
    assert table.game.status == status  # shown, at rest
    table.tick()
    status = table.game.status
    assert (status.done, status.waiting, status.step, status.seed, status.episode) == (False, True, 0, 8, 1)


def test_without_auto_reset_a_finished_table_stays() -> None:
    table = Table(max_steps=1, auto_reset=False)
    table.offer(HERE)
    table.tick(50)
    assert table.game.status.done
    table.game.reset()
    assert (table.game.status.done, table.game.status.seed) == (False, 1)


def test_success_ends_an_episode() -> None:
    table = Table(success_coverage=0.05, seed=2)
    goal, tee = table.game.world.goal, table.game.world._env.block
    tee.angle, tee.position = goal[2], tuple(goal[:2])
    table.offer(list(table.game.world.agent))
    table.tick()
    status = table.game.status
    assert (status.done, status.success, status.reward) == (True, True, 1.0)
    assert status.sub_goals["coverage"] > 0.05


def test_the_same_seed_is_the_same_table() -> None:
    first, second = Table(seed=11), Table(seed=11)
    np.testing.assert_array_equal(first.game.world.image(), second.game.world.image())
    assert not np.array_equal(first.game.world.image(), Table(seed=12).game.world.image())


def test_the_next_seed_can_be_set() -> None:
    table = Table(seed=3)
    table.game.next_seed = 40
    table.game.reset()
    assert (table.game.status.seed, table.game.next_seed) == (40, 41)


def test_drift_moves_the_tee_and_only_on_a_running_table() -> None:
    table = Table(drift_px=0.5)
    start = table.game.world.tee[:2]
    table.tick(5)
    np.testing.assert_array_equal(table.game.world.tee[:2], start)
    table.offer(list(table.game.world.agent))  # the pusher stays where it is
    table.tick(5)
    assert np.linalg.norm(table.game.world.tee[:2] - start) == pytest.approx(2.5)


def test_an_action_made_for_the_episode_before_does_not_start_the_next() -> None:
    """After a reset the actuator still plays its last chunk: it would push at a tee that is gone."""
    table = Table()
    table.tick(5)
    table.game.reset()
    assert table.offer(HERE, label=label("chunk", 1, table.now_ns)) is ActionRefusal.STALE  # nothing shown yet
    table.tick()
    shown_ns = table.now_ns
    assert table.offer(HERE, label=label("chunk", DT_NS, shown_ns + 1_000)) is ActionRefusal.STALE
    assert table.offer(HERE, label=label("hold", None, shown_ns + 1_000)) is ActionRefusal.STALE
    table.tick()
    assert (table.game.status.waiting, table.game.status.refused) == (True, {"stale": 3})
    assert table.offer(HERE, label=label("chunk", 30_000_000, shown_ns + 30_000_000)) is None
    table.tick()
    assert table.game.status.step == 1


def test_a_running_table_takes_holds_and_old_chunks_too() -> None:
    """Their age is the actuator's business, which knows the contract."""
    table = Table()
    table.tick()
    table.offer(HERE)
    assert table.offer([1.0, 2.0], label=label("hold", None, table.now_ns)) is None
    assert table.offer([1.0, 2.0], label=label("chunk", 10 * DT_NS, table.now_ns)) is None


FOREIGN = (
    "",
    "time",
    "3",
    "[]",
    "{}",
    "{",
    "[" * 4000,
    "x" * 100_000,
    '{"source": 7}',
    '{"source": ["hold"]}',
)


@pytest.mark.parametrize("foreign", FOREIGN, ids=lambda text: text[:10])
def test_a_label_that_is_not_ours_is_no_reason_to_refuse(foreign: str) -> None:
    table = Table()
    table.tick()
    assert table.offer(HERE, label=foreign) is None


def test_a_huge_label_is_not_parsed() -> None:
    """It says `hold`, and would be refused if it were read."""
    table = Table()
    table.tick()
    assert table.offer(HERE, label=label("hold", None, table.now_ns)) is ActionRefusal.STALE
    assert table.offer(HERE, label=label("hold", None, table.now_ns) + " " * 100_000) is None


def read(name: str, value: Any) -> BridgeSettings:
    """As a node reads one parameter."""
    return SETTINGS(**{name: checked("pusht", SETTINGS.__dataclass_fields__[name], value)})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed", -1),
        ("seed", 1.5),
        ("seed", True),
        ("drift_px", -0.1),
        ("drift_px", 20.0),
        ("drift_px", float("nan")),
        ("drift_px", "0.5"),
        ("success_coverage", 0.0),
        ("success_coverage", 1.0),
        ("max_steps", 0),
        ("action_timeout_ms", 0),
        ("viewer_px", 5000),
        ("viewer_px", 3),
        ("viewer_px", -1),
        ("auto_reset", 1),
        ("compression", "webp"),
    ],
)
def test_bad_settings_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ParameterError, match=f"^pusht: {name}: "):
        read(name, value)


def test_a_whole_number_serves_as_a_float() -> None:
    """YAML writes `drift_px: 0`."""
    drift_px: Any = vars(read("drift_px", 1))["drift_px"]
    assert drift_px == 1.0
    assert type(drift_px) is float
