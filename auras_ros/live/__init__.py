"""What runs a robot's processes and hears them over topics as anybody can: the demo's referee, the soak, and their loop."""
