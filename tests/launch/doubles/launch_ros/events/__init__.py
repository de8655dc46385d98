"""Events of lifecycle nodes."""
