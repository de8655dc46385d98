"""Writes DISTRIBUTION.txt beside this file: the exact wheels, with hashes, that `make test-rclpy` installs.

    python scripts/rclpy/lock.py jazzy
    python scripts/rclpy/lock.py kilted

Run it with Python 3.11 when a newer rclpy should be tested. The wheels are somebody's builds of ROS 2 for
Linux on x86-64, not ROS's own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PYTHONS = ("3.11", "3.12", "3.13")  # those that `make test` supports
PACKAGES = {
    "jazzy": "ros-jazzy-rclpy[fastrtps]==7.1.6",
    "kilted": "ros-kilted-rclpy[fastrtps]==9.1.2",
}
MESSAGES = (
    "builtin-interfaces", "diagnostic-msgs", "geometry-msgs", "lifecycle-msgs", "rcl-interfaces", "rosgraph-msgs",
    "sensor-msgs", "std-msgs", "std-srvs", "trajectory-msgs",
)  # fmt: skip
# Left out: what .venv has, which the environment sees; and a template language without a wheel, which no node needs.
LEFT_OUT = ("numpy", "pyyaml", "setuptools", "empy")


def report(*words: str) -> list[dict[str, Any]]:
    """The packages that `pip install` with these words would install, as pip describes them."""
    options = ["--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    command = [sys.executable, "-m", "pip", "install", *options, *words]
    listed: list[dict[str, Any]] = json.loads(
        subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    )["install"]
    return listed


def versions(distribution: str) -> list[str]:
    """Every package that is installed, as `name==version`."""
    wanted = [PACKAGES[distribution], *(f"ros-{distribution}-{name}" for name in MESSAGES)]
    pinned = [(item["metadata"]["name"], item["metadata"]["version"]) for item in report(*wanted)]
    return sorted(f"{name}=={version}" for name, version in pinned if name.lower() not in LEFT_OUT)


def lock(distribution: str) -> str:
    """The file's text: one line a package, with the hash of its wheel for each Python."""
    packages = versions(distribution)
    hashes: dict[str, set[str]] = {package: set() for package in packages}
    for python in PYTHONS:
        options = ["--no-deps", "--only-binary", ":all:", "--python-version", python, "--target", "unused"]
        for item in report(*options, *packages):
            package = f"{item['metadata']['name']}=={item['metadata']['version']}"
            hashes[package].add(item["download_info"]["archive_info"]["hashes"]["sha256"])
    lines = [f"# python scripts/rclpy/lock.py {distribution}"]
    for package, digests in hashes.items():
        lines.append(" ".join((package, *(f"--hash=sha256:{digest}" for digest in sorted(digests)))))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (Path(__file__).parent / f"{sys.argv[1]}.txt").write_text(lock(sys.argv[1]), encoding="utf-8")
