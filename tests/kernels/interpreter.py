"""Triton's kernels on a CPU: in a process of their own, because Triton decides at import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def interpreted(module: str) -> Any:
    """What the last line says, JSON, that this module prints in Triton's interpreter."""
    pytest.importorskip("triton", reason="needs Triton: make test-triton")
    ran = subprocess.run(
        [sys.executable, "-m", module], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "TRITON_INTERPRET": "1"}, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])
