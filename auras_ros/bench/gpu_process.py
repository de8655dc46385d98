"""A part of `make gpu` as a process of its own with a time limit, and the ways in which it may end."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

LIMIT_S = 470.0  # a part
ROOT = Path(__file__).resolve().parents[2]


class PartError(RuntimeError):
    """A part that failed; the text says how."""


class PartSkippedError(RuntimeError):
    """A part that cannot be run here; the text says what is missing."""


def call(command: list[str], limit_s: float) -> int:
    """The command's exit status. One that takes too long is killed with all that it started, and is a PartError.

    It has as many connections to the GPU as there can be: CUDA makes eight, and streams that share one wait for each
    other, which would hold up par's many workers and nobody else.
    """
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, "PYTHONPATH": path, "CUDA_DEVICE_MAX_CONNECTIONS": "32"}
    process = subprocess.Popen(command, cwd=ROOT, env=env, start_new_session=True)
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        raise PartError(f"not done within {limit_s:g} s") from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
