"""The wheel holds every module and shared file, nothing else, and works once installed."""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.package import ament
from tests.package.tree import ENTRY_POINTS, copy_sources

NODES = sorted(set(ENTRY_POINTS) - {"auras"})
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source tree and the wheel made of it, without network."""
    folder = tmp_path_factory.mktemp("wheel")
    tree = copy_sources(folder / "tree")
    subprocess.run(
        [
            *PIP,
            "wheel",
            "-q",
            "--no-deps",
            "--no-build-isolation",
            "--no-index",
            "-w",
            str(folder),
            str(tree),
        ],
        check=True,
        timeout=300,
    )
    return tree, next(folder.glob("auras_ros-*-py3-none-any.whl"))


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.endswith("/")}


def read(wheel: Path, suffix: str) -> str:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(next(n for n in archive.namelist() if n.endswith(suffix))).decode()


def test_every_module_is_in_the_wheel(built: tuple[Path, Path]) -> None:
    """A folder without __init__.py would silently be left out."""
    tree, wheel = built
    rooms = {
        "auras_ros": tree / "auras_ros",
        "auras_ros/kernels": tree / "kernels",
        "auras_ros/sim": tree / "sim",
    }
    modules = {f"{to}/{file.relative_to(at)}" for to, at in rooms.items() for file in at.rglob("*.py")}
    assert {"auras_ros/kernels/__init__.py", "auras_ros/sim/__init__.py"} <= modules
    assert {name for name in names(wheel) if name.endswith(".py") and ".data/" not in name} == modules
    assert "auras_ros/py.typed" in names(wheel)


def test_every_shared_file_is_in_the_wheel(built: tuple[Path, Path]) -> None:
    tree, wheel = built
    patterns = {"config": "**/*.*", "launch": "*.launch.py", "checkpoints": "**/*"}
    files = {p.relative_to(tree) for kind, glob in patterns.items() for p in (tree / kind).glob(glob) if p.is_file()}
    assert {f"config/fastdds/{name}.xml" for name in ("localhost", "subnet")} <= {str(file) for file in files}
    shared = {f"share/auras_ros/{file}" for file in files} | {
        "share/auras_ros/package.xml",
        "share/ament_index/resource_index/packages/auras_ros",
        *(f"lib/auras_ros/{name}" for name in NODES),
    }
    assert "share/auras_ros/checkpoints/probe/parts/weights.safetensors" in shared
    assert {name.partition(".data/data/")[2] for name in names(wheel) if ".data/data/" in name} == shared


def test_nothing_else_is_in_the_wheel(built: tuple[Path, Path]) -> None:
    _, wheel = built
    tops = {name.split("/")[0] for name in names(wheel)}
    stem = wheel.name.removesuffix("-py3-none-any.whl")
    assert tops == {"auras_ros", f"{stem}.data", f"{stem}.dist-info"}
    assert not [name for name in names(wheel) if "tests/" in name or "conftest" in name]
    assert "Apache License" in read(wheel, "dist-info/licenses/LICENSE")


def test_entry_points(built: tuple[Path, Path]) -> None:
    parser = configparser.ConfigParser()
    parser.read_string(read(built[1], "dist-info/entry_points.txt"))
    assert dict(parser["console_scripts"]) == ENTRY_POINTS


def test_requirements(built: tuple[Path, Path]) -> None:
    """torch is never pinned, cv2 has one owner, and rclpy comes from a package index only where it is asked for."""
    metadata = Parser().parsestr(read(built[1], "dist-info/METADATA"))
    required = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert "torch" in required
    assert "opencv-python" in required
    everything = " ".join(metadata.get_all("Requires-Dist", []))
    assert "opencv-python-headless" not in everything
    assert "rclpy" not in " ".join(required)
    assert all("rclpy" not in line or 'extra == "ros"' in line for line in metadata.get_all("Requires-Dist", []))
    cyclonedds = next(line for line in required if line.startswith("cyclonedds"))
    assert "==11.0.1" in cyclonedds
    assert 'platform_machine != "aarch64"' in cyclonedds
    assert metadata["Requires-Python"] in ("<3.14,>=3.10", ">=3.10,<3.14")
    assert metadata["License"] == "Apache-2.0"


def test_installed_package_is_found_and_started_by_ros(
    built: tuple[Path, Path], tmp_path: Path, bare_environment: dict[str, str], ros_domain_id: int
) -> None:
    """Installed under a prefix that is not the interpreter's own: the files are found beside the code, and the
    programs, which pip puts into bin, where `ros2 run` looks for them."""
    prefix = tmp_path / "prefix"
    options = ("-q", "--no-deps", "--no-index", "--ignore-installed", "--prefix", str(prefix))
    subprocess.run([*PIP, "install", *options, built[1]], check=True, timeout=120)
    site = next(prefix.rglob("auras_ros/__init__.py")).parents[1]
    environment = {
        **bare_environment, "PYTHONPATH": str(site), "AMENT_PREFIX_PATH": f"{tmp_path}/else{os.pathsep}{prefix}",
        "ROS_DOMAIN_ID": str(ros_domain_id),
    }  # fmt: skip
    code = "from auras_ros.resources import find; print(find('checkpoints', 'probe/policy.json'))"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    assert Path(ran.stdout.strip()).is_relative_to(prefix)

    where = environment["AMENT_PREFIX_PATH"]
    assert ament.prefix(where) == prefix
    for name in ("agent.launch.py", "sim.launch.py"):
        assert ament.launch_file(where, name).is_relative_to(prefix)
    assert [ament.executable(where, name).name for name in NODES] == NODES
    with ament.running(ament.executable(where, "actuator"), tmp_path, environment):
        assert ament.hear_the_actuator() == ament.HEARD
