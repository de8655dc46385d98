"""Simulators and their ROS 2 bridges. A world file knows no ROS; a bridge file knows nothing of policies."""
