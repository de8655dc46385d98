"""The rooms' one-way imports hold, and the contracts that say so are able to fail.

Guards: a room that escapes the contracts; a contract that names nothing; ROS, CUDA or a simulator
pulled in by importing the core.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.package.tree import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LINT = (sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()")
TOOLS = {
    "arguments",
    "clock",
    "descriptors",
    "environments",
    "exit_status",
    "heap",
    "output",
    "own_environment",
    "panics",
    "parameter_file",
    "parameters",
    "registry",
    "repeated_lines",
    "resources",
    "spelling",
    "text_file",
    "values",
    "topic_names",
}  # every room may use them
ENDS = ("observation", "action")
CORE = ("loading", "pipeline", "policies", "checkpoints", "models", "kernels")
NOT_IN_THE_CORE = {
    "rclpy",
    "cyclonedds",
    "rosbags",
    "cuda",
    "triton",
    "gym_pusht",
    "pygame",
    "mujoco",
    "robosuite",
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


AGAINST_THE_GRAIN = [
    ("observation", "auras_ros.ros"),
    ("action", "auras_ros.ros"),
    ("models", "auras_ros.policies"),
    ("policies", "auras_ros.pipeline"),
    ("checkpoints", "auras_ros.policies"),
    ("pipeline", "auras_ros.nodes"),
    ("pipeline", "auras_ros.loading"),
    ("pipeline", "auras_ros.checkpoints"),
    ("nodes", "auras_ros.policies"),
    ("nodes/common", "auras_ros.nodes.agent"),
    ("nodes/agent", "auras_ros.nodes.actuator"),
    ("pipeline", "cyclonedds"),
    ("policies", "cuda"),
    ("pipeline", "accelerate"),
    ("evaluate", "rclpy"),
    ("report", "auras_ros.pipeline"),
    ("measure", "auras_ros.evaluate"),
    ("measure", "auras_ros.nodes"),
    ("nodes", "auras_ros.report"),
    ("kernels", "auras_ros.models"),
    ("sim", "auras_ros.ros"),
    ("sim/gym", "auras_ros.sim.pusht"),
    ("sim/process", "auras_ros.sim.worlds"),
    ("lora", "auras_ros.child"),
    ("evaluate", "auras_ros.sim.pusht"),
    ("nodes", "auras_ros.bench"),
    ("train", "auras_ros.cli"),
    ("live", "auras_ros.bench"),
]


def test_an_import_against_the_grain_is_caught(copied_tree: Path) -> None:
    """Hidden in a function, as such an import usually is."""
    for number, (room, imports) in enumerate(AGAINST_THE_GRAIN):
        intruder = copied_tree / "auras_ros" / room / f"intruder{number}.py"
        intruder.write_text(f"def f() -> None:\n    import {imports}\n")
    result = lint_imports(copied_tree)
    assert result.returncode != 0
    for number, (room, imports) in enumerate(AGAINST_THE_GRAIN):
        assert f"auras_ros.{room.replace('/', '.')}.intruder{number} -> {imports}" in result.stdout


# Imports Triton where it is installed; the core imports a part of torch that imports this.
TORCH = ["torch", "torch._dynamo"]


def imported_by(*codes: str) -> list[set[str]]:
    """The modules that one fresh interpreter holds after each of these, one after another."""
    program = "import sys\n" + "".join(f"{code}\nprint(*sys.modules)\n" for code in codes)
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    return [set(line.split()) for line in ran.stdout.splitlines()]


def modules_of(*rooms: str) -> list[str]:
    found = []
    for room in rooms:
        folder = ROOT / "auras_ros" / room
        parts = [path.relative_to(folder).with_suffix("").parts for path in sorted(folder.rglob("*.py"))]
        assert parts, f"{room} is empty"
        found += [".".join(("auras_ros", room, *each)).removesuffix(".__init__") for each in parts]
    return found


def test_the_core_imports_neither_ros_nor_cuda_and_both_ends_do_without_torch() -> None:
    """The actuator's process loads neither torch nor a decoder it does not use; the package itself nothing at all."""
    ends, core = modules_of(*ENDS), [each for each in modules_of(*CORE) if not each.endswith("_triton")]  # a GPU's
    steps = ["import auras_ros", *("; ".join(f"import {each}" for each in some) for some in (ends, TORCH, core))]
    package, with_ends, with_torch, with_core = imported_by(*steps)
    assert {name for name in package if name.startswith("auras_ros")} == {"auras_ros"}
    assert "numpy" not in package
    assert set(ends) <= with_ends
    assert with_ends & {"torch", *NOT_IN_THE_CORE} == set()
    assert set(core) <= with_core
    assert (with_core - with_torch) & NOT_IN_THE_CORE == set()  # some of them are torch's own
