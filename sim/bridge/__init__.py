"""The bridge: any world as a robot of ROS 2. It knows nothing of policies."""
