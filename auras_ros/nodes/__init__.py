"""The processes of the runtime, one file for each node. This room connects ROS with the rooms that do not import it."""
