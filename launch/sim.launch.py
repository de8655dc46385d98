"""The simulator's side: starts the bridge of a world, in the place of a robot.

    ros2 launch auras_ros sim.launch.py sim:=pusht namespace:=robot1
    ros2 launch auras_ros sim.launch.py config:=pusht_drift

`--show-args` lists the arguments; what they do stands in auras_ros/nodes/common/launching.py.
"""

from __future__ import annotations

from auras_ros.nodes.common.launching import simulator_side as generate_launch_description

__all__ = ["generate_launch_description"]
