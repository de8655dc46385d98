"""What holds for every test: one thread, no screen, no other machine, our layer, a ROS domain of its own."""

from __future__ import annotations

import os

# Before anything imports torch, pygame or a DDS library; child processes inherit all of it.
os.environ["OMP_NUM_THREADS"] = "1"  # two threads beside a busy neighbour run far slower than one
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
os.environ.setdefault("MPLBACKEND", "Agg")
# Whatever the shell says: a test that is about one of these sets it.
os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
os.environ.update(
    dict.fromkeys(("ROS_LOCALHOST_ONLY", "ROS_STATIC_PEERS", "CYCLONEDDS_URI", "ROS_SECURITY_ENABLE"), "")
)
# A sourced ROS 2 puts rclpy on the path. `make test` is about our layer, `make test-rclpy` and `make test-ros` about
# rclpy.
os.environ["AURAS_ROS_BACKEND"] = os.environ.get("AURAS_ROS_BACKEND") or "dds"

import fcntl
import gc
import importlib.util
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

# pytest loads no plugin by itself (pyproject.toml says why): these are ours, where they are installed.
pytest_plugins = [name for name in ("_hypothesis_pytestplugin", "xdist.plugin")
                  if importlib.util.find_spec(name.partition(".")[0])]  # fmt: skip

if importlib.util.find_spec("hypothesis"):
    from hypothesis import HealthCheck, settings

    # On a busy machine how long an example takes says nothing of the code.
    settings.register_profile("auras", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("auras")

# Domains above 101 would reach into Linux's ephemeral ports; 40-99 belong to tests that choose their own.
DOMAINS = range(1, 40)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first, so that no worker is left alone with one at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    """What was imported is no garbage: a collection looks at what the tests made alone, and takes a tenth as long."""
    gc.freeze()


@cache
def has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips GPU tests by name; on a GPU they compare full float32 with the CPU's. torch is imported only for these: it
    costs seconds."""
    if item.get_closest_marker("gpu") is None:
        return
    if not has_gpu():
        pytest.skip("needs a CUDA GPU")
    import torch

    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False


@contextmanager
def held_domain(domains: range) -> Iterator[int]:
    """One of these ROS domains that no other test run on this machine holds, kept until the block ends."""
    for domain in domains:
        try:
            lock = (Path(tempfile.gettempdir()) / f"auras_ros_domain_{domain}.lock").open("w")
        except PermissionError:  # another user's
            continue
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield domain
            return
    pytest.fail(f"every ROS domain in {domains} is in use by another test run")


@pytest.fixture(scope="session")
def own_domain() -> Iterator[int]:
    with held_domain(DOMAINS) as domain:
        yield domain


@pytest.fixture
def ros_domain_id(own_domain: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """ROS_DOMAIN_ID set for one test and its children. Returns the domain."""
    monkeypatch.setenv("ROS_DOMAIN_ID", str(own_domain))
    return own_domain
