"""What a node's exit status says to whoever started it. 0 is the end that was asked for."""

from __future__ import annotations

BROKEN = 1  # start it again
BAD_SETTINGS = 2  # it cannot start with these settings, and starting it again will not help
TOO_SLOW = 3  # this machine was too slow for these settings just now: start it again, later each time
