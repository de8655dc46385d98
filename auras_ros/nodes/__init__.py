"""The processes of the runtime: agent, actuator, and what they share. It connects ROS with
the rooms that do not import it."""
