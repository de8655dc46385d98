"""`pip install -e`, as `make env` does it: `ros2 launch` and `ros2 run` find the package, and run the checkout.

Guards: setuptools leaves data_files out of an editable install. Then ROS 2 finds neither package nor launch files nor
executables, though everything imports.
"""

from __future__ import annotations

import os
import site
import subprocess
import sys
from pathlib import Path

import pytest

from tests.package import ament
from tests.package.tree import ENTRY_POINTS, copy_sources

NODES = sorted(set(ENTRY_POINTS) - {"auras"})
LAUNCH_FILES = ("agent.launch.py", "sim.launch.py", "vlm.launch.py")


class Installed:
    """A fresh environment with the package in it, and the checkout that it was made of."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.checkout = copy_sources(folder / "checkout")
        self.venv = folder / "venv"
        self.python = self.venv / "bin" / "python"
        self.environment = {**environment, "AMENT_PREFIX_PATH": f"{folder}/elsewhere{os.pathsep}{self.venv}"}
        self.run(sys.executable, "-m", "venv", "--without-pip", str(self.venv))
        packages = next(self.venv.glob("lib/python*/site-packages"))
        lines = [f"import site; site.addsitedir({each!r})" for each in site.getsitepackages()]
        (packages / "zz_dependencies.pth").write_text("\n".join(lines) + "\n")  # after the package's own .pth
        self.pip("install", "--no-deps", "--no-build-isolation", "--no-index", "-e", str(self.checkout))

    def pip(self, *arguments: str) -> None:
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(self.python))
        self.run(*pip, *arguments)

    def run(self, *command: str) -> str:
        options = {"env": self.environment, "cwd": self.checkout.parent, "capture_output": True, "text": True}
        ran = subprocess.run(command, **options, timeout=300)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return str(ran.stdout)

    def files(self) -> set[str]:
        """What lies in the folders that ROS 2 searches, without what pip compiles there."""
        paths = [*(self.venv / "share").rglob("*"), *(self.venv / "lib" / "auras_ros").rglob("*")]
        return {str(path.relative_to(self.venv)) for path in paths if path.is_file() and path.suffix != ".pyc"}


@pytest.fixture
def installed(tmp_path: Path, bare_environment: dict[str, str]) -> Installed:
    return Installed(tmp_path, bare_environment)


def test_an_editable_install_is_found_and_started_by_ros(
    installed: Installed, tmp_path: Path, ros_domain_id: int
) -> None:
    """One installation, all questions: each costs seconds."""
    where = installed.environment["AMENT_PREFIX_PATH"]
    assert ament.prefix(where) == installed.venv
    for name in LAUNCH_FILES:
        assert ament.launch_file(where, name).read_text() == (installed.checkout / "launch" / name).read_text()
    assert [ament.executable(where, name).name for name in NODES] == NODES

    # What an edit in the checkout must change is there alone: a second copy would go stale.
    assert installed.files() == {
        "share/ament_index/resource_index/packages/auras_ros",
        "share/auras_ros/package.xml",
        "share/auras_ros/launch/probe.launch.py",
        *(f"share/auras_ros/launch/{name}" for name in LAUNCH_FILES),
        *(f"lib/auras_ros/{name}" for name in NODES),
    }
    (installed.checkout / "config" / "probe.yaml").write_text("edited\n")
    code = (
        "from auras_ros import resources, ros; print(resources.find('config', 'probe.yaml').read_text(), ros.__file__)"
    )
    text, module = installed.run(str(installed.python), "-c", code).split()
    assert text == "edited"
    assert Path(module).is_relative_to(installed.checkout)

    environment = {**installed.environment, "ROS_DOMAIN_ID": str(ros_domain_id)}
    with ament.running(ament.executable(where, "actuator"), tmp_path, environment):
        assert ament.hear_the_actuator() == ament.HEARD

    installed.pip("uninstall", "-y", "auras_ros")
    assert installed.files() == set()
