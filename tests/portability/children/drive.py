"""Run a node's real `main` on the double of rclpy while a script plays the rest of the robot; report as JSON.

Used as `python -m tests.portability.children.drive SCRIPT REPORT [ROS arguments]`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rclpy_control

from tests.portability.children import elsewhere, scripts


def main(name: str, report: str, *arguments: str) -> int:
    """The status of the node's main; the report says whether the script went well."""
    node_main, script = (scripts.SCRIPTS | elsewhere.SCRIPTS)[name]
    fault, facts = list[str](), dict[str, Any]()

    def play(script: Callable[[dict[str, Any]], None]) -> None:
        try:
            script(facts)
        except BaseException:  # noqa: BLE001  (reported)
            fault.append(traceback.format_exc())
        os.kill(os.getpid(), signal.SIGTERM)

    player = threading.Thread(target=play, args=(script,), daemon=True)
    player.start()
    status = node_main(["node", *arguments])
    player.join(timeout=rclpy_control.PATIENCE_S)
    outcome = {"status": status, "fault": fault, "facts": facts, **rclpy_control.report()}
    Path(report).write_text(json.dumps(outcome), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
