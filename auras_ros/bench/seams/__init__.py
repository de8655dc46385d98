"""`auras bench seams`: what becomes of the commands where one chunk follows another."""
