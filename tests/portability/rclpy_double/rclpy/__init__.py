"""A recording double of rclpy 7.1 (Jazzy): its public names and signatures, and nothing else.

It stands before every other rclpy on sys.path, takes exactly what rclpy takes, refuses everything else by the name
of the call, and talks to no network. Behaviour is there as far as the nodes need it to run.
"""

from __future__ import annotations

import ros_messages

ros_messages.install()

from rclpy_recording import recorded  # noqa: E402

from .context import Context  # noqa: E402
from .executors import SingleThreadedExecutor  # noqa: E402
from .node import Node  # noqa: E402
from .parameter import Parameter  # noqa: E402
from .signals import SignalHandlerOptions, install_signal_handlers, uninstall_signal_handlers  # noqa: E402
from .task import Future  # noqa: E402
from .utilities import get_default_context, ok  # noqa: E402
from .utilities import shutdown as _shutdown  # noqa: E402
from .utilities import try_shutdown as _try_shutdown  # noqa: E402


@recorded
def init(
    *,
    args: list[str] | None = None,
    context: Context | None = None,
    domain_id: int | None = None,
    signal_handler_options: SignalHandlerOptions | None = None,
) -> None:
    (context or get_default_context()).init(args, domain_id=domain_id)
    default = SignalHandlerOptions.ALL if context is None else SignalHandlerOptions.NO
    install_signal_handlers(default if signal_handler_options is None else signal_handler_options)


@recorded
def shutdown(*, context: Context | None = None, uninstall_handlers: bool | None = None) -> None:
    _shutdown(context=context)
    uninstall_signal_handlers()


@recorded
def try_shutdown(*, context: Context | None = None) -> None:
    _try_shutdown(context=context)
    uninstall_signal_handlers()


@recorded
def create_node(
    node_name: str,
    *,
    context: Context | None = None,
    cli_args: list[str] | None = None,
    namespace: str | None = None,
    use_global_arguments: bool = True,
    enable_rosout: bool = True,
    start_parameter_services: bool = True,
    parameter_overrides: list[Parameter] | None = None,
    allow_undeclared_parameters: bool = False,
    automatically_declare_parameters_from_overrides: bool = False,
    enable_logger_service: bool = False,
) -> Node:
    return Node(
        node_name,
        context=context,
        namespace=namespace,
        parameter_overrides=parameter_overrides,
        automatically_declare_parameters_from_overrides=automatically_declare_parameters_from_overrides,
    )


@recorded
def spin_once(node: Node, *, executor: SingleThreadedExecutor | None = None, timeout_sec: float | None = None) -> None:
    runner = executor or SingleThreadedExecutor()
    runner.add_node(node)
    try:
        runner.spin_once(timeout_sec=timeout_sec)
    finally:
        runner.remove_node(node)


@recorded
def spin(node: Node, executor: SingleThreadedExecutor | None = None) -> None:
    runner = executor or SingleThreadedExecutor()
    runner.add_node(node)
    try:
        while runner.context.ok():
            runner.spin_once()
    finally:
        runner.remove_node(node)


@recorded
def spin_until_future_complete(
    node: Node, future: Future, executor: SingleThreadedExecutor | None = None, timeout_sec: float | None = None
) -> None:
    runner = executor or SingleThreadedExecutor()
    runner.add_node(node)
    try:
        runner.spin_until_future_complete(future, timeout_sec)
    finally:
        runner.remove_node(node)


__all__ = [
    "Context", "Future", "Node", "Parameter", "SignalHandlerOptions", "create_node", "get_default_context", "init",
    "ok", "shutdown", "spin", "spin_once", "spin_until_future_complete", "try_shutdown",
]  # fmt: skip
