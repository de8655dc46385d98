"""rclpy leaves the error of a message that it could not read in its thread's error state. The next different error then
prints eleven lines to standard error, which nothing can switch off: so who sends garbage on two topics fills the log.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from .backend import BACKEND


def error_reset() -> Callable[[], object]:
    """A function that clears the error state of the calling thread. It does nothing on our own layer."""
    if BACKEND != "rclpy":
        return lambda: None
    library = ctypes.PyDLL("librcutils.so")  # rclpy has loaded it; calls of a PyDLL keep the interpreter lock
    reset: Callable[[], object] = library.rcutils_reset_error
    library.rcutils_reset_error.argtypes = []
    library.rcutils_reset_error.restype = None
    return reset
