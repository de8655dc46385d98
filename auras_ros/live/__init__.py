"""What runs a robot's processes and hears them over topics: the demo's referee, the soak, and their loop."""
