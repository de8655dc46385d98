"""Makes the environment of test_robomimic.py, robosuite's with torch and robomimic beside it, and runs that file in it:
`make test-robomimic`.

What robomimic's wrapper imports of its requirements is there already. Its others are left out; one needs a compiler.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from auras_ros.own_environment import OwnEnvironment, SetupError, make, python_of
from auras_ros.sim.world_environment import ROBOSUITE, place

TORCH, ROBOMIMIC = "torch==2.13.0", "robomimic==0.3.0"
BEGUN = "auras-robomimic.begun"
ROOT = Path(__file__).parents[2]


def environment(folder: Path) -> OwnEnvironment:
    """torch with its requirements; then the rest alone, in the versions of robosuite's environment."""
    pip = [str(python_of(folder)), "-m", "pip", "install"]
    steps = [
        [sys.executable, "-m", "venv", str(folder)],
        [*pip, TORCH],
        [*pip, "--no-deps", *ROBOSUITE.requirements, ROBOMIMIC],
    ]
    return OwnEnvironment("robomimic's environment", folder, steps, BEGUN, ROBOSUITE.pythons)


def main() -> int:
    try:
        python = make(environment(place() / "robomimic"), print)
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return subprocess.call([str(python), "-m", "pytest", "tests/worlds/test_robomimic.py"], cwd=ROOT)


if __name__ == "__main__":
    sys.exit(main())
