"""`auras sim`: says what there is and what to do next before the table runs."""

from __future__ import annotations

import pytest

from auras_ros.cli import sim
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


def test_a_config_that_is_not_there_is_status_2_as_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert sim.run(["pusht", "--config", "nosuch"]) == 2
    assert capsys.readouterr().err.startswith("error: config 'nosuch.yaml' not found")
