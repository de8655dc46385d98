"""rclpy.utilities."""

from __future__ import annotations

from rclpy_recording import recorded

from .context import Context

_default = Context()


def get_default_context(*, shutting_down: bool = False) -> Context:
    return _default


@recorded
def ok(*, context: Context | None = None) -> bool:
    return (context or _default).ok()


@recorded
def shutdown(*, context: Context | None = None) -> None:
    (context or _default).shutdown()


@recorded
def try_shutdown(*, context: Context | None = None) -> None:
    (context or _default).try_shutdown()


@recorded
def remove_ros_args(args: list[str] | None = None) -> list[str]:
    kept, ours = list[str](), False
    for word in args or []:
        ours = word == "--ros-args" or (ours and word != "--")
        if not ours and word != "--":
            kept.append(word)
    return kept


def get_rmw_implementation_identifier() -> str:
    return "rmw_double"
