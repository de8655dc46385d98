"""What `launch_ros` adds to `launch`, as far as our launch files go; see the double of `launch`."""
