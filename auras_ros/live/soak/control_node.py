"""A node that does nothing. What its process takes while others come and go, the middleware takes in every process.

Fast DDS keeps memory for each node that it has discovered. So the memory of our processes is judged by how much more
they take than this one.

usage: python -m auras_ros.live.soak.control_node
"""

from __future__ import annotations

import os
import subprocess
import sys
from types import TracebackType

from auras_ros.ros import ExternalShutdownException, LifecycleNode, init, spin, try_shutdown

NAME = "control"
END_S = 10.0


class ControlNode:
    """The node's process, for a block."""

    def __enter__(self) -> ControlNode:
        child = [sys.executable, "-m", "auras_ros.nodes.common.child", str(os.getpid()), __name__]
        nothing = subprocess.DEVNULL
        self._process = subprocess.Popen(child, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)
        self.pid = self._process.pid
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def main() -> None:
    init(args=[])
    try:
        spin(LifecycleNode(NAME))
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        try_shutdown()


if __name__ == "__main__":
    main()
