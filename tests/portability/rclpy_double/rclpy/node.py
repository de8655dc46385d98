"""rclpy.node. Only what rclpy 7.1 has, by its signatures; what a node may not touch is refused by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from rclpy_recording import changed, refuse, strict

from .callback_groups import CallbackGroup
from .clock import Clock
from .clock_type import ClockType
from .context import Context
from .entities import Client, Publisher, Service, Subscription, Timer
from .event_handler import PublisherEventCallbacks, SubscriptionEventCallbacks
from .exceptions import NotInitializedException
from .logging import RcutilsLogger, get_logger
from .names import is_node_name, remap_node
from .node_graph import Graph, nodes
from .node_parameters import Declared
from .parameter import Parameter
from .parameters import Parameters
from .qos import QoSProfile, qos_profile_services_default
from .reserved import RESERVED
from .utilities import get_default_context

E = TypeVar("E")
made: list[tuple[str, Any]] = []  # (name of the node, entity) of all that was ever created


@strict
class Node(Declared, Graph):
    KNOWN_AS = "rclpy.node.Node"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in vars(cls).keys() & RESERVED:
            if not cls.__module__.startswith("rclpy."):
                refuse(f"{cls.__name__}.{name}: rclpy.node.Node keeps something of its own under this name")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in RESERVED:
            refuse(f"{type(self).__name__}.{name}: rclpy.node.Node keeps something of its own under this name")
        super().__setattr__(name, value)

    def __init__(
        self,
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
    ) -> None:
        self._double_context = get_default_context() if context is None else context
        if not self._double_context.ok():
            raise NotInitializedException("cannot create node")
        if not is_node_name(node_name):
            refuse(f"rclpy.node.Node: node name {node_name!r}")
        self._double_remaps = self._double_context._remaps if use_global_arguments else []
        name, space = remap_node(node_name, namespace or "", self._double_remaps)
        self._double_name, self._double_namespace = name, "/" + space.strip("/")
        overrides = dict(self._double_context._parameters) if use_global_arguments else {}
        overrides |= {each.name: each.value for each in parameter_overrides or []}
        self._double_parameters = Parameters(overrides)
        self._double_entities: list[Any] = []
        self._double_clock = Clock(clock_type=ClockType.ROS_TIME)
        self._double_logger = get_logger(self.get_fully_qualified_name().strip("/").replace("/", "."))
        if automatically_declare_parameters_from_overrides:
            for name, value in overrides.items():
                self.declare_parameter(name, value)
        if "use_sim_time" not in self._double_parameters.values:
            self.declare_parameter("use_sim_time", False)
        nodes.append(self)

    # -- what it is -----------------------------------------------------------------------------------------

    def get_name(self) -> str:
        return self._double_name

    def get_namespace(self) -> str:
        return self._double_namespace

    def get_fully_qualified_name(self) -> str:
        return f"{self._double_namespace.rstrip('/')}/{self._double_name}"

    def get_clock(self) -> Clock:
        return self._double_clock

    def get_logger(self) -> RcutilsLogger:
        return self._double_logger

    @property
    def context(self) -> Context:
        return self._double_context

    @property
    def publishers(self) -> Iterator[Publisher]:
        yield from self._made(Publisher)

    @property
    def subscriptions(self) -> Iterator[Subscription]:
        yield from self._made(Subscription)

    @property
    def services(self) -> Iterator[Service]:
        yield from self._made(Service)

    @property
    def clients(self) -> Iterator[Client]:
        yield from self._made(Client)

    @property
    def timers(self) -> Iterator[Timer]:
        yield from self._made(Timer)

    def _made(self, kind: type) -> list[Any]:
        return [each for each in self._double_entities if isinstance(each, kind)]

    def _add(self, entity: E) -> E:
        with changed:
            self._double_entities.append(entity)
            made.append((self._double_name, entity))
            changed.notify_all()
        return entity

    # -- what it makes --------------------------------------------------------------------------------------

    def create_publisher(
        self,
        msg_type: type,
        topic: str,
        qos_profile: QoSProfile | int,
        *,
        callback_group: CallbackGroup | None = None,
        event_callbacks: PublisherEventCallbacks | None = None,
        qos_overriding_options: Any = None,
        publisher_class: type[Publisher] = Publisher,
    ) -> Publisher:
        _message_type(msg_type, "create_publisher")
        events = event_callbacks or PublisherEventCallbacks()
        return self._add(publisher_class(self, msg_type, topic, _qos(qos_profile), events, callback_group))

    def create_subscription(
        self,
        msg_type: type,
        topic: str,
        callback: Callable[..., Any],
        qos_profile: QoSProfile | int,
        *,
        callback_group: CallbackGroup | None = None,
        event_callbacks: SubscriptionEventCallbacks | None = None,
        qos_overriding_options: Any = None,
        raw: bool = False,
    ) -> Subscription:
        _message_type(msg_type, "create_subscription")
        events = event_callbacks or SubscriptionEventCallbacks()
        return self._add(
            Subscription(
                self, msg_type, topic, callback, callback_group, _qos(qos_profile), raw, event_callbacks=events
            )
        )

    def create_client(
        self,
        srv_type: type,
        srv_name: str,
        *,
        qos_profile: QoSProfile = qos_profile_services_default,
        callback_group: CallbackGroup | None = None,
    ) -> Client:
        _service_type(srv_type, "create_client")
        return self._add(Client(self._double_context, self, srv_type, srv_name, qos_profile, callback_group))

    def create_service(
        self,
        srv_type: type,
        srv_name: str,
        callback: Callable[..., Any],
        *,
        qos_profile: QoSProfile = qos_profile_services_default,
        callback_group: CallbackGroup | None = None,
    ) -> Service:
        _service_type(srv_type, "create_service")
        return self._add(Service(self, srv_type, srv_name, callback, callback_group, qos_profile))

    def create_timer(
        self,
        timer_period_sec: float,
        callback: Callable[..., Any],
        callback_group: CallbackGroup | None = None,
        clock: Clock | None = None,
        autostart: bool = True,
    ) -> Timer:
        period_ns = int(float(timer_period_sec) * 10**9)
        clock = clock or self._double_clock
        return self._add(
            Timer(callback, callback_group, period_ns, clock, context=self._double_context, autostart=autostart)
        )

    def destroy_publisher(self, publisher: Publisher) -> bool:
        return self._drop(publisher)

    def destroy_subscription(self, subscription: Subscription) -> bool:
        return self._drop(subscription)

    def destroy_client(self, client: Client) -> bool:
        return self._drop(client)

    def destroy_service(self, service: Service) -> bool:
        return self._drop(service)

    def destroy_timer(self, timer: Timer) -> bool:
        return self._drop(timer)

    def _drop(self, entity: Any) -> bool:
        known = entity in self._double_entities
        if known:
            self._double_entities.remove(entity)
            entity.destroy()
        return known

    def destroy_node(self) -> None:
        while self._double_entities:
            self._drop(self._double_entities[0])


def _qos(profile: QoSProfile | int) -> QoSProfile:
    return profile if isinstance(profile, QoSProfile) else QoSProfile(depth=profile)


def _message_type(msg_type: type, call: str) -> None:
    if not msg_type.__module__.endswith(".msg"):
        refuse(f"rclpy.node.Node.{call}: msg_type: {msg_type} is no message")


def _service_type(srv_type: type, call: str) -> None:
    if not hasattr(srv_type, "IS_SERVICE"):
        refuse(f"rclpy.node.Node.{call}: srv_type: {srv_type} is no service")
