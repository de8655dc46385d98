"""No node of ours assigns a name that the ROS under test keeps for itself.

Guards: a node whose own `_services` or `_timers` replaces rclpy's, which then fails in an executor that calls it.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from importlib import import_module

import pytest

from auras_ros.ros import LifecycleNode, Node

ROS = "auras_ros.ros.dds"
OURS = (
    ("auras_ros.nodes.actuator.node", "Actuator"),
    ("auras_ros.nodes.agent.node", "Agent"),
    ("auras_ros.nodes.button.node", "ButtonNode"),
    ("auras_ros.nodes.vlm.node", "VlmNode"),
    ("auras_ros.sim.bridge.node", "SimBridge"),
    ("auras_ros.live.referee.node", "RefereeNode"),
    ("auras_ros.live.soak.witness", "Witness"),
)
# What a lifecycle node is asked to define, and what a node may extend.
CALLBACKS = {f"on_{name}" for name in ("configure", "cleanup", "shutdown", "activate", "deactivate", "error")}
EXTENDED = {"destroy_node"}


def assigned(kind: type) -> set[str]:
    """The names that a class defines, and those that its methods assign on `self`."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    on_self = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    return on_self | {name for name in vars(kind) if not name.startswith("__")}


def owned(kind: type) -> set[str]:
    """The names of ROS's own classes under this one."""
    theirs = [base for base in kind.__mro__ if base is not object and base.__module__.startswith(("rclpy", ROS))]
    return set().union(*map(assigned, theirs))


def test_every_node_of_ours_is_looked_at() -> None:
    kinds = {getattr(import_module(module), name) for module, name in OURS}
    pending = [Node]
    found = set()
    while pending:
        kind = pending.pop()
        pending += kind.__subclasses__()
        if kind.__module__.startswith("auras_ros.") and not kind.__module__.startswith(ROS):
            found.add(kind)
    assert kinds <= found
    assert found - kinds <= {base for kind in kinds for base in kind.__mro__}


@pytest.mark.parametrize(("module", "name"), OURS)
def test_no_name_of_ros_is_assigned(module: str, name: str) -> None:
    kind = getattr(import_module(module), name)
    ours = [base for base in kind.__mro__ if base.__module__.startswith("auras_ros.") and ROS not in base.__module__]
    names = set().union(*map(assigned, ours))
    assert names
    allowed = EXTENDED | CALLBACKS if issubclass(kind, LifecycleNode) else EXTENDED
    assert names & owned(kind) <= allowed


def test_the_comparison_finds_a_clash() -> None:
    class Clashing(Node):
        def __init__(self) -> None:
            self._clock = 1

    assert "_clock" in assigned(Clashing) & owned(Clashing)
