"""A model's folder, whoever wrote it: its files are read, bounded and refused by name. It knows no policy and no schedule."""
