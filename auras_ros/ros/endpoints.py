"""What a node publishes, subscribes to, serves and calls, by name: what access control has to allow it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from auras_ros.topic_names import RemapRule, absolute_name, remapped

PARAMETER_SERVICES = (
    "~/describe_parameters",
    "~/get_parameter_types",
    "~/get_parameters",
    "~/get_type_description",
    "~/list_parameters",
    "~/set_parameters",
    "~/set_parameters_atomically",
)
LIFECYCLE_SERVICES = (
    "~/change_state",
    "~/get_available_states",
    "~/get_available_transitions",
    "~/get_state",
    "~/get_transition_graph",
)


@dataclass(frozen=True)
class Endpoints:
    """Of one node, named as the node names them: relative, private (~/state) or absolute. `*` in a name stands for any
    characters."""

    node: str
    publishes: tuple[str, ...] = ()
    subscribes: tuple[str, ...] = ()
    serves: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()

    def with_those_of_every_node(self, *, is_lifecycle: bool = False) -> Endpoints:
        """Beside these the ones that ROS makes for a node by itself: log, parameters, life cycle, and the clock of
        `use_sim_time`, which a launch argument may set too."""
        publishes, serves = [*self.publishes, "/parameter_events", "/rosout"], [*self.serves, *PARAMETER_SERVICES]
        if is_lifecycle:
            publishes.append("~/transition_event")
            serves += LIFECYCLE_SERVICES
        subscribes = (*self.subscribes, "/clock")
        return replace(self, publishes=tuple(publishes), subscribes=subscribes, serves=tuple(serves))

    def absolute(self, namespace: str, remaps: Sequence[RemapRule] = ()) -> Endpoints:
        """The same with absolute names after remapping, each once, in order. namespace: the node's, such as /left;
        empty: none."""
        names = {}
        for field in fields(self):
            if field.name != "node":
                expanded = [absolute_name(name, namespace, self.node) for name in getattr(self, field.name)]
                used = {new for name in expanded for new in remapped(name, remaps, namespace, self.node)}
                names[field.name] = tuple(sorted(used))
        return Endpoints(self.node, **names)
