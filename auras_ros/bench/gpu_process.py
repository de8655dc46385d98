"""Runs a part of `make gpu` in a process with a time limit, and defines how it may end."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

LIMIT_S = 470.0  # for each part
ROOT = Path(__file__).resolve().parents[2]


class PartError(RuntimeError):
    """A part that failed; the message has the reason."""


class PartSkippedError(RuntimeError):
    """A part that cannot be run here; the message names what is missing."""


def call(command: list[str], limit_s: float) -> int:
    """The command's exit status. If it takes too long it is killed with all its child processes, and PartError raised.

    It gets the largest number of connections to the GPU: CUDA's default is eight, and streams that share one wait for
    each other, which would slow down only par with its many workers.
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
