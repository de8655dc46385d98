"""`auras sim`: says what there is and what to do next before the table runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from auras_ros import resources
from auras_ros.cli import sim
from auras_ros.environments import PLACE
from auras_ros.nodes.common.config import BRIDGE, read_config
from auras_ros.sim.bridge import node as bridge
from auras_ros.sim.worlds import find
from tests.nodes.wire import own_domain


def test_it_says_what_it_offers_and_what_to_do_next(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: list[str] = []

    def main(argv: list[str]) -> int:
        given.extend(argv)
        return 0

    monkeypatch.setattr(bridge, "main", main)
    assert sim.run(["pusht", "-p", "seed:=3"]) == 0
    assert given[-2:] == ["-p", "seed:=3"]
    said = capsys.readouterr().out
    assert "next, in another shell: a controller of your own (docs/nodes-of-your-own.md)" in said


def test_the_topics_that_it_names_are_the_bridges() -> None:
    pytest.importorskip("gym_pusht")
    from auras_ros.ros import init, try_shutdown

    with own_domain():
        init(args=[])
        try:
            node = bridge.SimBridge(find("pusht"))
            there = [name for name, _ in node.get_topic_names_and_types()]
            node.destroy_node()
        finally:
            try_shutdown()
    for name in ("camera/top/image_raw", "camera/top/image_raw/compressed", "joint_states", "pusht/status", "action"):
        assert name in sim.greeting(find("pusht"))
        assert f"/{name}" in there
    assert "pusht/reset" in sim.greeting(find("pusht"))


@pytest.mark.parametrize("name", ["pusht", "pusht-drift", "lift", "lift-moving"])
def test_it_names_a_config_of_the_same_world(name: str) -> None:
    world = find(name).world.name
    assert f"agent.launch.py config:={world}\n" in f"{sim.greeting(find(name))}\n"
    assert f"`auras run {world}`" in sim.greeting(find(name))
    assert read_config(resources.config(world)).supervision.node(BRIDGE) == world


@pytest.mark.parametrize("name", ["can", "lift:absolute=false", "lift:cameras=1", "gym:gym_pusht/PushT-v0"])
def test_it_names_no_config_where_there_is_none_that_fits(name: str) -> None:
    """The included policy gives positions, and sees two cameras."""
    assert "config:=" not in sim.greeting(find(name))
    assert "auras run" not in sim.greeting(find(name))


def test_an_environment_that_is_missing_is_said_before_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(PLACE, str(tmp_path))
    with pytest.raises(SystemExit) as ended:
        sim.run(["lift-moving"])
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "lift-moving: its environment 'robosuite' is not in" in said.err
    assert "make it: auras doctor --sim lift-moving --fix" in said.err


def test_a_config_that_is_not_there_is_status_2_as_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert sim.run(["pusht", "--config", "nosuch"]) == 2
    assert capsys.readouterr().err.startswith("error: config 'nosuch.yaml' not found")
