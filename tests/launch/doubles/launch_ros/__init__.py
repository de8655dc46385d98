"""Records what a launch file says, in the shapes of ROS 2's `launch_ros`."""
