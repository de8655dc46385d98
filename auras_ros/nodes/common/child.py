"""Runs a module as a supervised child: it gets SIGTERM when its supervisor dies, for whatever reason.

usage: python -m auras_ros.nodes.common.child PARENT_PID MODULE [ARGUMENT ...]
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, module = int(sys.argv[1]), sys.argv[2]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before prctl was called
        sys.exit(1)
    sys.argv = [module, *sys.argv[3:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
