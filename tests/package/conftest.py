"""What the tests of the package share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def bare_environment(tmp_path: Path) -> dict[str, str]:
    """An environment for child processes that leads to no other installation of the package."""
    dropped = ("PYTHONPATH", "AMENT_PREFIX_PATH", "COLCON_PREFIX_PATH", "CMAKE_PREFIX_PATH")
    kept = {key: value for key, value in os.environ.items() if key not in dropped}
    home = tmp_path / "home"
    home.mkdir()
    return {**kept, "HOME": str(home), "COLCON_HOME": str(home / "colcon"), "PYTHONDONTWRITEBYTECODE": "1"}
