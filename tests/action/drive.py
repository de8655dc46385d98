"""What the tests of this room do with a stream again and again."""

from __future__ import annotations

from typing import Any

from auras_ros.action import ActionStream, ChunkRefusal


def run(stream: ActionStream, *times_ns: int) -> list[float | None]:
    """Tick at these times; the first channel's value of each command, None where nothing is published."""
    commands = [stream.tick(now_ns) for now_ns in times_ns]
    return [float(command.values[0]) if command.publish else None for command in commands]


def refusal(verdict: Any) -> ChunkRefusal:
    """The reason of a verdict, which must be a refusal."""
    assert not verdict.ok, verdict
    return verdict.reason
