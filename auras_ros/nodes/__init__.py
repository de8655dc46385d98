"""The processes of the runtime: agent, actuator, and what they share. Here ROS meets the rooms that do not know it."""
