"""`auras bench nova-…`: the figures and tables of Nova."""
