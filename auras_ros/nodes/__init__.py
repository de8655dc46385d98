"""The processes of the runtime, one file a node. Here ROS meets the rooms that do not know it."""
