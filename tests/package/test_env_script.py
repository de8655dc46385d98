"""scripts/env.sh installs once, takes an interrupted installation up again, and says what it lacks.

A stand-in for Python records what is asked of it, so that nothing is downloaded; the real
installation is what `make test` itself runs in.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.package.tree import ROOT

# Answers what the script asks an interpreter, from variables of the environment.
STAND_IN = """#!/bin/sh
case "$*" in
    *version_info*) exit ${FAKE_UNFIT:-0} ;;
    *base_prefix*) echo "${FAKE_VERSION:-3.11.2}" ;;
    -) cat >/dev/null; echo "${FAKE_MISSING:-}" ;;
    "-m venv"*) mkdir -p .venv/bin && cp "$0" .venv/bin/python && echo "venv" >>calls ;;
    "-m pip --version"*) exit 0 ;;
    "-m pip install"*) echo "$*" >>calls; exit ${FAKE_PIP:-0} ;;
    *) echo "stand-in: unexpected $*" >&2; exit 99 ;;
esac
"""
RECORDER = '#!/bin/sh\necho "$(basename "$0") $*" >>calls\nexit ${FAKE_APT:-0}\n'


@dataclass(frozen=True)
class Checkout:
    path: Path

    def run(self, *extras: str, **variables: str) -> subprocess.CompletedProcess[str]:
        tools = self.path / "tools"
        environment = {
            "PATH": f"{tools}{os.pathsep}/usr/bin{os.pathsep}/bin",
            "PYTHON": str(tools / "python"),
        }
        return subprocess.run(
            ["sh", "scripts/env.sh", *extras],
            cwd=self.path,
            env={**environment, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def calls(self) -> list[str]:
        """What was installed since the last question."""
        record = self.path / "calls"
        lines = record.read_text().splitlines() if record.exists() else []
        record.unlink(missing_ok=True)
        return lines


def executable(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    (tmp_path / "scripts").mkdir()
    for name in ("scripts/env.sh", "setup.py", "setup.cfg", "pyproject.toml"):
        shutil.copy2(ROOT / name, tmp_path / name)
    executable(tmp_path / "tools" / "python", STAND_IN)
    for name in ("apt-get", "sudo"):
        executable(tmp_path / "tools" / name, RECORDER)
    executable(tmp_path / "tools" / "id", "#!/bin/sh\necho ${FAKE_UID:-0}\n")
    return Checkout(tmp_path)


def test_installs_once_with_torch_in_the_same_command(checkout: Checkout) -> None:
    first = checkout.run("demo", TORCH="torch==2.13.0")
    assert first.returncode == 0, first.stderr
    venv, install = checkout.calls()
    assert venv == "venv"
    assert install.endswith("torch==2.13.0 -e .[demo]")
    assert checkout.run("demo", TORCH="torch==2.13.0").returncode == 0
    assert checkout.calls() == []


def test_extras_add_up(checkout: Checkout) -> None:
    """`make demo` after `make test` must neither drop the test tools nor install again."""
    checkout.run("demo")
    checkout.calls()
    checkout.run("test", "dev")
    assert [call.rpartition(" ")[2] for call in checkout.calls()] == [".[demo,dev,test]"]
    checkout.run("demo")
    assert checkout.calls() == []


@pytest.mark.parametrize("name", ["setup.py", "pyproject.toml"])
def test_changed_package_is_installed_again(checkout: Checkout, name: str) -> None:
    checkout.run("demo")
    checkout.calls()
    with (checkout.path / name).open("a") as file:
        file.write("# changed\n")
    checkout.run("demo")
    assert len(checkout.calls()) == 1


def test_another_torch_is_installed(checkout: Checkout) -> None:
    checkout.run("demo")
    checkout.calls()
    checkout.run("demo", TORCH="torch==9.9")
    assert "torch==9.9" in checkout.calls()[0]


def test_another_interpreter_makes_the_environment_anew(checkout: Checkout) -> None:
    checkout.run("demo")
    checkout.calls()
    checkout.run("demo", FAKE_VERSION="3.12.1")
    assert checkout.calls()[0] == "venv"


def test_an_environment_made_by_hand_is_not_wiped(checkout: Checkout) -> None:
    executable(checkout.path / ".venv" / "bin" / "python", STAND_IN)
    checkout.run("demo")
    assert "venv" not in checkout.calls()


def test_broken_environment_is_made_anew(checkout: Checkout) -> None:
    """As an interrupted `python -m venv` leaves it: without pip."""
    executable(checkout.path / ".venv" / "bin" / "python", "#!/bin/sh\nexit 1\n")
    assert checkout.run("demo").returncode == 0
    assert checkout.calls()[0] == "venv"


def test_interrupted_installation_is_not_taken_for_done(checkout: Checkout) -> None:
    """Also where an earlier one had been complete."""
    checkout.run("demo")
    assert checkout.run("demo", "test", FAKE_PIP="1").returncode != 0
    checkout.calls()
    assert checkout.run("demo").returncode == 0
    assert len(checkout.calls()) == 1


def test_unfit_interpreter_is_refused_by_name(checkout: Checkout) -> None:
    result = checkout.run("demo", FAKE_UNFIT="1")
    assert result.returncode == 1
    assert f"PYTHON={checkout.path}/tools/python is not a Python 3.10-3.13" in result.stderr
    assert checkout.calls() == []


def test_missing_system_packages_are_announced_and_installed_first(checkout: Checkout) -> None:
    result = checkout.run("demo", FAKE_MISSING="libgl1 python3.11-venv")
    assert result.returncode == 0, result.stderr
    line = "apt-get install -y --no-install-recommends libgl1 python3.11-venv"
    assert line in result.stderr
    calls = checkout.calls()
    assert calls[0].startswith("apt-get update")
    assert calls[1].startswith(line)
    assert calls[2] == "venv"


def test_a_user_installs_system_packages_with_sudo(checkout: Checkout) -> None:
    result = checkout.run("demo", FAKE_MISSING="libgl1", FAKE_UID="1000")
    assert result.returncode == 0, result.stderr
    assert "sudo apt-get install" in result.stderr
    assert checkout.calls()[0].startswith("sudo apt-get update")


def test_without_the_right_the_line_to_run_is_printed(checkout: Checkout) -> None:
    result = checkout.run("demo", FAKE_MISSING="libgl1", FAKE_APT="1")
    assert result.returncode == 1
    assert "sudo apt-get install -y --no-install-recommends libgl1" in result.stderr
    assert "venv" not in checkout.calls()
