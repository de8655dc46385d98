"""Plain torch networks. Nothing here knows about time, devices, normalisation files or ROS."""
