"""Errors of the middleware for a user's settings when a node is built: invalid names and discovery variables."""

from __future__ import annotations

from .backend import BACKEND

SETTINGS_ERRORS: tuple[type[Exception], ...]

if BACKEND == "rclpy":
    from rclpy.exceptions import NameValidationException

    SETTINGS_ERRORS = (NameValidationException,)
else:
    from .dds.names import InvalidNameError
    from .ranges import ConfigurationError

    SETTINGS_ERRORS = (ConfigurationError, InvalidNameError)
