"""What runs a robot's processes and hears them over topics: the demo's referee, the soak, and their loop. And the soak
of a server."""
