"""Fast DDS under rclpy: images arrive, LOCALHOST keeps the network out, whoever has its own settings finds our
processes, and the segments of killed processes go."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from auras_ros.ros import dead_segments, fastdds
from tests.conftest import held_domain
from tests.nodes.wire import Child, Watch

pytestmark = pytest.mark.skipif(fastdds.fastdds_version() == 0, reason="this run does not speak rclpy on Fast DDS")
HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DOMAINS = range(40, 50)
PATIENCE_S = 90.0
# Ten a second, so that a reader of a busy machine that keeps five may stand still for half a second. With its own
# settings Fast DDS loses most of them at any rate; docs/fastdds.md has the counts at thirty a second.
IMAGES = 30
LOST_AT_MOST = 2
PICTURES = (str(IMAGES), "640", "480", "10")
SMALL = ("20", "64", "48")  # images that arrive with any settings
NOT_INHERITED = (
    *fastdds.PROFILE_VARIABLE.values(), fastdds.OURS_VARIABLE, fastdds.TRANSPORTS_VARIABLE, *fastdds.SERVER_VARIABLES,
    fastdds.LOCALHOST_ONLY, "ROS_STATIC_PEERS", "SKIP_DEFAULT_XML_FILE",
)  # fmt: skip


class Peer:
    """One child process. `line` is its next line as a dictionary."""

    def __init__(self, environment: dict[str, str], *words: str) -> None:
        inherited = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.process = subprocess.Popen(
            [sys.executable, *words],
            env=inherited | {"PYTHONPATH": os.pathsep.join(paths)} | environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        text = "\n"
        while text and not text.startswith("{"):  # Fast DDS prints its own messages there
            text = self.process.stdout.readline()
        assert text, f"the process ended: {self.process.communicate()[1]}"
        fields: dict[str, Any] = json.loads(text)
        return fields

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()

    def end(self) -> None:
        """Ends as a process that was asked to."""
        _, errors = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0, errors


@pytest.fixture(scope="module")
def domain() -> Iterator[int]:
    with held_domain(DOMAINS) as number:
        yield number


@pytest.fixture
def start(domain: int) -> Iterator[Callable[..., Peer]]:
    """start(role, kind, discovery range, *words of the child): one that is killed at the test's end.

    kind: "ours" or "default" on rclpy, "dds" on our own layer.
    """
    started: list[Peer] = []

    def run(role: str, kind: str, discovery_range: str, *words: str, **environment: str) -> Peer:
        if kind == "dds" and importlib.util.find_spec("cyclonedds") is None:
            pytest.skip("cyclonedds is not installed")
        given = {
            "ROS_DOMAIN_ID": str(domain),
            fastdds.RANGE: discovery_range,
            "AURAS_ROS_BACKEND": "dds" if kind == "dds" else "rclpy",
        }
        child = HERE / "children" / "fastdds_peer.py"
        peer = Peer(given | environment, str(child), role, "default" if kind == "default" else "ours", *words)
        started.append(peer)
        return peer

    yield run
    for peer in started:
        peer.kill()


def play(writer: Peer, reader: Peer) -> dict[str, Any]:
    """Both have said what they are bound to; returns what the reader received."""
    assert writer.line()["matched"] == 1
    assert reader.line()["matched"] == 1
    writer.go()
    assert writer.line()["sent"] > 0
    return reader.line()


# --- images ---


@pytest.mark.parametrize(
    ("writes", "reads", "discovery_range"),
    [
        ("ours", "ours", "LOCALHOST"),
        ("ours", "ours", "SUBNET"),
        ("ours", "dds", "LOCALHOST"),
        ("dds", "ours", "LOCALHOST"),
    ],
)
def test_images_arrive(start: Callable[..., Peer], writes: str, reads: str, discovery_range: str) -> None:
    """Guards against Fast DDS's own settings, which lose nine of ten images of 640x480."""
    reader = start("reader", reads, discovery_range, *PICTURES)
    reader.line()
    writer = start("writer", writes, discovery_range, *PICTURES)
    writer.line()
    outcome = play(writer, reader)
    assert outcome["received"] >= IMAGES - LOST_AT_MOST, outcome
    writer.end()
    reader.end()


# --- who reaches whom ---


@pytest.mark.parametrize("role", ["writer", "reader"])
def test_with_localhost_no_socket_is_bound_elsewhere(start: Callable[..., Peer], role: str) -> None:
    """The range stays what it was for whoever looks: the profile confines, and only rclpy was told SUBNET."""
    said = start(role, "ours", "LOCALHOST").line()
    addresses = {address for address, _ in said["sockets"]}
    assert addresses == {"127.0.0.1"}
    assert said["discovery_range"] == "LOCALHOST"


def test_the_older_variable_confines_too(start: Callable[..., Peer]) -> None:
    said = start("node", "ours", "", ROS_LOCALHOST_ONLY="1").line()
    assert {address for address, _ in said["sockets"]} == {"127.0.0.1"}


def test_with_subnet_the_network_is_listened_to(start: Callable[..., Peer]) -> None:
    said = start("node", "ours", "SUBNET").line()
    assert "0.0.0.0" in {address for address, _ in said["sockets"]}


@pytest.mark.parametrize("ours_is_first", [True, False])
@pytest.mark.parametrize("ours_writes", [True, False])
@pytest.mark.parametrize(
    ("kind", "discovery_range"), [("default", "LOCALHOST"), ("default", "SUBNET"), ("dds", "LOCALHOST")]
)
def test_found_by_whoever_has_other_settings(
    start: Callable[..., Peer], kind: str, discovery_range: str, ours_writes: bool, ours_is_first: bool
) -> None:
    """A default Fast DDS and our own layer exchange messages with a process of ours, whichever starts first."""
    our_role = "writer" if ours_writes else "reader"
    their_role = "reader" if ours_writes else "writer"
    our_arguments = (our_role, "ours", "LOCALHOST", *SMALL)
    their_arguments = (their_role, kind, discovery_range, *SMALL)
    first, second = (our_arguments, their_arguments) if ours_is_first else (their_arguments, our_arguments)
    peers = {}
    for arguments in (first, second):
        peers[arguments[0]] = start(*arguments)
        peers[arguments[0]].line()
    assert play(peers["writer"], peers["reader"])["received"] > 0


def test_a_profile_that_fast_dds_cannot_read_ends_the_node(domain: int, tmp_path: Path) -> None:
    """It prints an error and goes on without the profile, on every interface: the node must not."""
    broken = tmp_path / "broken.xml"
    broken.write_text("<dds><nonsense>", encoding="utf-8")
    program = f"""
import sys
from pathlib import Path
from auras_ros.ros import Node, fastdds
from auras_ros.ros.process import run_node
fastdds.resources.find = lambda kind, name: Path({str(broken)!r})
class Started(Node):
    def start(self): print("started", flush=True)
    def working(self): return False
    def halt(self): pass
sys.exit(run_node(lambda asked: Started("broken"), (), argv=[]))
"""
    peer = Peer({"ROS_DOMAIN_ID": str(domain), fastdds.RANGE: "LOCALHOST"}, "-c", program)
    output, errors = peer.process.communicate(timeout=PATIENCE_S)
    assert "started" not in output
    assert peer.process.returncode == 2
    assert f"error: Fast DDS did not take {broken}: with LOCALHOST it is bound to 0.0.0.0:" in errors


def test_a_users_profile_is_left_alone(start: Callable[..., Peer], tmp_path: Path) -> None:
    """The user's has no interface list, and it is Fast DDS's own business what LOCALHOST means with it."""
    shipped = fastdds.resources.find("config", fastdds.SUBNET_PROFILE)
    users = tmp_path / "users.xml"
    users.write_text(shipped.read_text(encoding="utf-8"), encoding="utf-8")
    variable = fastdds.PROFILE_VARIABLE[fastdds.fastdds_version()]
    said = start("node", "ours", "LOCALHOST", **{variable: str(users)}).line()
    assert "0.0.0.0" in {address for address, _ in said["sockets"]}


def test_a_profile_of_a_parent_process_is_not_taken_for_another_range(start: Callable[..., Peer]) -> None:
    variable = fastdds.PROFILE_VARIABLE[fastdds.fastdds_version()]
    inherited = str(fastdds.resources.find("config", fastdds.LOCALHOST_PROFILE))
    for discovery_range in ("OFF", "SUBNET"):
        peer = start("node", "ours", discovery_range, **{variable: inherited, fastdds.OURS_VARIABLE: inherited})
        assert "0.0.0.0" in {address for address, _ in peer.line()["sockets"]}


@pytest.mark.parametrize("name", [fastdds.LOCALHOST_PROFILE, fastdds.SUBNET_PROFILE])
def test_localhost_confines_where_the_drivers_line_was_copied(start: Callable[..., Peer], name: str) -> None:
    variable = fastdds.PROFILE_VARIABLE[fastdds.fastdds_version()]
    said = start("node", "ours", "LOCALHOST", **{variable: str(fastdds.resources.find("config", name))}).line()
    assert {address for address, _ in said["sockets"]} == {"127.0.0.1"}


@pytest.mark.parametrize("discovery_range", ["", "LOCALHOST"])
def test_a_driver_with_the_line_of_doctor_sends_images(start: Callable[..., Peer], discovery_range: str) -> None:
    """A driver is no process of ours: it names the profile by Fast DDS's own variable, and often sets no range."""
    variable = fastdds.PROFILE_VARIABLE[fastdds.fastdds_version()]
    profile = str(fastdds.resources.find("config", fastdds.LOCALHOST_PROFILE))
    reader = start("reader", "ours", "LOCALHOST", *PICTURES)
    reader.line()
    driver = start("writer", "default", discovery_range, *PICTURES, **{variable: profile})
    bound_to = {address for address, _ in driver.line()["sockets"]}
    assert discovery_range or bound_to == {"127.0.0.1"}
    assert play(driver, reader)["received"] >= IMAGES - LOST_AT_MOST


# --- segments of killed processes ---


def segments_of(locks: list[str]) -> set[Path]:
    """Lock file and segment of those locks that belong to segments, not to ports."""
    names = {lock for lock in locks if dead_segments.LOCK_FILE.fullmatch(lock)}
    assert names, locks
    paths = {dead_segments.SHARED_MEMORY / name for name in names}
    return paths | {path.with_name(path.name.removesuffix(dead_segments.LOCK_SUFFIX)) for path in paths}


@pytest.mark.parametrize("kind", ["ours", "default"])
def test_the_next_start_removes_segments_of_the_killed_and_no_others(start: Callable[..., Peer], kind: str) -> None:
    living = start("node", kind, "LOCALHOST")
    of_the_living = segments_of(living.line()["locks"])
    dead = start("node", kind, "LOCALHOST")
    of_the_dead = segments_of(dead.line()["locks"])
    dead.kill()
    assert all(path.exists() for path in of_the_dead), "a killed process leaves its files: otherwise nothing is tested"
    assert {path.stat().st_mode & 0o777 for path in of_the_dead} == {0o644}  # what doctor says of who can read them
    next_one = start("node", "ours", "LOCALHOST")
    of_the_next = segments_of(next_one.line()["locks"])
    assert not [path for path in of_the_dead if path.exists()]
    assert all(path.exists() for path in of_the_living | of_the_next)
    next_one.end()
    living.end()


@pytest.fixture
def domain_is_set(domain: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROS_DOMAIN_ID", str(domain))


def test_the_actuator_uses_no_shared_memory(domain_is_set: None, actuator: Callable[..., Child], watch: Watch) -> None:
    """Guards against ticks that wait a third of a second for the port of a process that was just discovered."""
    child = actuator()
    watch.until(lambda: watch.states, "the actuator's state")
    maps = Path(f"/proc/{child.pid}/maps").read_text(encoding="utf-8")
    assert "librmw_fastrtps" in maps
    assert "/dev/shm/fast" not in maps
