"""What the soak's scene makes of the supervisor's news: the supervisor's own words, so that both stay the same."""

from __future__ import annotations

from pathlib import Path

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
