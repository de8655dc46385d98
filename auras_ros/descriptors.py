"""Room for open files: the middleware ends the process from below where it runs out of them."""

from __future__ import annotations

import resource

NEEDED = 256  # a node has some 40 to 60 open; a peer that joins costs none


class DescriptorsError(OSError):
    """Too few files may be open; the text says what to do."""


def ensure_descriptors() -> None:
    """Raise this process's own limit where that is allowed. Raises DescriptorsError where it is not enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= NEEDED:
        return
    if hard == resource.RLIM_INFINITY or hard >= NEEDED:
        resource.setrlimit(resource.RLIMIT_NOFILE, (NEEDED, hard))
        return
    raise DescriptorsError(
        f"open files: at most {hard} are allowed here, {NEEDED} are needed: raise the limit (ulimit -n, "
        "LimitNOFILE= of the systemd unit, nofile in limits.conf)"
    )
