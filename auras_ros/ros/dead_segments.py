"""Removes what killed processes of this user left of Fast DDS in shared memory: 8 MiB each with our profile.

A segment is a file `fastrtps_<16 hexadecimal digits>` (Fast DDS 2) or `fastdds_...` (Fast DDS 3) beside a file of the
same name and `_el`, which its process keeps locked while it lives. Its ports (`..._port7001`, 52 kB each) stay: Fast
DDS takes over those of the dead itself, so their number does not grow, and a lock of ours could make it fail to.

Safe beside processes that start meanwhile. While we hold a lock, nobody can make a segment of that name: Fast DDS takes
another name where a lock is held, and makes the lock file again where it was removed between opening and locking.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import time
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
LOCK_FILE = re.compile(r"(fastrtps|fastdds)_[0-9a-f]{16}_el")
LOCK_SUFFIX = "_el"
TIME_LIMIT_S = 1.0  # for tens of thousands of files


def remove_dead_segments(folder: Path = SHARED_MEMORY, time_limit_s: float = TIME_LIMIT_S) -> int:
    """Remove this user's segments that no living process holds, and return their number. Never raises OSError; what
    is left after the time limit is removed at a later start."""
    deadline = time.monotonic() + time_limit_s
    removed = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if time.monotonic() > deadline:
                    break
                if LOCK_FILE.fullmatch(entry.name) and _remove_if_dead(Path(entry.path)):
                    removed += 1
    except OSError:
        pass  # no shared memory here: there is nothing to remove
    return removed


def _remove_if_dead(lock_path: Path) -> bool:
    """Whether the segment of this lock file was removed."""
    try:
        if not _is_own_file(os.lstat(lock_path)):
            return False
        lock = os.open(lock_path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False  # removed meanwhile, or not ours to read
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        opened = os.fstat(lock)
        if not _is_own_file(opened) or not os.path.samestat(opened, os.lstat(lock_path)):
            return False  # replaced since it was looked at
        segment = lock_path.with_name(lock_path.name.removesuffix(LOCK_SUFFIX))
        if segment.exists():
            if not _is_own_file(os.lstat(segment)):
                return False
            segment.unlink()
        lock_path.unlink()
        return True
    except OSError:
        return False  # BlockingIOError: a living process holds it
    finally:
        os.close(lock)


def _is_own_file(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
