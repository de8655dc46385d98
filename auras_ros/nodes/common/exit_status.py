"""What a node's exit status says to whoever started it. 0 is the end that was asked for."""

from __future__ import annotations

import errno

BROKEN = 1  # start it again
BAD_SETTINGS = 2  # it cannot start with these settings, and starting it again will not help
TOO_SLOW = 3  # this machine was too slow for these settings just now: start it again, later each time

_SAYS_OF_SETTINGS = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EACCES,
    errno.EPERM,
    errno.ENAMETOOLONG,
    errno.ELOOP,
)


def may_pass(error: Exception) -> bool:
    """Whether it says something of this machine just now (a network folder, memory, space, open files) and nothing of
    the settings. One without a number was made in words, by whoever looked at a setting; a resolver's is negative."""
    cause = error if isinstance(error, OSError) else error.__cause__
    number = cause.errno if isinstance(cause, OSError) else None
    return number is not None and number > 0 and number not in _SAYS_OF_SETTINGS


def of_refusal(error: Exception) -> int:
    """The status of a node that does not start because of this error."""
    return BROKEN if may_pass(error) else BAD_SETTINGS
