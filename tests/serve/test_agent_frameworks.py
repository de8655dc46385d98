"""Stock agent frameworks, unchanged, in their own environment (`make test-agents` makes it)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.serve.serving import Served

pytest.importorskip("llguidance")

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("AURAS_AGENTS_PYTHON", ROOT / ".venv-agents" / "bin" / "python"))


@pytest.mark.skipif(not PYTHON.exists(), reason="make test-agents makes .venv-agents, with the agent frameworks")
def test_agent_frameworks_work_unchanged(served: Served) -> None:
    script = ROOT / "scripts" / "agents" / "talk.py"
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    made = subprocess.run(
        [PYTHON, script, f"{served.url}/v1", "tiny"], capture_output=True, text=True, timeout=300, env=environment,
        check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout + made.stderr
    assert made.stdout.count("ok  ") == 6
