"""A peer's process that answers, refuses, dies, hangs or talks nonsense: an error by name, and nothing left running.

Guards: a bench that waits for ever; a process, or one that it started, that outlives the bench; a traceback where a
line would do; our own package on the path of the other's Python.
"""

from __future__ import annotations

import importlib.util
import math
import os
import select
import sys
import time
from pathlib import Path

import pytest

from auras_ros.bench.peers import process
from auras_ros.bench.peers.process import PeerError, PeerProcess, PeerRefusedError
from auras_ros.measure.minutes import OverError

SHELL = Path("/bin/sh")


def peer(tmp_path: Path, script: str, limit_s: float = 30.0, end_s: float = math.inf) -> PeerProcess:
    """A peer that is a shell script."""
    worker = tmp_path / "peer.sh"
    worker.write_text(script, encoding="utf-8")
    return PeerProcess("other", SHELL, limit_s, worker, end_s)


def test_each_request_has_its_answer(tmp_path: Path) -> None:
    script = """while read -r line; do echo "$line" | sed 's/"do"/"did"/'; done"""
    with peer(tmp_path, script) as other:
        assert other.ask("make", "did", seed=3) == {"did": "make", "seed": 3}
        assert other.ask("time") == {"did": "time"}


def test_a_refusal_is_told_and_the_peer_can_be_asked_again(tmp_path: Path) -> None:
    with peer(tmp_path, """read line; echo '{"error": "no compiler"}'; read line; echo '{}'; read line""") as other:
        with pytest.raises(PeerRefusedError, match="other: compile: no compiler"):
            other.ask("compile", "seconds")
        assert other.ask("time") == {}


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "read line; echo one >&2; echo why >&2; exit 3",
            r"other: make: the process ended with status 3\n  one\n  why\Z",
        ),
        ("read line; kill -9 $$", "other: make: the process ended with signal 9$"),
        ("exit 4", "other: make: the process ended with status 4$"),
        ("read line; echo Loading weights; read line", "other: make: not an answer with million: b'Loading weights"),
        ("read line; echo '[1]'; read line", "other: make: not an answer with million"),
        ("""read line; echo '{"steps": 3}'; read line""", "other: make: not an answer with million"),
        ("read line; exec >&-; read line", "other: make: the process ended with closed output but no exit status"),
    ],
)
def test_what_is_no_answer(tmp_path: Path, script: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "ENDING_S", 2.0 if "exec" not in script else 0.1)
    with peer(tmp_path, script) as other, pytest.raises(PeerError, match=said) as error:
        other.ask("make", "million")
    assert not isinstance(error.value, PeerRefusedError)


def test_a_list_is_no_answer(tmp_path: Path) -> None:
    """Even where nothing is needed of it."""
    with (
        peer(tmp_path, "read line; echo '[]'; read line") as other,
        pytest.raises(PeerError, match="not an answer: b'"),
    ):
        other.ask("observe")


def test_one_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    with peer(tmp_path, "sleep 600", limit_s=0.2) as other, pytest.raises(PeerError, match=r"no answer within 0.2 s"):
        other.ask("make")


def test_one_that_has_not_answered_when_the_minutes_are_over_is_no_failure(tmp_path: Path) -> None:
    """Its limit is half an hour by itself."""
    with peer(tmp_path, "sleep 600", end_s=time.monotonic() + 0.2) as other, pytest.raises(OverError):
        other.ask("make")


def test_nothing_that_it_started_is_left(tmp_path: Path) -> None:
    """A child of the peer holds one end of a pipe: it is closed when both are gone."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    other = peer(tmp_path, f"sleep 600 > {pipe} &\nread line; echo '{{}}'; sleep 600")
    with open(pipe, "rb") as end:
        other.ask("make")
        assert not select.select([end], [], [], 0)[0]
        other.close()
        assert select.select([end], [], [], 30)[0]
        assert end.read() == b""
    with pytest.raises(ProcessLookupError):
        os.kill(other.pid, 0)
    other.close()


def test_it_shares_our_session(tmp_path: Path) -> None:
    """The kernel may share out the processor by session: neither side is to have a larger part."""
    with peer(tmp_path, "read line; echo '{}'; read line") as other:
        other.ask("hello")
        assert os.getsid(other.pid) == os.getsid(0)
        assert os.getpgid(other.pid) == other.pid


def test_a_python_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match=r"other: .*/python cannot be started: No such file or directory"):
        PeerProcess("other", tmp_path / "python", 1.0)


def test_it_has_one_thread_and_not_our_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/ours")
    script = """read line; echo "{\\"path\\": \\"$PYTHONPATH\\", \\"threads\\": \\"$OMP_NUM_THREADS\\"}"; read line"""
    with peer(tmp_path, script) as other:
        assert other.ask("hello") == {"path": "", "threads": "1"}


def test_the_worker_without_lerobot_says_so() -> None:
    """The real one, in an environment without it; what it prints besides goes elsewhere."""
    if importlib.util.find_spec("lerobot") is not None:
        pytest.skip("LeRobot is installed here")
    with PeerProcess("lerobot", Path(sys.executable), 120.0) as worker:
        for _ in range(2):
            with pytest.raises(
                PeerRefusedError, match="lerobot: hello: ModuleNotFoundError: no module named 'lerobot'"
            ):
                worker.ask("hello", "versions")
