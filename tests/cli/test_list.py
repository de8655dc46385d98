"""`auras list`: every kind of thing that a command takes by name, a line each."""

from __future__ import annotations

import pytest

from auras_ros.cli import list as list_command
from auras_ros.cli.bench import BENCHES
from auras_ros.policies.families import FAMILIES


def test_everything_is_listed_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert list_command.run([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith("  ")] == [f"{name}:" for name in list_command.SECTIONS]
    named = [line.split()[0] for line in lines if line.startswith("  ")]
    assert {"pusht", "pusht-tokens", "pusht_drift", "dp-small", *BENCHES, *FAMILIES} <= set(named)
    checkpoint = next(line for line in lines if line.startswith("  pusht "))
    assert checkpoint.split(maxsplit=1)[1] == "diffusion; plans quick, ddpm100; cameras top; actions agent_x, agent_y"
    assert any("A robot behind ros2_control's forward_command_controller" in line for line in lines)


def test_a_kind_that_is_none_is_answered_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        list_command.run(["robots"])
    assert ended.value.code == 2
    assert "no 'robots'; known: checkpoints, models, adapters, configs," in capsys.readouterr().err
    assert list_command.run(["simulators"]) == 0
    assert capsys.readouterr().out.startswith("simulators:\n  pusht        Push-T: ")
