"""The package builds with colcon, copied and linked, and works from the install space alone.

Guards against the two known breakages: a `package_dir` mapping that fails under --symlink-install,
and executables or shared files that land where `ros2 run` and `ros2 launch` do not look.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.package import ament
from tests.package.tree import ENTRY_POINTS, PROBES, copy_sources

REPORT = """
import json
import auras_ros.kernels, auras_ros.sim
from auras_ros.resources import find, share_dir
import os
print(json.dumps({
    "environment": dict(os.environ),
    "package": auras_ros.__file__,
    "sim": auras_ros.sim.__file__,
    "share": str(share_dir()),
    "config": find("config", "probe.yaml").read_text(),
    "weights": find("checkpoints", "probe/parts/weights.safetensors").read_text(),
}))
"""


@dataclass(frozen=True)
class Workspace:
    path: Path
    linked: bool
    environment: dict[str, str]

    @property
    def prefix(self) -> Path:
        return self.path / "install" / "auras_ros"

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Runs `command` as a user does who has sourced the workspace, in an empty folder."""
        script = f'. "{self.path}/install/setup.sh" && exec "$@"'
        elsewhere = self.path / "elsewhere"
        elsewhere.mkdir(exist_ok=True)
        return subprocess.run(
            ["sh", "-c", script, "sh", *command],
            cwd=elsewhere,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
        )


def colcon() -> str:
    """The colcon of this environment. colcon is an extra of ours: a missing one is a failure."""
    beside = Path(sys.executable).parent
    found = shutil.which("colcon", path=f"{beside}{os.pathsep}{os.environ.get('PATH', '')}")
    assert found is not None, "colcon is missing: pip install -e .[test]"
    return found


@pytest.fixture(params=["copied", "linked"])
def workspace(request: pytest.FixtureRequest, tmp_path: Path, bare_environment: dict[str, str]) -> Workspace:
    copy_sources(tmp_path / "src" / "auras_ros")
    linked = request.param == "linked"
    built = subprocess.run(
        [colcon(), "build", "--base-paths", "src", *(["--symlink-install"] if linked else [])],
        cwd=tmp_path,
        env=bare_environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return Workspace(tmp_path, linked, bare_environment)


def test_builds_and_works_from_the_install_space(workspace: Workspace, ros_domain_id: int) -> None:
    """One build, all questions: a build costs seconds."""
    imported = workspace.run(sys.executable, "-c", REPORT)
    assert imported.returncode == 0, imported.stderr
    report = json.loads(imported.stdout)
    # Not an editable install of this very checkout that happens to be importable too.
    assert Path(report["package"]).is_relative_to(workspace.path)
    assert Path(report["sim"]).is_relative_to(workspace.path)
    assert Path(report["share"]).is_relative_to(workspace.path)
    assert report["config"] == report["weights"] == "probe\n"

    share = workspace.prefix / "share" / "auras_ros"
    for name in ("package.xml", *PROBES):
        assert (share / name).is_file(), f"{name} is not in share/auras_ros"
        assert (share / name).is_symlink() == workspace.linked, f"{name}: link expected {workspace.linked}"
    marker = workspace.prefix / "share" / "ament_index" / "resource_index" / "packages" / "auras_ros"
    assert marker.is_file()

    executables = workspace.prefix / "lib" / "auras_ros"
    assert sorted(path.name for path in executables.iterdir()) == sorted(ENTRY_POINTS)
    assert all(os.access(executables / name, os.X_OK) for name in ENTRY_POINTS)
    assert not (workspace.prefix / "bin").exists(), "ros2 run looks in lib/auras_ros, not in bin"

    helped = workspace.run(str(executables / "auras"), "--help")
    assert helped.returncode == 0, helped.stderr
    assert "auras" in helped.stdout

    sourced = {**report["environment"], "ROS_DOMAIN_ID": str(ros_domain_id)}
    assert ament.prefix(sourced["AMENT_PREFIX_PATH"]) == workspace.prefix
    for name in ("agent.launch.py", "sim.launch.py"):
        assert ament.launch_file(sourced["AMENT_PREFIX_PATH"], name).is_relative_to(workspace.prefix)
    program = ament.executable(sourced["AMENT_PREFIX_PATH"], "actuator")
    with ament.running(program, workspace.path / "elsewhere", sourced):
        assert ament.hear_the_actuator() == ament.HEARD
