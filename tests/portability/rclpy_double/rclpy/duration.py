"""rclpy.duration."""

from __future__ import annotations

from typing import Any

from rclpy_recording import strict


@strict
class Duration:
    def __init__(self, *, seconds: float = 0, nanoseconds: int = 0) -> None:
        self.nanoseconds = int(seconds * 10**9) + int(nanoseconds)

    def to_msg(self) -> Any:
        from builtin_interfaces.msg import Duration as Message

        sec, nanosec = divmod(self.nanoseconds, 10**9)
        return Message(sec=sec, nanosec=nanosec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Duration) and self.nanoseconds == other.nanoseconds

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Duration(nanoseconds={self.nanoseconds})"
