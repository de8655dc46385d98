"""Faults of docs/reliability.md that no soak can draw, and why. Each has a test of its own, named there."""

from __future__ import annotations

NOT_DRAWN = {
    "wall clock set": "needs privileges; joint_states_stamped stands for it",
    "another machine": "needs a second network namespace, and privileges for it",
    "enforced security": "met at start, before there is a loop",
    "another DDS version": "needs an installed ROS 2; late_node is of this layer",
    "ros2 launch that dies": "needs an installed ROS 2",
    "frame that hangs": "needs code inside the agent",
    "hostile values of our agent": "needs code inside the agent; garbage is of others",
    "compressed images": "the loop's camera is raw",
    "two of these at once": "but for kills beside a load, so that what broke a promise is known",
    "bad weights, pickles": "met at configure, before there is a loop",
    "offload file, descriptors": "met at start, before there is a loop",
    "shutting down": "ends the loop",
    "adapters": "the loop's policy takes none",
    "GPU out of memory, CUDA error": "the loop runs without one",
    "link lost, request load": "the loop is neither split nor a server",
}
