"""The meaning of a node's exit status. 0 is a requested end."""

from __future__ import annotations

import errno

BROKEN = 1  # restart it
BAD_SETTINGS = 2  # it cannot start with these settings, and a restart will not help
TOO_SLOW = 3  # this machine was too slow for these settings just now: restart it after a growing delay

_SAYS_OF_SETTINGS = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EINVAL,
    errno.EACCES,
    errno.EPERM,
    errno.ENAMETOOLONG,
    errno.ELOOP,
)


def may_pass(error: Exception) -> bool:
    """Whether the cause is the state of this machine just now (a network folder, memory, space, open files) and not the
    settings. An OSError without errno was raised by our own checks; getaddrinfo's errno is negative."""
    cause = error if isinstance(error, OSError) else error.__cause__
    number = cause.errno if isinstance(cause, OSError) else None
    return number is not None and number > 0 and number not in _SAYS_OF_SETTINGS


def of_refusal(error: Exception) -> int:
    """The status of a node that does not start because of this error."""
    return BROKEN if may_pass(error) else BAD_SETTINGS
