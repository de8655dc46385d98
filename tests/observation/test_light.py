"""The core stays light: importing it brings in no network library, no GPU library and no image library."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("torch", "cv2", "rclpy", "cyclonedds", "rosbags")


def test_importing_the_core_imports_nothing_heavy() -> None:
    code = f"import sys, auras_ros.action, auras_ros.observation; print(sorted(set({HEAVY}) & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.strip() == "[]"
