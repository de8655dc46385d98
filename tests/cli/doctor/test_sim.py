"""`auras doctor --sim NAME [--fix]`: what a world lacks is said with what to do about it, and done when asked for.

Guards: an environment that looks made and is not; a picture that nobody tried to draw; a package installed unasked.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from gymnasium.envs.classic_control.pendulum import PendulumEnv
from gymnasium.error import DependencyNotInstalled

from auras_ros import own_environment, resources
from auras_ros.cli import main as cli
from auras_ros.cli.doctor import sim as module
from auras_ros.cli.doctor.finding import Finding, Verdict
from auras_ros.cli.doctor.sim import SimChecks, mend, wrong_versions
from auras_ros.environments import EGL, OSMESA, OURS, ROBOMIMIC, ROBOSUITE, Environment, Renderer
from auras_ros.own_environment import SetupError, python_of
from auras_ros.sim.pusht.world import PushTWorld
from auras_ros.sim.world import Sim
from auras_ros.sim.worlds import SIMS, find

HERE = Renderer("the C library", "libc.so.6", ("libc6",))
NOWHERE = Renderer("a dream", "libnowhere.so.1", ("libnowhere1", "nowhere-dri"))
SLOW = replace(HERE, name="a slow one", note="its pictures take ten times as long")


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("AURAS_ROS_ENVIRONMENTS", str(tmp_path / "environments"))
    return tmp_path / "environments"


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Commands that are not run; what a venv begins with is there."""
    found: list[list[str]] = []

    def run(step: list[str]) -> None:
        found.append(step)
        if "venv" in step and not (python := python_of(Path(step[-1]))).exists():
            python.parent.mkdir()
            python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')  # a link would be the Python below this one
            python.chmod(0o755)

    monkeypatch.setattr(own_environment, "run", run)
    monkeypatch.setattr(module, "run", run)
    return found


def pusht(environment: Environment | None, world: type[PushTWorld] = PushTWorld) -> Sim:
    return replace(find("pusht"), environment=environment, world=world)


def register(monkeypatch: pytest.MonkeyPatch, environment: Environment) -> None:
    monkeypatch.setitem(SIMS, "pusht", pusht(environment))


def is_problem(finding: Finding, *words: str) -> None:
    assert finding.status is Verdict.PROBLEM, finding
    for word in words:
        assert word in f"{finding.text} | {finding.remedy}"


# --- the environment ---


def test_an_environment_that_is_not_made_is_the_only_thing_to_say(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: Path
) -> None:
    register(monkeypatch, Environment("kitchen", ("stove==1.0",)))
    assert cli.main(["doctor", "--sim", "pusht"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert f"'kitchen' is not in {place}/kitchen" in said
    assert "-> auras doctor --sim pusht --fix" in said
    assert "1 problem(s), 0 note(s); pusht cannot run here" in said
    assert not place.exists()
    for argv in (["eval"], ["tune", "--out", str(place.parent)]):
        with pytest.raises(SystemExit, match="2"):
            cli.main([*argv, "--sim", "pusht"])
        assert "make it: auras doctor --sim pusht --fix" in capsys.readouterr().err


def test_fix_makes_an_environment_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: Path
) -> None:
    """A real one, without any package: so the world finds no numpy, and says so."""
    register(monkeypatch, Environment("empty"))
    for _ in range(2):
        assert cli.main(["doctor", "--sim", "pusht", "--fix", "--json"]) == 1
        out, err = capsys.readouterr()
        rows = {row["name"]: row for row in json.loads(out)["rows"]}
        assert [row["status"] for row in rows.values()] == ["ok", "ok", "problem"]
        assert "No module named 'numpy'" in rows["world"]["text"]
        assert ("-m venv" in err) == (_ == 0)
    assert python_of(place / "empty").exists()


def test_its_packages_are_installed_as_they_are_listed(ran: list[list[str]], place: Path) -> None:
    sim = pusht(Environment("kitchen", ("stove==1.0", "pan==2.0")))
    mend(sim, lambda line: None)
    venv, pip = ran
    assert venv == [sys.executable, "-m", "venv", str(place / "kitchen")]
    assert pip == [str(python_of(place / "kitchen")), "-m", "pip", "install", "--no-deps", "stove==1.0", "pan==2.0"]
    sim.check()
    mend(pusht(Environment("kitchen", ("stove==1.0", "pan==2.1"))), lambda line: None)
    assert ran[3][-2:] == ["stove==1.0", "pan==2.1"]


def test_a_machines_torch_is_installed_first_and_may_be_of_any_build(
    ran: list[list[str]], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Environment("kitchen", ("numpy==1.0",), resolved=("torch==2.0", "torchvision==3.0"))
    mend(pusht(made), lambda line: None)
    pip = [str(python_of(place / "kitchen")), "-m", "pip", "install"]
    assert ran[1:] == [[*pip, "torch==2.0", "torchvision==3.0"], [*pip, "--no-deps", "numpy==1.0"]]
    found = json.dumps({"numpy": "1.0", "torch": "2.0+cpu", "torchvision": "3.1"})
    monkeypatch.setattr(module, "VERSIONS", f"print({found!r})")
    assert wrong_versions(made) == ["torchvision 3.1, not 3.0"]


def test_another_version_is_named_and_installed_again(ran: list[list[str]]) -> None:
    """Somebody has used pip there meanwhile."""
    sim = pusht(Environment("kitchen", ("numpy==0.1", "no_such-thing==1", f"pip=={_version('pip')}")))
    assert sim.environment is not None
    own_environment.make(sim.environment.steps, lambda line: None)
    wrong = wrong_versions(sim.environment)
    assert wrong == [f"numpy {_version('numpy')}, not 0.1", "no_such-thing is missing, not 1"]
    is_problem(SimChecks("pusht", sim).environment(), *wrong, "--fix")
    mend(sim, lambda line: None)
    assert len(ran) == 4


def _version(name: str) -> str:
    from importlib.metadata import version

    return version(name)


def test_a_python_that_does_not_run_is_a_problem(ran: list[list[str]], place: Path) -> None:
    sim = pusht(Environment("kitchen", ("stove==1.0",)))
    mend(sim, lambda line: None)
    python_of(place / "kitchen").unlink()
    is_problem(SimChecks("pusht", sim).environment(), "its Python does not run", "--fix")


def test_another_python_than_its_packages_have_is_named(ran: list[list[str]]) -> None:
    with pytest.raises(SetupError, match=r"^the environment 'old' needs Python 3.8 to 3.9, this is 3\."):
        mend(pusht(Environment("old", ("stove==1.0",), pythons=((3, 8), (3, 9)))), print)
    assert ran == []


@pytest.mark.parametrize(
    ("variable", "folder"), [("AURAS_ROS_ENVIRONMENTS", ""), ("XDG_CACHE_HOME", "auras_ros/environments/")]
)
def test_where_environments_are(
    monkeypatch: pytest.MonkeyPatch, variable: str, folder: str, tmp_path: Path
) -> None:  # fmt: skip
    monkeypatch.delenv("AURAS_ROS_ENVIRONMENTS")
    monkeypatch.setenv(variable, str(tmp_path))
    assert ROBOSUITE.folder == tmp_path / f"{folder}robosuite"
    monkeypatch.delenv(variable)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ROBOSUITE.folder == tmp_path / ".cache" / "auras_ros" / "environments" / "robosuite"


def test_what_is_in_the_tables_is_pinned() -> None:
    pins = dict(each.split("==") for each in ROBOSUITE.requirements)
    assert len(pins) == len(ROBOSUITE.requirements)
    more = dict(each.split("==") for each in (*ROBOMIMIC.requirements, *ROBOMIMIC.resolved))
    assert len(more) == len(ROBOMIMIC.requirements) + len(ROBOMIMIC.resolved)
    assert more.items() >= pins.items()
    assert ROBOMIMIC.resolved[0] in (Path(__file__).parents[3] / "Makefile").read_text()
    assert [pins[name] for name in ("robosuite", "mujoco", "numpy")] == ["1.5.2", "3.3.7", "1.26.4"]
    assert ROBOSUITE.renderers == (EGL, OSMESA)


# --- what it draws with ---


@pytest.mark.parametrize(
    ("renderers", "status", "words"),
    [
        ((HERE, NOWHERE), Verdict.OK, ["the C library: libc.so.6"]),
        ((NOWHERE, SLOW), Verdict.NOTE, ["a slow one in place of a dream: its pictures take ten times as long"]),
        ((NOWHERE,), Verdict.PROBLEM, ["neither libnowhere.so.1: no picture"]),
        ((), Verdict.OK, ["no library is looked for"]),
    ],
)
def test_the_renderer(renderers: tuple[Renderer, ...], status: Verdict, words: list[str]) -> None:
    finding = SimChecks("pusht", pusht(replace(OURS, renderers=renderers))).rendering()
    assert finding.status is status
    assert all(word in finding.text for word in words)
    if status is not Verdict.OK:
        assert "sudo apt-get install -y --no-install-recommends libnowhere1 nowhere-dri" in finding.remedy


@pytest.mark.parametrize(("user", "apt"), [(1000, "/usr/bin/apt-get"), (0, None)])
def test_who_may_not_install_is_told_the_command(
    ran: list[list[str]], monkeypatch: pytest.MonkeyPatch, user: int, apt: str | None
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(shutil, "which", lambda name: apt)
    said: list[str] = []
    mend(pusht(replace(OURS, renderers=(NOWHERE, SLOW))), said.append)
    assert said == ["as root, for a dream: sudo apt-get install -y --no-install-recommends libnowhere1 nowhere-dri"]
    assert ran == []


def test_root_installs_what_is_missing_and_nothing_else(ran: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/apt-get")
    mend(pusht(replace(OURS, renderers=(HERE, NOWHERE))), lambda line: None)
    assert ran == []
    mend(pusht(replace(OURS, renderers=(NOWHERE, HERE))), lambda line: None)
    install = ["apt-get", "install", "-y", "--no-install-recommends", "libnowhere1", "nowhere-dri"]
    assert ran == [["apt-get", "update", "-qq"], install]


def test_a_command_that_cannot_be_run_is_an_error_of_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    register(monkeypatch, Environment("kitchen", ("stove==1.0",)))

    def run(step: list[str]) -> None:
        raise SetupError("pip: no network")

    monkeypatch.setattr(own_environment, "run", run)
    assert cli.main(["doctor", "--sim", "pusht", "--fix"]) == 1
    assert capsys.readouterr().err.endswith("error: pip: no network\n")


# --- the world itself ---


def test_a_world_that_runs_shows_its_cameras(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["doctor", "--sim", "pusht-drift"]) == 0
    assert "pusht-drift runs; it shows top 96x96" in capsys.readouterr().out
    register(monkeypatch, OURS)
    assert cli.main(["doctor", "--sim", "pusht:drift_px=1"]) == 0
    said = capsys.readouterr().out
    assert "pusht:drift_px=1 runs in a process of 'ours'; it shows top 96x96" in said
    assert "0 problem(s), 0 note(s); pusht:drift_px=1 can run here" in said


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> Any:
        raise error

    return fail


@pytest.mark.parametrize(
    ("method", "error", "words"),
    [
        ("check", ModuleNotFoundError("No module named 'pymunk'", name="pymunk"), ["pip install 'auras_ros[sim]'"]),
        ("__init__", ValueError("no such table"), ["pusht cannot be made: no such table", "auras_ros.sim.pusht.world"]),
        ("reset", RuntimeError("no physics"), ["pusht begins no episode: no physics"]),
        ("image", OSError("no display"), ["pusht begins no episode: no display"]),
    ],
)
def test_a_world_that_does_not_run_says_why(
    monkeypatch: pytest.MonkeyPatch, method: str, error: Exception, words: list[str]
) -> None:
    monkeypatch.setattr(PushTWorld, method, raising(error))
    is_problem(SimChecks("pusht", pusht(None)).world(), *words)


def of_gymnasium(folder: Path, **other: Any) -> tuple[SimChecks, Path]:
    """Pendulum-v1 by a file of the user's own with other values."""
    values = yaml.safe_load(resources.find("config", "gym/Pendulum-v1.yaml").read_text())
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(values | other))
    return SimChecks(f"gym:{path}", find(f"gym:{path}")), path


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"id": "Pendulum-v99"}, "cannot be made: gym: Pendulum-v99"),
        ({"actions": [{"name": "a", "low": -3, "high": 2}]}, "actions: a: [-3, 2] is beyond"),
        ({"cameras": {"front": {"from": "render", "height": 4, "width": 5}}}, "cameras: front: render is uint8"),
    ],
)
def test_what_is_wrong_in_a_file_of_the_user_s_own_is_to_be_edited(
    tmp_path: Path, other: dict[str, Any], said: str
) -> None:
    checks, path = of_gymnasium(tmp_path, **other)
    finding = checks.world()
    is_problem(finding, said)
    assert finding.remedy == f"edit {path}"


def test_a_world_whose_environment_a_person_makes_is_told_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them may have been left out."""
    made = replace(OURS, by_hand="cook dinner")

    def failing(self: Sim) -> None:
        raise RuntimeError("no driver")

    monkeypatch.setattr(Sim, "make", failing)
    finding = SimChecks("pusht", replace(SIMS["pusht"], environment=made)).world()
    assert (finding.remedy, "no driver" in finding.text) == ("cook dinner", True)


def test_options_that_a_world_refuses_are_to_be_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PushTWorld, "__init__", raising(ValueError("no such table")))
    finding = SimChecks("pusht:drift_px=1", pusht(None)).world()
    is_problem(finding, "no such table", "other options than drift_px=1: docs/parameters.md")


@pytest.mark.parametrize(("where", "said"), [("__init__", "cannot be made"), ("render", "begins no episode")])
def test_a_package_that_a_gymnasium_environment_lacks_is_to_be_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: str, said: str
) -> None:
    """As gymnasium says it, also where it is needed for the picture alone."""

    def lacking(*_: object, **__: object) -> None:
        raise DependencyNotInstalled("MuJoCo is not installed") from ModuleNotFoundError("no mujoco", name="mujoco")

    monkeypatch.setattr(PendulumEnv, where, lacking)
    checks, _ = of_gymnasium(tmp_path)
    is_problem(checks.world(), said, "MuJoCo is not installed", "| pip install 'gymnasium[mujoco]'")


def test_a_world_that_draws_nothing_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, ran: list[list[str]]
) -> None:
    """Its library may be there and no driver behind it."""
    monkeypatch.setattr(Sim, "make", raising(RuntimeError("cannot initialise EGL")))
    finding = SimChecks("pusht", pusht(replace(OURS, renderers=(HERE,)))).world()
    is_problem(finding, "cannot initialise EGL", "sudo apt-get install -y --no-install-recommends libc6")


@pytest.mark.parametrize(
    ("argv", "said"), [(["--fix"], "--fix: of which world?"), (["--sim", "kitchen"], "sim 'kitchen' is not known")]
)
def test_options_that_cannot_be_used(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["doctor", *argv])
    assert said in capsys.readouterr().err


def test_a_world_without_an_environment_has_nothing_to_make(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--sim", "pusht", "--fix"]) == 0
    assert "pusht needs no environment of its own: nothing to do" in capsys.readouterr().err
