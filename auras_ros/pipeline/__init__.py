"""Auras: how a policy's perception and generation are scheduled, frame by frame. No ROS in it."""
