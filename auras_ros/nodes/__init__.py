"""The processes of the runtime: agent, actuator, and what they share. It connects ROS with
the packages that do not import it."""
