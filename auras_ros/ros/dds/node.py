"""The node: names, publishers, subscriptions, services, clients, timers and parameters, as rclpy's Node.

It creates entities and closes them; the executor runs them. The parameter services, /parameter_events and /rosout,
which rclpy gives every node, are built from the same parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from . import names
from .arguments import for_node
from .clock import Clock, ClockType
from .context import Context, get_default_context
from .events import PublisherEventCallbacks, SubscriptionEventCallbacks
from .graph import TopicEndpointInfo
from .logger import RcutilsLogger
from .parameter import Parameter
from .parameter_services import ParameterEvents, serve_parameters
from .parameters import NodeParameters
from .params_file import overrides_for
from .pubsub import Owner, Publisher, Subscription
from .qos import QoSProfile, qos_profile_rosout_default, qos_profile_services_default
from .rosout import Rosout
from .service import Client, Service
from .timer import Timer
from .timesource import TimeSource

if TYPE_CHECKING:
    from .executor import SingleThreadedExecutor, Waitable

_KINDS = (Timer, Service, Client, Subscription, Publisher)  # what a node creates, in the order in which they are closed
_Made = TypeVar("_Made", Publisher, Subscription, Service, Client, Timer)


class Node(NodeParameters):
    """One node of the ROS graph. Entities may be created and destroyed from any thread."""

    def __init__(
        self,
        node_name: str,
        *,
        context: Context | None = None,
        cli_args: Sequence[str] | None = None,
        namespace: str | None = None,
        use_global_arguments: bool = True,
        enable_rosout: bool = True,
        rosout_qos_profile: QoSProfile | int = qos_profile_rosout_default,
        start_parameter_services: bool = True,
        parameter_overrides: list[Parameter] | None = None,
        allow_undeclared_parameters: bool = False,
        automatically_declare_parameters_from_overrides: bool = False,
    ) -> None:
        self.context = context or get_default_context()
        arguments = for_node(cli_args, self.context.arguments if use_global_arguments else None)
        self._remaps = arguments.remaps
        name, space = names.remap_node(node_name, names.normalize_namespace(namespace), self._remaps)
        self._name, self._namespace = names.check_node_name(name), names.normalize_namespace(space)
        self._logger = RcutilsLogger(self.get_fully_qualified_name().strip("/").replace("/", "."))
        self._entity_owner = Owner(self.context.participant, self._logger)
        self.executor: SingleThreadedExecutor | None = None
        self._entities: dict[type, list[Any]] = {kind: [] for kind in _KINDS}
        self._destroyed = False
        self._clock = Clock(clock_type=ClockType.ROS_TIME)
        overrides = overrides_for(arguments.parameters, self.get_fully_qualified_name())
        overrides |= {each.name: each.value for each in parameter_overrides or ()}
        if not self.context.graph.add_node(self._namespace, self._name):
            self._logger.warning(f"this process already has a node {self.get_fully_qualified_name()}")
        logs = enable_rosout and arguments.rosout
        self._rosout = Rosout(self, QoSProfile.coerce(rosout_qos_profile)) if logs else None
        self._init_parameters(overrides, ParameterEvents(self).publish, allow_undeclared_parameters)
        self._time_source = TimeSource(self, self._clock)
        if automatically_declare_parameters_from_overrides:
            for parameter in overrides.keys() - self._parameter_values.keys():
                self.declare_parameter(parameter, overrides[parameter])
        if start_parameter_services:
            serve_parameters(self)

    def get_name(self) -> str:
        return self._name

    def get_namespace(self) -> str:
        return self._namespace

    def get_fully_qualified_name(self) -> str:
        return names.fully_qualified(self._namespace, self._name)

    def get_logger(self) -> RcutilsLogger:
        return self._logger

    def get_clock(self) -> Clock:
        """The node's ROS clock: system time, or /clock while `use_sim_time` is true."""
        return self._clock

    @property
    def publishers(self) -> Iterator[Publisher]:
        yield from self._entities[Publisher]

    @property
    def subscriptions(self) -> Iterator[Subscription]:
        yield from self._entities[Subscription]

    @property
    def services(self) -> Iterator[Service]:
        yield from self._entities[Service]

    @property
    def timers(self) -> Iterator[Timer]:
        yield from list(self._entities[Timer])

    def waitables(self) -> Iterator[Waitable]:
        """The entities that an executor has to watch for this node."""
        for kind in (Subscription, Service, Client):
            yield from list(self._entities[kind])
        with_events = [made for kind in (Publisher, Subscription, Service) for made in self._entities[kind]]
        yield from [made.events for made in with_events if made.events.wanted]

    def resolve_topic_name(self, topic: str, *, only_expand: bool = False) -> str:
        """The absolute name of a topic after expansion and (unless only_expand) remapping."""
        return self._resolve(topic, "topic", only_expand)

    def resolve_service_name(self, service: str, *, only_expand: bool = False) -> str:
        return self._resolve(service, "service", only_expand)

    def _resolve(self, name: str, what: str, only_expand: bool) -> str:
        absolute = names.expand(name, self._namespace, self._name, what)
        return absolute if only_expand else names.remap(absolute, self._remaps, self._namespace, self._name, what)

    def count_publishers(self, topic_name: str) -> int:
        """How many publishers a topic has, in all processes."""
        return len(self.get_publishers_info_by_topic(topic_name))

    def count_subscribers(self, topic_name: str) -> int:
        return len(self.get_subscriptions_info_by_topic(topic_name))

    def get_publishers_info_by_topic(self, topic_name: str, no_mangle: bool = False) -> list[TopicEndpointInfo]:
        """The publishers of a topic with their nodes, in all processes."""
        return self.context.graph.endpoints_of(self.resolve_topic_name(topic_name), publishers=True)

    def get_subscriptions_info_by_topic(self, topic_name: str, no_mangle: bool = False) -> list[TopicEndpointInfo]:
        return self.context.graph.endpoints_of(self.resolve_topic_name(topic_name), publishers=False)

    def get_node_names_and_namespaces(self) -> list[tuple[str, str]]:
        return self.context.graph.nodes()

    def get_node_names(self) -> list[str]:
        return [name for name, _ in self.context.graph.nodes()]

    def get_topic_names_and_types(self, no_demangle: bool = False) -> list[tuple[str, list[str]]]:
        return sorted((name, sorted(kinds)) for name, kinds in self.context.graph.topics().items())

    def create_publisher(
        self, msg_type: Any, topic: str, qos_profile: QoSProfile | int, *, callback_group: object = None,
        event_callbacks: PublisherEventCallbacks | None = None,
    ) -> Publisher:  # fmt: skip
        """A publisher of `msg_type` on a relative, private (~/…) or absolute topic."""
        made = Publisher(
            self._entity_owner, msg_type, self.resolve_topic_name(topic), QoSProfile.coerce(qos_profile),
            event_callbacks or PublisherEventCallbacks(),
        )  # fmt: skip
        return self._added(made)

    def create_subscription(
        self, msg_type: Any, topic: str, callback: Callable[..., object], qos_profile: QoSProfile | int, *,
        callback_group: object = None, event_callbacks: SubscriptionEventCallbacks | None = None, raw: bool = False,
    ) -> Subscription:  # fmt: skip
        """Call `callback(message)` or `callback(message, info)` for each message on a topic; raw: with the bytes of
        the message as received."""
        made = Subscription(
            self._entity_owner, msg_type, self.resolve_topic_name(topic), callback, QoSProfile.coerce(qos_profile),
            event_callbacks or SubscriptionEventCallbacks(), raw,
        )  # fmt: skip
        return self._added(made)

    def create_service(
        self, srv_type: Any, srv_name: str, callback: Callable[[Any, Any], Any], *,
        qos_profile: QoSProfile = qos_profile_services_default, callback_group: object = None,
    ) -> Service:  # fmt: skip
        """Answer requests with `callback(request, response) -> response`."""
        name = self.resolve_service_name(srv_name)
        return self._added(Service(self._entity_owner, srv_type, name, callback, qos_profile))

    def create_client(
        self, srv_type: Any, srv_name: str, *, qos_profile: QoSProfile = qos_profile_services_default,
        callback_group: object = None,
    ) -> Client:  # fmt: skip
        """A client of a service."""
        name = self.resolve_service_name(srv_name)
        return self._added(Client(self._entity_owner, srv_type, name, qos_profile))

    def create_timer(
        self, timer_period_sec: float, callback: Callable[[], object], callback_group: object = None,
        clock: Clock | None = None, autostart: bool = True,
    ) -> Timer:  # fmt: skip
        """Call `callback()` every timer_period_sec of `clock` (default: the node's)."""
        made = Timer(callback, int(timer_period_sec * 1e9), clock or self._clock)
        if not autostart:
            made.cancel()
        return self._added(made)

    def _list_of(self, made: object) -> list[Any]:
        return next((self._entities[kind] for kind in _KINDS if isinstance(made, kind)), [])

    def _added(self, made: _Made) -> _Made:
        self._list_of(made).append(made)
        self._changed(made)
        return made

    def _changed(self, made: object) -> None:
        """Announce new and deleted endpoints, and make the executor read the node's entities again."""
        if not isinstance(made, Timer) and self.context.ok() and not self._destroyed:
            pairs = [*self._entities[Service], *self._entities[Client]]
            readers = [s.endpoint.gid for s in self._entities[Subscription]] + [pair.reader.gid for pair in pairs]
            writers = [p.endpoint.gid for p in self._entities[Publisher]] + [pair.writer.gid for pair in pairs]
            self.context.graph.set_endpoints(self._namespace, self._name, readers, writers)
        if self.executor is not None:
            self.executor.refresh()

    def _destroy(self, made: Any) -> bool:
        if made not in (where := self._list_of(made)):
            return False
        where.remove(made)
        made.close()
        self._changed(made)
        return True

    def destroy_publisher(self, publisher: Publisher) -> bool:
        return self._destroy(publisher)

    def destroy_subscription(self, subscription: Subscription) -> bool:
        return self._destroy(subscription)

    def destroy_service(self, service: Service) -> bool:
        return self._destroy(service)

    def destroy_client(self, client: Client) -> bool:
        return self._destroy(client)

    def destroy_timer(self, timer: Timer) -> bool:
        return self._destroy(timer)

    def destroy_node(self) -> None:
        """End the node and everything it created; a second call does nothing."""
        if self._destroyed:
            return
        self._destroyed = True
        if self._rosout is not None:
            self._rosout.close()
        if self.executor is not None:
            self.executor.remove_node(self)
        for where in self._entities.values():
            for made in list(where):
                made.close()
            where.clear()
        if self.context.ok():
            self.context.graph.remove_node(self._namespace, self._name)
