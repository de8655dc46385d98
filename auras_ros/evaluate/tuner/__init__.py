"""The tuner (Auras 4.3.2): finds the best plan that meets the user's requirements."""
