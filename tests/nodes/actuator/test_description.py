"""A description is read by another process: what it finds comes back, whatever comes meanwhile and whoever ends it."""

from __future__ import annotations

import errno
import math
import os
import select
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from auras_ros.action import ContractError
from auras_ros.action.urdf import JointLimit
from auras_ros.nodes.actuator import robot_description as module
from auras_ros.nodes.actuator.robot_description import TRIES, DescriptionReader

PATIENCE_S = 60.0
JOINT = '<joint name="{}" type="prismatic"><limit lower="0" upper="{}" velocity="2" effort="1"/></joint>'


def robot(upper: float) -> bytes:
    return f'<robot name="r">{JOINT.format("a", upper)}{JOINT.format("other", 5)}</robot>'.encode()


@pytest.fixture
def reader() -> Iterator[DescriptionReader]:
    made = DescriptionReader(["a", "b"])
    yield made
    made.close()


def found(reader: DescriptionReader) -> dict[str, JointLimit]:
    """What it finds, each time that the process which reads has ended."""
    limits = None
    while limits is None:
        process = os.pidfd_open(reader._pid)
        ended, _, _ = select.select([process], [], [], PATIENCE_S)
        os.close(process)
        assert ended
        limits = reader.poll()
    return limits


def test_the_limits_of_the_joints_that_are_asked_for_come_back_once(reader: DescriptionReader) -> None:
    reader.read(robot(1.5))
    assert reader.busy
    assert found(reader) == {"a": JointLimit("prismatic", 0.0, 1.5, 2.0, 1.0)}
    assert not reader.busy
    assert reader.poll() is None


def test_those_that_come_meanwhile_keep_nobody_from_the_limits(reader: DescriptionReader) -> None:
    """Each is found, or a newer one: never none at all, however many come."""
    for upper in (1.0, 2.0, 3.0):
        reader.read(robot(upper))
    assert found(reader)["a"].upper == 1.0
    assert found(reader)["a"].upper == 3.0


def test_what_is_wrong_with_it_is_said(reader: DescriptionReader) -> None:
    reader.read(b"<robot><joint/></robot>")
    with pytest.raises(ContractError, match="a joint without a name"):
        found(reader)


def test_a_reader_that_was_ended_says_nothing_of_the_text(reader: DescriptionReader) -> None:
    reader.read(robot(1.5))
    os.kill(reader._pid, signal.SIGKILL)
    assert found(reader)["a"].upper == 1.5


def test_its_process_is_begun_at_once_and_steps_back_itself(
    reader: DescriptionReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beginning it keeps the interpreter: one that stepped back before it had begun would wait among everybody's work,
    and all threads of this process with it."""
    attributes: list[set[str]] = []

    def spawn(*words: Any, spawn: Any = os.posix_spawn, **given: Any) -> int:
        attributes.append(set(given))
        return int(spawn(*words, **given))

    monkeypatch.setattr(os, "posix_spawn", spawn)
    answer = "import json; json.dump({'limits': {'a': {'type': str(os.sched_getscheduler(0))}}}, sys.stdout)"
    begin, _, _ = reader._command[2].partition("from auras_ros")  # before it imports anything that is large
    reader._command[2] = begin + answer
    before, given = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))  # which nobody is refused, unlike a real-time one
        reader.read(robot(1.5))
    finally:
        os.sched_setscheduler(0, before, given)
    assert found(reader)["a"].type == str(os.SCHED_OTHER)
    assert attributes == [{"file_actions", "setsid"}]


def test_one_that_nobody_could_read_is_tried_again_later(
    reader: DescriptionReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards against an actuator that cannot be armed for as long as it lives, because the machine was busy when the
    description came. Nobody waits for what may never be read."""
    monkeypatch.setattr(module, "LATER_S", 0.05)
    reads, reader._command[2] = reader._command[2], "import time; time.sleep(60)"  # it must not answer before its end
    reader.read(robot(1.5))
    for _ in range(TRIES - 1):
        killed(reader)
        assert reader.poll() is None
        assert reader.busy
    for code in (reader._command[2], reads):
        killed(reader)
        with pytest.raises(ContractError, match="its reader ended with status -9"):
            reader.poll()
        assert not reader.busy
        reader._command[2] = code
        begun(reader)
        assert not reader.busy
    assert found(reader)["a"].upper == 1.5
    assert reader._again_s == math.inf


def test_what_is_wrong_with_the_text_is_not_tried_again(reader: DescriptionReader) -> None:
    reader.read(b"<robot><joint/></robot>")
    with pytest.raises(ContractError, match="a joint without a name"):
        found(reader)
    assert reader._again_s == math.inf


def test_one_for_which_no_process_could_be_made_is_tried_again_later(
    reader: DescriptionReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LATER_S", 0.05)

    def full(*_: object, **__: object) -> int:
        raise OSError(errno.EAGAIN, "no process can be made")

    with monkeypatch.context() as machine:
        machine.setattr(os, "posix_spawn", full)
        with pytest.raises(OSError, match="no process"):
            reader.read(robot(1.5))
    begun(reader)
    assert found(reader)["a"].upper == 1.5


def killed(reader: DescriptionReader) -> None:
    """The process that reads is ended from outside, and can be waited for."""
    process = os.pidfd_open(reader._pid)
    os.kill(reader._pid, signal.SIGKILL)
    select.select([process], [], [], PATIENCE_S)
    os.close(process)


def begun(reader: DescriptionReader) -> None:
    """Until a later try has begun."""
    end_s = time.monotonic() + PATIENCE_S
    while not reader._pid:
        assert time.monotonic() < end_s
        assert reader.poll() is None
        time.sleep(0.01)
