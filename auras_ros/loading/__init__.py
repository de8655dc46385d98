"""From a model's folder to something that is ready for its first frame, on its device."""
