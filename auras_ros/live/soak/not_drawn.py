"""Faults of docs/reliability.md that no soak can inject, and why. Each has a test of its own, named there."""

from __future__ import annotations

NOT_DRAWN = {
    "wall clock set": "needs privileges; joint_states_stamped is injected instead",
    "another machine": "needs a second network namespace, and privileges for it",
    "enforced security": "occurs at start, before the loop runs",
    "another DDS version": "needs an installed ROS 2; late_node tests our own layer only",
    "ros2 launch that dies": "needs an installed ROS 2",
    "frame that hangs": "needs code inside the agent",
    "invalid values from our agent": "needs code inside the agent; garbage comes from other nodes",
    "compressed images": "the loop's camera is raw",
    "two faults at once": "only kills under load; otherwise it would be unknown what broke a promise",
    "bad weights, pickles": "occurs at configure, before the loop runs",
    "offload file, descriptors": "occurs at start, before the loop runs",
    "shutting down": "ends the loop",
    "adapters": "the loop's policy takes none",
    "GPU out of memory, CUDA error": "the loop runs without one",
    "link lost, request load": "the loop is neither split nor a server",
}
