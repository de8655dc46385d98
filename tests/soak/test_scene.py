"""What the soak's scene makes of the supervisor's news: the supervisor's own words, so that both stay the same."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from auras_ros.nodes.exit_status import BROKEN, TOO_SLOW
from auras_ros.nodes.supervisor import Supervisor
from tests.soak.stage import stage


@pytest.mark.parametrize(("status", "broken"), [(TOO_SLOW, []), (BROKEN, ["process ended"])])
def test_who_says_that_the_machine_is_too_slow_breaks_no_promise(
    tmp_path: Path, status: int, broken: list[str]
) -> None:
    """Any other end that the scene did not bring about does."""
    config = tmp_path / "mine.yaml"
    config.write_text("supervisor: {ros__parameters: {processes: [agent]}}\n")
    supervisor = Supervisor(config)
    scene = stage()
    scene._hear(supervisor._died(supervisor._slots[0], status))
    assert list(scene.judge.kinds) == broken


def test_a_process_that_still_loads_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it count as one that grows: once it has driven, whatever comes is read."""
    scene, driving, looks = stage(), [False], list[int]()
    monkeypatch.setattr(type(scene.witness), "driving", property(lambda self: driving[0]))
    monkeypatch.setattr("auras_ros.soak.scene.READ_S", 0.0)
    lives: dict[int, list[object]] = {}

    def look(pid: int, at_s: float) -> None:
        looks.append(pid)
        lives.setdefault(pid, [])

    scene.usage = {name: SimpleNamespace(lives=lives, look=look) for name in scene.usage}  # type: ignore[misc]
    scene.turn()
    assert looks == []
    driving[0] = True
    scene.turn()
    driving[0] = False
    scene.turn()
    assert looks == [1] * 6
