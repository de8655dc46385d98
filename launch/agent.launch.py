"""The robot's side: starts the processes of a configuration that are not the simulator's bridge (actuator, agent).

    ros2 launch auras_ros agent.launch.py config:=pusht namespace:=robot1

`--show-args` lists the arguments; what they do stands in auras_ros/nodes/common/launching.py.
"""

from __future__ import annotations

from auras_ros.nodes.common.launching import robot_side as generate_launch_description

__all__ = ["generate_launch_description"]
