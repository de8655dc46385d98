"""The constants of lifecycle_msgs that our launch files use."""
