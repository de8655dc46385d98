"""Auras: how a policy's perception and generation are scheduled, frame by frame. It knows no ROS."""
