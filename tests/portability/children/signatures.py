"""Print the parameters of rclpy's public calls as JSON: those of the rclpy that is first on the path.

Names come on the standard input as a JSON list; without any, all that this rclpy has in the modules below.
Nothing is said of parameters whose defaults are objects of the C part: their names and kinds are compared.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from typing import Any

MODULES = {
    "rclpy": ("create_node", "init", "ok", "shutdown", "spin", "spin_once", "spin_until_future_complete",
              "try_shutdown"),
    "rclpy.clock": ("Clock", "JumpThreshold"),
    "rclpy.duration": ("Duration",),
    "rclpy.event_handler": ("PublisherEventCallbacks", "SubscriptionEventCallbacks"),
    "rclpy.executors": ("SingleThreadedExecutor",),
    "rclpy.lifecycle": ("LifecycleNode",),
    "rclpy.node": ("Node",),
    "rclpy.parameter": ("Parameter",),
    "rclpy.publisher": ("Publisher",),
    "rclpy.client": ("Client",),
    "rclpy.task": ("Future",),
    "rclpy.time": ("Time",),
    "rclpy.timer": ("Timer",),
    "rclpy.utilities": ("remove_ros_args",),
}  # fmt: skip
MADE_BY_NODES = {"Publisher", "Client", "Timer"}  # nobody else calls their constructors


def parameters(call: Any) -> list[str]:
    """'*name=default' for a keyword-only parameter, plain defaults alone."""
    lines = []
    for each in inspect.signature(call).parameters.values():
        star = "*" if each.kind is inspect.Parameter.KEYWORD_ONLY else ""
        plain = each.default is None or isinstance(each.default, (bool, int, float, str))
        lines.append(f"{star}{each.name}" + (f"={each.default}" if plain else ""))
    return lines


def found() -> dict[str, list[str]]:
    calls: dict[str, list[str]] = {}
    for module, names in MODULES.items():
        for name in names:
            thing = getattr(importlib.import_module(module), name)
            if not inspect.isclass(thing):
                calls[f"{module}.{name}"] = parameters(thing)
                continue
            if name not in MADE_BY_NODES:
                calls[f"{module}.{name}"] = parameters(thing)
            for method, function in inspect.getmembers(thing, inspect.isfunction):
                if not method.startswith("_"):
                    calls[f"{module}.{name}.{method}"] = parameters(function)
    return calls


if __name__ == "__main__":
    wanted = [] if sys.stdin.isatty() else json.loads(sys.stdin.read() or "[]")
    calls = found()
    missing = [name for name in wanted if name not in calls]
    if missing:
        sys.exit(f"this rclpy has no {missing}")
    print(json.dumps({name: calls[name] for name in wanted or calls}))
