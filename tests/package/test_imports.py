"""The rooms' one-way imports hold, and the contracts that say so are able to fail.

Guards: a room that escapes the contracts; a contract that names nothing; ROS, CUDA or a simulator
pulled in by importing the core.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.package.tree import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LINT = (sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()")
TOOLS = {
    "clock",
    "descriptors",
    "heap",
    "json_file",
    "output",
    "parameter_file",
    "resources",
}  # every room may use them
CORE = ("observation", "action", "pipeline", "policies", "models", "kernels")
NOT_IN_THE_CORE = {
    "rclpy",
    "cyclonedds",
    "rosbags",
    "cuda",
    "triton",
    "gym_pusht",
    "pygame",
    "x_transformers",
}


def lint_imports(tree: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*LINT, "--no-cache", "--no-logo"], cwd=tree, capture_output=True, text=True, timeout=120)


@pytest.fixture
def copied_tree(tmp_path: Path) -> Path:
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("auras_ros", "kernels", "sim"):
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=ignore)
    shutil.copy2(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def rooms() -> set[str]:
    """Every folder with Python in it and every file at the top of the package."""
    package = ROOT / "auras_ros"
    folders = {path.name for path in package.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    return folders | {path.stem for path in package.glob("*.py") if path.stem != "__init__"}


def test_the_contracts_hold() -> None:
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "0 broken" in result.stdout


def test_every_room_has_a_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    named = [module for c in contracts for module in c.get("protected_modules", [])]
    protected = {module.removeprefix("auras_ros.") for module in named}
    assert rooms() - TOOLS - protected == set(), "rooms that any other may import: add a contract"


@pytest.mark.parametrize(
    ("room", "imports"),
    [
        ("observation", "auras_ros.ros"),
        ("action", "auras_ros.ros"),
        ("models", "auras_ros.policies"),
        ("policies", "auras_ros.pipeline"),
        ("pipeline", "auras_ros.nodes"),
        ("pipeline", "cyclonedds"),
        ("policies", "cuda"),
        ("pipeline", "accelerate"),
        ("evaluate", "rclpy"),
        ("kernels", "auras_ros.models"),
        ("sim", "auras_ros.ros"),
        ("nodes", "auras_ros.bench"),
        ("train", "auras_ros.cli"),
    ],
)
def test_an_import_against_the_grain_is_caught(copied_tree: Path, room: str, imports: str) -> None:
    """Hidden in a function, as such an import usually is."""
    intruder = copied_tree / "auras_ros" / room / "intruder.py"
    intruder.write_text(f"def f() -> None:\n    import {imports}\n")
    result = lint_imports(copied_tree)
    assert result.returncode != 0
    assert f"auras_ros.{room}.intruder -> {imports}" in result.stdout


@cache
def imported_by(code: str) -> frozenset[str]:
    """The modules that a fresh interpreter holds after running `code`."""
    ran = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules, sep='\\n')"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return frozenset(ran.stdout.split())


def modules_of(room: str) -> list[str]:
    folder = ROOT / "auras_ros" / room
    found = [path.relative_to(folder).with_suffix("").parts for path in sorted(folder.rglob("*.py"))]
    return [".".join(("auras_ros", room, *parts)).removesuffix(".__init__") for parts in found]


@pytest.mark.parametrize("room", CORE)
def test_the_core_imports_neither_ros_nor_cuda(room: str) -> None:
    names = modules_of(room)
    assert names, f"{room} is empty"
    loaded = imported_by("\n".join(f"import {name}" for name in names))
    assert set(names) <= loaded
    torchs_own = imported_by("import torch") if "torch" in loaded else frozenset()
    assert (loaded - torchs_own) & NOT_IN_THE_CORE == set()


@pytest.mark.parametrize("room", ["observation", "action"])
def test_both_ends_do_without_torch(room: str) -> None:
    """The actuator's process loads neither torch nor a decoder it does not use."""
    loaded = imported_by("\n".join(f"import {name}" for name in modules_of(room)))
    assert "torch" not in loaded


def test_the_package_itself_imports_nothing() -> None:
    ours = {name for name in imported_by("import auras_ros") if name.startswith("auras_ros")}
    assert ours == {"auras_ros"}
    assert "numpy" not in imported_by("import auras_ros")
