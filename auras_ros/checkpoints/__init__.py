"""A model's folder, whoever wrote it: read, bounded and refused by name. It knows no policy and no schedule."""
