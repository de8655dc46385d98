"""What is removed from shared memory: segments of this user that nobody holds, and nothing else."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest

from auras_ros.ros.dead_segments import remove_dead_segments

ID = "0123456789abcdef"
NOBODY = 65534


def segment(folder: Path, name: str) -> tuple[Path, Path]:
    """A segment and its lock file."""
    data = folder / name
    lock = folder / f"{name}_el"
    data.write_bytes(b"image")
    lock.touch()
    return data, lock


@pytest.mark.parametrize("prefix", ["fastrtps", "fastdds"])
def test_a_segment_that_nobody_holds_goes(tmp_path: Path, prefix: str) -> None:
    data, lock = segment(tmp_path, f"{prefix}_{ID}")
    assert remove_dead_segments(tmp_path) == 1
    assert not data.exists()
    assert not lock.exists()


def test_a_lock_file_whose_segment_is_gone_goes_too(tmp_path: Path) -> None:
    data, lock = segment(tmp_path, f"fastdds_{ID}")
    data.unlink()
    assert remove_dead_segments(tmp_path) == 1
    assert not lock.exists()


@pytest.mark.parametrize("kind", [fcntl.LOCK_EX, fcntl.LOCK_SH])
def test_a_segment_that_is_held_stays(tmp_path: Path, kind: int) -> None:
    data, lock = segment(tmp_path, f"fastrtps_{ID}")
    with lock.open() as holder:
        fcntl.flock(holder, kind)
        assert remove_dead_segments(tmp_path) == 0
        assert data.exists()
        assert lock.exists()
    assert remove_dead_segments(tmp_path) == 1


def test_segments_of_another_user_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, lock = segment(tmp_path, f"fastrtps_{ID}")
    if os.geteuid() == 0:
        os.chown(data, NOBODY, NOBODY)
        os.chown(lock, NOBODY, NOBODY)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    assert remove_dead_segments(tmp_path) == 0
    assert data.exists()
    assert lock.exists()


def test_a_segment_of_another_user_beside_a_lock_file_of_ours_stays(tmp_path: Path) -> None:
    """Anybody can make files in shared memory; a link in place of a file leads elsewhere."""
    kept = tmp_path / "kept"
    kept.touch()
    data, lock = segment(tmp_path, f"fastrtps_{ID}")
    data.unlink()
    data.symlink_to(kept)
    assert remove_dead_segments(tmp_path) == 0
    lock.unlink()
    lock.symlink_to(kept)
    assert remove_dead_segments(tmp_path) == 0
    assert kept.exists()
    assert data.is_symlink()


def test_ports_and_foreign_files_stay(tmp_path: Path) -> None:
    names = ("fastrtps_port7001_el", "fastrtps_port7001", "sem.fastrtps_port7001_mutex", f"other_{ID}_el",
             f"fastdds_{ID}0_el", f"fastdds_{ID}")  # fmt: skip
    for name in names:
        (tmp_path / name).touch()
    os.mkfifo(tmp_path / "fastdds_aaaaaaaaaaaaaaaa_el")
    (tmp_path / "fastdds_bbbbbbbbbbbbbbbb_el").mkdir()
    assert remove_dead_segments(tmp_path) == 0
    assert len(list(tmp_path.iterdir())) == len(names) + 2


def test_a_lock_file_that_was_replaced_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between opening and locking its owner removed it, and another process has made one of that name."""
    data, lock = segment(tmp_path, f"fastdds_{ID}")
    real = fcntl.flock

    def replace_first(descriptor: int, operation: int) -> None:
        lock.unlink()
        lock.touch()
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", replace_first)
    assert remove_dead_segments(tmp_path) == 0
    assert data.exists()
    assert lock.exists()


def test_nothing_is_raised_and_the_time_is_bounded(tmp_path: Path) -> None:
    assert remove_dead_segments(tmp_path / "missing") == 0
    for number in range(200):
        segment(tmp_path, f"fastdds_{number:016x}")
    assert remove_dead_segments(tmp_path, time_limit_s=0.0) == 0
    before = time.monotonic()
    assert remove_dead_segments(tmp_path) == 200
    assert time.monotonic() - before < 1.0
