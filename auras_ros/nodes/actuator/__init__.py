"""The actuator's process: chunks in, commands out, without torch. Nothing is imported here."""
