"""The tuner (Auras 4.3.2): which plan, of many, under what the user asks for."""
