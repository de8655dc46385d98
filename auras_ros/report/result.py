"""One form for every result: what was run, where, with which versions, the rows and the main figures."""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from auras_ros import __version__

PACKAGES = ("torch", "triton", "numba", "numpy", "cyclonedds", "rosbags", "gym-pusht")
CPUINFO = Path("/proc/cpuinfo")
Say = Callable[[str], None]  # tells the user what is being measured


def remaining(seconds: float) -> str:
    """A remaining time in words, for progress."""
    return f"about {seconds:.0f} s left" if seconds < 90 else f"about {seconds / 60:.0f} min left"


@dataclass
class Report:
    """`rows`: flat objects; `summary`: a flat object of numbers; `more`: further keys of a bench."""

    name: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, float] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "hardware": hardware(),
            "versions": versions(),
            "rows": self.rows,
            "summary": self.summary,
            **self.more,
        }

    def fail(self, name: str, why: object) -> None:
        """Note a failure: the bench will end with status 1, after everything else."""
        self._note("failed", name, (str(why).splitlines() or [repr(why)])[0])

    def leave_out(self, name: str, why: str) -> None:
        self._note("left_out", name, why)

    def disturb(self, name: str, notes: Iterable[str]) -> None:
        """Note that something else used the machine during this measurement, with the evidence, each note once."""
        for text in dict.fromkeys(notes):
            self._note("disturbed", name, text)

    def _note(self, kind: str, name: str, text: str) -> None:
        self.more.setdefault(kind, []).append(f"{name}: {text}")

    def write(self, path: Path) -> None:
        """Write the JSON atomically. Raises ValueError for NaN or infinity, which JSON does not have."""
        write_whole(path, json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n")


def write_whole(path: Path, text: str) -> None:
    """Write a file atomically. Raises OSError with the file's name, which the error of a full disk lacks."""
    temporary = path.with_name(path.name + ".partial")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def unwritable(path: Path) -> str:
    """Why no file can be written here; empty if one can. To be checked before long work, not after it."""
    if path.is_dir():
        return f"{path} is a folder"
    if not path.parent.is_dir():
        return f"no folder {path.parent}"
    try:
        with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}."):  # checking permissions is not enough
            return ""
    except OSError as error:
        return f"{path}: {error.strerror}"


def hardware() -> dict[str, Any]:
    """Processor, cores that this process may use, memory, kernel; the GPU if torch is loaded and finds one, with its
    CUDA_DEVICE_MAX_CONNECTIONS."""
    model = platform.processor() or platform.machine()
    if CPUINFO.exists():
        names = [line.split(":", 1)[1].strip() for line in CPUINFO.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    found = {"cpu": model, "cores": len(os.sched_getaffinity(0)), "memory_gib": round(pages * page / 2**30, 1)}
    torch = sys.modules.get("torch")
    found |= {"kernel": platform.release().split("-")[0], "gpu": None}
    if torch is None or not torch.cuda.is_available():
        return found
    connections = os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS", "")
    return {**found, "gpu": torch.cuda.get_device_name(0), "cuda_device_max_connections": connections}


def versions() -> dict[str, str]:
    """Versions of Python and of the installed packages that a figure may depend on."""
    found = {"auras_ros": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def key(text: str) -> str:
    """A name as it is written in the keys of a summary."""
    return text.replace("-", "_").replace(".", "_")
