"""SimplerEnv's own environment: a person makes it, every command says how, and its worlds run there.

Guards: a package of somebody else's with its name; commands that cannot be copied; an empty environment that looks
made; a class that needs more than SimplerEnv's environment has.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

from auras_ros.cli import main as cli
from auras_ros.cli import sim as sim_command
from auras_ros.environments import MissingEnvironmentError
from auras_ros.sim.process.world import ProcessWorld
from auras_ros.sim.world import StepResult, World
from auras_ros.sim.worlds import find
from tests.sim.simpler import double

ROOT = Path(__file__).parents[3]
CAN = "simpler:google_robot_pick_coke_can"
DOUBLE = """
import sys
from tests.sim.simpler.double import Double, modules
sys.modules.update(modules(Double(stats={"n_lift_significant": 3})))
"""


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where the environment is to be; the name of its place is one to be quoted."""
    monkeypatch.setenv("AURAS_ROS_ENVIRONMENTS", str(tmp_path / "my environments"))
    return tmp_path / "my environments" / "simpler"


def make(folder: Path, simpler_env: str) -> None:
    """As a person does, with our numpy and with this text for SimplerEnv; without one it is forgotten."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "ours.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
    if simpler_env:
        (site / "simpler_env.py").write_text(simpler_env)


def commands(folder: Path) -> list[str]:
    venv = f"'{folder}'"
    return [
        f"python3.11 -m venv {venv}",
        f"{venv}/bin/pip install 'sapien==2.2.2' 'numpy<2' 'gymnasium<1' 'setuptools<81' opencv-python",
        f"git clone --recurse-submodules https://github.com/simpler-env/SimplerEnv {venv}/SimplerEnv",
        f"{venv}/bin/pip install -e {venv}/SimplerEnv/ManiSkill2_real2sim -e {venv}/SimplerEnv",
    ]


def says_how(said: str, folder: Path) -> bool:
    """Whether each command is a line of its own, in this order."""
    lines = [line.strip() for line in said.splitlines()]
    return [line for line in lines if line in commands(folder)] == commands(folder)


@pytest.mark.parametrize("begun", [False, True], ids=["nothing", "SimplerEnv forgotten"])
def test_where_it_is_missing_every_command_says_how_it_is_made(
    capsys: pytest.CaptureFixture[str], folder: Path, begun: bool
) -> None:
    if begun:
        make(folder, "")
    assert cli.main(["doctor", "--sim", "simpler"]) == 1
    said = capsys.readouterr().out
    assert says_how(said, folder)
    assert "pip install simpler_env" not in said
    assert "auras_ros is not installed there" in " ".join(said.split())
    assert cli.main(["doctor", "--sim", "simpler", "--fix"]) == 1
    assert says_how(capsys.readouterr().err, folder)
    assert folder.exists() == begun
    for argv in (["eval", "--sim", CAN, "--checkpoint", "X"], ["sim", CAN], ["tune", "--sim", CAN]):
        with pytest.raises(SystemExit, match="2"):
            cli.main(argv)
        assert says_how(capsys.readouterr().err, folder)
    with pytest.raises(MissingEnvironmentError, match=r"^simpler: its environment 'simpler' is not in "):
        find(CAN).make()


def test_its_worlds_run_there_as_they_do_here(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The double is imported in its process, by the name of SimplerEnv."""
    make(folder, DOUBLE)
    there = find(f"{CAN},terminate=true").make()
    assert isinstance(there, ProcessWorld)
    double.install(monkeypatch).stats = {"n_lift_significant": 3}
    here = find(f"{CAN},terminate=true").make()
    try:
        for name in ("control_dt_ms", "cameras", "channels", "sub_goals"):
            assert getattr(there, name) == getattr(here, name)
        assert episode(there) == episode(here)
        assert episode(there)[0][0].statistics == {"n_lift_significant": 3.0, "consec_grasp": 0.0, "grasped": 0.0}
    finally:
        there.close()


def episode(world: World) -> list[tuple[StepResult, dict[str, float], str, bytes]]:
    world.reset(7)
    seen = []
    for share in (0.1, 0.4, 0.9):
        result = world.step(np.array([0.02, -0.01, 0.03, 0.1, 0.2, 0.3, share, 0.0]))
        picture = world.image("overhead", 512, 640).tobytes()
        seen.append((result, dict(world.state()), world.instruction, picture))
    return seen


def test_the_doctor_plays_in_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(folder, DOUBLE)
    assert cli.main(["doctor", "--sim", "simpler"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"{folder}: simpler_env" in said
    assert "simpler runs in a process of 'simpler'; it shows overhead 640x512" in said
    assert cli.main(["doctor", "--sim", "simpler", "--fix", "--json"]) == 0


def test_a_package_that_it_lacks_is_named_with_how_it_is_made(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make(folder, "import no_such_package")
    assert cli.main(["doctor", "--sim", "simpler"]) == 1
    said = capsys.readouterr().out
    assert "simpler cannot be made: simpler: No module named 'no_such_package'" in " ".join(said.split())
    assert says_how(said, folder)
    monkeypatch.setattr(sim_command, "run", lambda argv: find(CAN).make())  # as the bridge does, after its topics
    assert cli.main(["sim", CAN]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: simpler: No module named 'no_such_package'; make its environment: by hand, ")
    assert says_how(said, folder)
