"""The command line: help that teaches, errors of one line, statuses that mean something."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest

from auras_ros import __version__
from auras_ros.cli import main as cli
from auras_ros.evaluate.tuner import trials
from auras_ros.measure import durations

ROOT = Path(__file__).resolve().parents[2]
BUILT = [name for name in cli.COMMANDS if (ROOT / "auras_ros" / "cli" / f"{name}.py").is_file()]


@pytest.mark.parametrize("words", [[], ["-h"], ["--help"], ["help"]], ids=str)
def test_without_a_command_the_usage_says_what_there_is(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert cli.main(words) == 0
    text = capsys.readouterr().out
    assert all(f"\n  {name} " in text for name in cli.COMMANDS)
    assert "auras run config/pusht.yaml" in text
    assert "auras COMMAND --help" in text


@pytest.mark.parametrize("name", BUILT)
def test_every_command_explains_itself_with_an_example(capsys: pytest.CaptureFixture[str], name: str) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([name, "--help"])
    assert ended.value.code in (0, None)
    text = capsys.readouterr().out
    assert text.startswith(f"usage: auras {name}")
    assert "\nexample" in text
    assert f"  auras {name}" in text


def test_an_unknown_command_is_answered_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["fly"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: no command 'fly'; known: ")
    assert all(name in error for name in cli.COMMANDS)
    assert error.count("\n") == 1


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == __version__


@pytest.mark.parametrize("words", [["run"], ["train", "tea"], ["bench", "nothing"], ["sim", "kitchen"]], ids=str)
def test_a_wrong_option_ends_with_status_2_and_one_line(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.endswith(f" (auras {words[0]} --help)\n")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["bnech"], "bench"),
        (["list", "chekpoints"], "checkpoints"),
        (["train", "pushd"], "pusht"),
        (["run", "pushst"], "pusht.yaml"),
        (["soak", "--only", "agent_kiled"], "agent_killed"),
        (["eval", "--epsiodes", "3"], "--episodes"),
        (["eval", "--checkpoint", "pushd"], "pusht"),
        (["serve", "pusht-vlm", "--kv-mb", "2"], "--kv-mib"),
        (["bench", "pipelin"], "pipeline"),
        (["bench", "pipeline", "--round", "1", "--polciy", "x"], "--policy"),
    ],
    ids=str,
)
def test_the_nearest_name_is_named(words: list[str], meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = cli.main(words)
    except SystemExit as ended:
        status = int(str(ended.code))
    assert status != 0
    assert f"did you mean {meant}?" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["list"], ["--help"], ["eval", "--help"], ["list", "benches"]], ids=str)
def test_a_pipe_that_is_closed_is_no_error(words: list[str]) -> None:
    """As of `auras list | head -1`."""
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, "-m", "auras_ros.cli.main", *words], stdout=writer, stderr=subprocess.PIPE, text=True
    )
    os.close(writer)
    assert ended.stderr == ""
    assert ended.returncode in (cli.CLOSED_PIPE, 0)  # argparse itself writes a long help, and says nothing


Command = Callable[[Callable[[list[str]], int]], None]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Command:
    """Put a function where `auras run` is."""

    def plant(run: Callable[[list[str]], int]) -> None:
        planted = ModuleType("auras_ros.cli.run")
        planted.run = run  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "auras_ros.cli.run", planted)

    return plant


@pytest.mark.parametrize("error", [OSError("disk full"), ValueError("bad value"), RuntimeError("it broke")], ids=repr)
def test_a_named_error_is_one_line(command: Command, capsys: pytest.CaptureFixture[str], error: Exception) -> None:
    def run(_: list[str]) -> int:
        raise error

    command(run)
    assert cli.main(["run"]) == 1
    assert capsys.readouterr().err == f"error: {error}\n"


def test_a_programming_error_is_not_dressed_up(command: Command) -> None:
    def run(_: list[str]) -> int:
        raise AttributeError("a bug")

    command(run)
    with pytest.raises(AttributeError):
        cli.main(["run"])


def test_an_interrupt_ends_with_130(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    def run(_: list[str]) -> int:
        raise KeyboardInterrupt

    command(run)
    assert cli.main(["run"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize("when", ["on import", "on run"])
@pytest.mark.parametrize(
    ("package", "remedy"),
    [
        ("gym_pusht", "pip install 'auras_ros[sim]'"),
        ("matplotlib", "pip install 'auras_ros[plot]'"),
        ("yaml", "pip install pyyaml"),
    ],
)
def test_a_missing_package_is_answered_with_its_pip_line(
    command: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    when: str, package: str, remedy: str,
) -> None:  # fmt: skip
    """Most packages are imported late, when the command runs: it must not matter."""

    def run(_: list[str]) -> int:
        raise ModuleNotFoundError(f"No module named '{package}'", name=package)

    if when == "on run":
        command(run)
    else:
        monkeypatch.setattr(cli.importlib, "import_module", lambda name: run([]))
    assert cli.main(["run"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: 'auras run' needs the package '{package}': {remedy}")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["eval", "--clock=charged"],
        ["tune"],
        ["bench", "fig5"],
        ["bench", "fig12"],
        ["bench", "fig13"],
        ["bench", "seams"],
    ],
    ids=" ".join,
)
def test_without_the_simulator_nothing_is_measured_before_that_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str]
) -> None:
    """Tables are set minutes after frames are timed."""

    def measure(*_: object, **__: object) -> NoReturn:
        pytest.fail("frames were timed")

    monkeypatch.chdir(tmp_path)
    for module in (durations, trials):
        monkeypatch.setattr(module, "measure_durations", measure)
    monkeypatch.setitem(sys.modules, "gym_pusht.envs.pusht", None)
    monkeypatch.delitem(sys.modules, "auras_ros.sim.pusht.env", raising=False)
    monkeypatch.delattr("auras_ros.sim.pusht.env", raising=False)
    assert cli.main(words) == 2
    needs = f"error: 'auras {words[0]}' needs the package 'gym_pusht': pip install 'auras_ros[sim]'\n"
    assert capsys.readouterr().err.endswith(needs)


def test_rates_of_architectures_need_no_simulator() -> None:
    """A GPU's machine has none, and `fig12 --policy` plays nothing there."""
    names = "auras_ros.bench.figures.fig12", "auras_ros.bench.figures.fig13"
    code = f"import sys\nsys.modules['gym_pusht'] = None\nimport {', '.join(names)}\nprint('here')"
    assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True) == "here\n"


def test_a_module_of_our_own_that_is_missing_is_a_bug(command: Command) -> None:
    def run(_: list[str]) -> int:
        raise ModuleNotFoundError("No module named 'auras_ros.nowhere'", name="auras_ros.nowhere")

    command(run)
    with pytest.raises(ModuleNotFoundError):
        cli.main(["run"])


@pytest.mark.parametrize("words", [["run", "no_such_config"], ["sim", "pusht", "--config", "no_such_config"]], ids=str)
def test_a_config_that_is_not_there_is_one_line(words: list[str]) -> None:
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "auras_ros.cli.main", *words], capture_output=True, text=True, env=env, timeout=60
    )
    assert done.returncode != 0
    assert done.stderr.startswith("error: config 'no_such_config.yaml' not found")
    assert done.stderr.count("\n") == 1
