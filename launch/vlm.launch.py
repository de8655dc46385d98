"""The vision-language model of a configuration, alone: for a computer of its own. agent.launch.py starts it too.

    ros2 launch auras_ros vlm.launch.py config:=/my/robot.yaml namespace:=robot1

`--show-args` lists the arguments; what they do stands in auras_ros/nodes/common/launching.py.
"""

from __future__ import annotations

from auras_ros.nodes.common.launching import vlm_alone as generate_launch_description

__all__ = ["generate_launch_description"]
