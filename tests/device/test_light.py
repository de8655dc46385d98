"""Importing the room brings in neither torch nor a GPU library: the actuator's and the tools' processes stay light."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import auras_ros.device

HEAVY = ("torch", "numpy", "accelerate", "cuda", "triton", "rclpy", "cyclonedds")
FILES = sorted(Path(auras_ros.device.__file__).parent.glob("*.py"))


def test_importing_every_module_imports_nothing_heavy() -> None:
    modules = ", ".join(f"auras_ros.device.{file.stem}" for file in FILES if file.stem != "__init__")
    code = f"import sys, {modules}; print(sorted(set({HEAVY}) & set(sys.modules)), {modules.count(',') + 1})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.split("] ") == ["[", f"{len(FILES) - 1}\n"]
