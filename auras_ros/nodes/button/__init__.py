"""The reference button of the emergency stop: repeats its state, signs it if it has a key, and presses when it ends."""
