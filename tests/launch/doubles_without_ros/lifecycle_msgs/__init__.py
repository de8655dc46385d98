"""What our launch files use of lifecycle_msgs, where ROS 2 is not installed."""
